"""Choice of experts inside the unmodified transformers classes."""

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from dlstep_kernels import choose_experts

from .transformers_internals import Glm4MoeTopkRouter


def install_routers(network: PreTrainedModel) -> None:
    """Make routers of known classes use `choose_experts`. Calling it again is harmless."""
    for module in network.modules():
        if isinstance(module, Glm4MoeTopkRouter):
            module.__class__ = ExpertRouter
            # transformers keeps it in float32 since 5.24; the kernel needs the dtype of the hidden states.
            module.weight = nn.Parameter(module.weight.to(network.dtype), requires_grad=False)


@torch.library.custom_op("dlstep::choose_experts", mutates_args=())
def _choose_experts(
    hidden: Tensor, weight: Tensor, bias: Tensor, groups: int, kept_groups: int, count: int, normalised: bool, scale: float
) -> tuple[Tensor, Tensor]:
    """Wrap `choose_experts` as a custom operation, which compilers do not trace into."""
    return choose_experts(
        hidden, weight, bias, groups=groups, kept_groups=kept_groups, count=count, normalised=normalised, scale=scale
    )


@_choose_experts.register_fake
def _(
    hidden: Tensor, weight: Tensor, bias: Tensor, groups: int, kept_groups: int, count: int, normalised: bool, scale: float
) -> tuple[Tensor, Tensor]:
    del weight, bias, groups, kept_groups, normalised, scale
    size = (hidden.shape[0], count)
    return hidden.new_empty(size, dtype=torch.int64), hidden.new_empty(size, dtype=torch.float32)


class ExpertRouter(Glm4MoeTopkRouter):
    """A router that uses `choose_experts`."""

    def forward(self, hidden_states: Tensor) -> tuple[None, Tensor, Tensor]:
        """Return (None, weights, chosen experts); only training would read logits.

        Annotated as plain tensors, because compilers cannot trace shape checks.
        """
        chosen, weights = _choose_experts(
            hidden_states.reshape(-1, self.hidden_dim),
            self.weight,
            self.e_score_correction_bias,
            self.num_group,
            self.topk_group,
            self.top_k,
            self.norm_topk_prob,
            self.routed_scaling_factor,
        )
        return None, weights, chosen
