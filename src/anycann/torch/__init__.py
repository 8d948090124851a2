"""Door: the operators in PyTorch, as torch.ops.anycann, with autograd, torch.compile, vmap, autocast and DTensor rules.

Importing this module registers every operator of anycann; its functions and modules are those that models use.
"""

import importlib.util

if importlib.util.find_spec("torch") is None:
    raise ImportError("anycann.torch needs PyTorch 2.6 or later, which is not installed: pip install 'anycann[torch]'")

from anycann.torch import autocast as _autocast
from anycann.torch import batching as _batching
from anycann.torch import gradients as _gradients
from anycann.torch.functional import gelu as gelu
from anycann.torch.functional import layer_norm as layer_norm
from anycann.torch.functional import moe_token_permute as moe_token_permute
from anycann.torch.functional import moe_token_unpermute as moe_token_unpermute
from anycann.torch.functional import nsa_compress as nsa_compress
from anycann.torch.functional import smooth_l1_loss as smooth_l1_loss
from anycann.torch.modules import GELU as GELU
from anycann.torch.modules import LayerNorm as LayerNorm
from anycann.torch.modules import NsaCompress as NsaCompress
from anycann.torch.modules import SmoothL1Loss as SmoothL1Loss
from anycann.torch.npu import install_torch_npu_shim as install_torch_npu_shim

_gradients.register()
_batching.register()
_autocast.register()
