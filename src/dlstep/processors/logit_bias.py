"""Add a fixed amount to the logits of some token ids, as OpenAI's `logit_bias` does."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, final

from ..core import Context, Processor, Refused, short

if TYPE_CHECKING:
    from torch import Tensor

LARGEST = 1e6


@final
@dataclass(frozen=True, slots=True)
class LogitBias(Processor):
    """Amounts that are added to logits."""

    bias: Mapping[int, float] | tuple[tuple[int, float], ...] = ()
    """Amounts by token id, such as {42: -100.0}; JSON's text keys are accepted, too."""

    def __post_init__(self) -> None:
        try:
            pairs = tuple(sorted((int(token), float(amount)) for token, amount in dict(self.bias).items()))
            if any(token < 0 or not abs(amount) <= LARGEST for token, amount in pairs):
                raise ValueError
        except (TypeError, ValueError) as error:
            raise Refused(
                "bias",
                "invalid_value",
                f"must be a mapping of token ids to amounts from -{LARGEST:g} to {LARGEST:g}, got {short(self.bias)}",
            ) from error
        object.__setattr__(self, "bias", pairs)

    def process(self, logits: "Tensor", context: Context) -> "Tensor":
        """Return the logits with the amounts added; ids that the network does not have are ignored."""
        del context
        known = {token: amount for token, amount in dict(self.bias).items() if token < logits.shape[1]}
        logits[:, [*known]] += logits.new_tensor([*known.values()])
        return logits


PROCESSOR = LogitBias
