"""The operators: one folder and one line each."""

from anycann.ops.gelu_backward_v2 import gelu_backward_v2 as gelu_backward_v2
from anycann.ops.gelu_v2 import gelu_v2 as gelu_v2
from anycann.ops.layer_norm import layer_norm as layer_norm
from anycann.ops.layer_norm_backward import layer_norm_backward as layer_norm_backward
from anycann.ops.layer_norm_grad import layer_norm_grad as layer_norm_grad
from anycann.ops.layer_norm_grad_beta import layer_norm_grad_beta as layer_norm_grad_beta
from anycann.ops.moe_token_permute import moe_token_permute as moe_token_permute
from anycann.ops.moe_token_permute_grad import moe_token_permute_grad as moe_token_permute_grad
from anycann.ops.moe_token_unpermute import moe_token_unpermute as moe_token_unpermute
from anycann.ops.moe_token_unpermute_grad import moe_token_unpermute_grad as moe_token_unpermute_grad
from anycann.ops.nsa_compress import nsa_compress as nsa_compress
from anycann.ops.nsa_compress_grad import nsa_compress_grad as nsa_compress_grad
from anycann.ops.smooth_l1_loss import smooth_l1_loss as smooth_l1_loss
from anycann.ops.smooth_l1_loss_backward import smooth_l1_loss_backward as smooth_l1_loss_backward
from anycann.runtime import Operator as _Operator
from anycann.runtime import operator_of as _operator_of

OPERATORS: tuple[_Operator, ...] = tuple(operator for operator in map(_operator_of, list(vars().values())) if operator)
