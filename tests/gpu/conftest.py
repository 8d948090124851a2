"""The kernels' tests run on a GPU where there is one; else in processes of their own, in Triton's interpreter (test_interpreted.py)."""

import os

import torch

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
REAL = torch.cuda.is_available() and not INTERPRETED

collect_ignore_glob = [] if INTERPRETED or REAL else ["kernels/*"]
