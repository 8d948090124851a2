"""Where the kernels of these tests lie: the examples, and the published sample where it is beside the checkout."""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples" / "ascendc"
SAMPLE = ROOT.parent / "shared" / "samples" / "layer_norm_grad_beta_kernel.cpp"
