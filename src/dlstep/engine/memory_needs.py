"""Predict the memory that a model takes on a device, from its config.json and the options alone."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..core import Json, least_pages
from .config import EngineConfig
from .devices import memory_of
from .resolve import ResolvedConfig, resolve

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from ..models import Description

CHOICES = (("bfloat16", None), ("float32", None), ("bfloat16", "fp8"))  # dtype and quantization of each prediction
LOGITS = 4  # copies of the logits that sampling holds, in float32


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryNeeds:
    """Bytes that a model takes on a device, and those that the device has (None: unknown).

    `work` estimates the working memory of one forward pass; the other sizes are exact.
    """

    dtype: str
    quantization: str | None
    weights: int
    kv_cache: int
    work: int
    total: int
    device: str
    memory: int | None

    @property
    def fits(self) -> bool:
        """Whether the device has that much memory, including memory in use."""
        return self.memory is None or self.total <= self.memory


def memory_needs(model: "Description", requests: int, length: int | None) -> Iterator[MemoryNeeds]:
    """Yield the needs for each of `CHOICES` that the device supports.

    Args:
        model: Facts of the checkpoint.
        requests: Number of requests that are decoded at the same time.
        length: Number of tokens of a prompt and its answer together; None: the longest context of the network.

    Raises:
        ValueError: If the model cannot be decoded with its own options or with these arguments.
    """
    import torch

    from ..models.checkpoint import Layout
    from ..models.quantization import check_device
    from ..models.weights import empty_network

    for dtype, quantization in CHOICES:
        given: Json = {"dtype": dtype, "max_num_reqs": requests, "max_model_len": length}
        options = resolve(EngineConfig(**given), model)
        network = empty_network(model.family.network, model.config, options.dtype)
        try:
            if quantization is not None:
                check_device("quantization", torch.device(options.device))
            weights = Layout.of(network, quantized=quantization is not None).size
        except ValueError:  # the device or the experts do not support this quantization
            continue
        kv_cache, work = _kv_cache(options, network), _work(options, network)
        yield MemoryNeeds(
            dtype=dtype,
            quantization=quantization,
            weights=weights,
            kv_cache=kv_cache,
            work=work,
            total=weights + kv_cache + work,
            device=options.device,
            memory=memory_of(options.device),
        )


def _kv_cache(options: ResolvedConfig, network: "PreTrainedModel") -> int:
    """Return the bytes of the keys and values of all requests, each of the maximum length."""
    from ..models.shapes import kv_bytes_per_token, kv_shapes

    pages = options.max_num_reqs * least_pages(options.strategy, options.max_model_len, options.page_size)
    return pages * options.page_size * kv_bytes_per_token(kv_shapes(network.config), options.kv_dtype)


def _work(options: ResolvedConfig, network: "PreTrainedModel") -> int:
    """Estimate the bytes that the largest forward pass holds: rows of one layer, a mask for attention, and logits."""
    from ..driver.memory import largest_forwards

    facts = network.config.get_text_config().to_dict()
    plans, _ = largest_forwards(options.core_config(options.model.spec), options.strategy)
    rows = max(plan.num_rows for plan in plans)
    sampled = max(sum(len(span.wanted.sampled) for span in plan.spans) for plan in plans)
    experts = (facts.get("num_experts_per_tok") or 0) * (facts.get("moe_intermediate_size") or 0)
    width = 4 * facts["hidden_size"] + 3 * max(facts.get("intermediate_size") or 0, experts)
    mask = rows * options.max_model_len * 4 if options.device == "cpu" else 0  # kernels for cuda need none
    return rows * width * options.dtype.itemsize + mask + sampled * LOGITS * facts["vocab_size"] * 4
