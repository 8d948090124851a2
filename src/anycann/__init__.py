"""anycann."""
