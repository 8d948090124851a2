"""What the kernels of one language share; knows no operator."""
