"""Networks over KV cache pages: the interface that drivers use."""

from transformers import DiffusionGemmaForBlockDiffusion, PreTrainedModel

from ...core import Spec
from ...distributed.ranks import ALONE, Ranks
from .batch import Batch as Batch, Carry as Carry, Memory as Memory
from .canvas import CanvasNetwork as CanvasNetwork
from .network import Answer as Answer, PagedNetwork as PagedNetwork
from .plain import PlainNetwork as PlainNetwork


def paged(model: PreTrainedModel, spec: Spec, ranks: Ranks = ALONE) -> PagedNetwork:
    """Return `model`, or a rank's shard of it, with its keys and values in pages."""
    kind = CanvasNetwork if isinstance(model, DiffusionGemmaForBlockDiffusion) else PlainNetwork
    return kind(model, spec, ranks)
