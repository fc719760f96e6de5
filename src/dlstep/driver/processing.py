"""Processors in a forward pass: which rows each of them changes, and the second pass of guided requests."""

from dataclasses import dataclass, replace
from itertools import accumulate

import torch
from jaxtyping import Float32
from torch import Tensor

from ..core import Context, Plan, Span, Spec
from ..core.contract import request_fault
from ..core.errors import WrongAnswer

Logits = Float32[Tensor, "w ids"]


@dataclass(slots=True, eq=False)
class ProcessedSpan:
    """A span of a request with processors, and the rows of logits that predict its sampled positions.

    `unguided` has the logits of these rows for a masked prompt, `error` the message of a processor that failed.
    """

    span: Span
    rows: slice
    unguided: Logits | None = None
    error: str = ""

    def process(self, logits: Logits, spec: Spec) -> None:
        """Change the rows of the span in place. If a processor fails, keep the error and fill them with NaN."""
        own = logits[self.rows]
        try:
            own[:] = self._processed(own, spec)
        except BaseException as error:  # noqa: BLE001 - user code may raise anything
            self.error = str(request_fault(None, 0, error))
            own.fill_(torch.nan)

    def _processed(self, logits: Logits, spec: Spec) -> Tensor:
        wanted, params = self.span.wanted, self.span.who.params
        assert wanted.so_far is not None, "the core sets it for requests with processors"
        context = Context(wanted.sampled, wanted.so_far, params, spec, self.unguided)
        for processor in params.processors:
            after = processor.process(logits, context)
            if not isinstance(after, Tensor) or after.shape != logits.shape or not after.is_floating_point():
                got = f"{after.dtype} {tuple(after.shape)}" if isinstance(after, Tensor) else type(after).__name__
                raise WrongAnswer(processor, "process", f"{got}: it must be a float32 tensor of shape {tuple(logits.shape)}")
            logits = after
        return logits


@dataclass(frozen=True, slots=True, eq=False)
class Processing:
    """The processed spans of a forward pass."""

    spans: tuple[ProcessedSpan, ...]

    def __call__(self, logits: Logits, spec: Spec) -> Logits:
        """Return the logits of all sampled rows after the processors."""
        for each in self.spans:
            each.process(logits, spec)
        return logits

    @property
    def guided(self) -> tuple[ProcessedSpan, ...]:
        """The spans that need the logits for a masked prompt."""
        return tuple([each for each in self.spans if any(one.guided for one in each.span.who.params.processors)])

    @property
    def errors(self) -> dict[int, str]:
        """Errors of processors, by sequence number."""
        return {each.span.who.seq_id: each.error for each in self.spans if each.error}


@dataclass(frozen=True, slots=True, eq=False)
class Unguided:
    """The forward pass with masked prompts, which runs first and stores its logits in the spans `guided`."""

    guided: tuple[ProcessedSpan, ...]

    def __call__(self, logits: Logits, spec: Spec) -> Logits:
        """Keep the logits of each span and return them."""
        del spec
        counts = [len(each.span.wanted.sampled) for each in self.guided]
        for each, own in zip(self.guided, logits.split(counts), strict=True):
            each.unguided = own
        return logits


def plan_processing(plan: Plan) -> Processing | None:
    """Return the processed spans of a plan; None without any."""
    if all(span.wanted.so_far is None for span in plan.spans):
        return None
    ends = accumulate(len(span.wanted.sampled) for span in plan.spans)
    rows = [slice(end - len(span.wanted.sampled), end) for span, end in zip(plan.spans, ends, strict=True)]
    pairs = zip(plan.spans, rows, strict=True)
    return Processing(tuple([ProcessedSpan(span, own) for span, own in pairs if span.wanted.so_far is not None]))


def unguided_plan(plan: Plan, guided: tuple[ProcessedSpan, ...], mask_id: int) -> Plan:
    """Return the plan with only the guided spans, their prompts masked.

    The next pass overwrites all keys and values that this one stores, because guided requests feed their whole canvas.
    """
    spans: list[Span] = []
    for each in guided:
        rows, so_far = each.span.rows, each.span.wanted.so_far
        assert so_far is not None, "a guided span has processors"
        masked = max(0, so_far.prompt_length - rows.start)
        spans.append(replace(each.span, rows=replace(rows, tokens=(mask_id,) * masked + rows.tokens[masked:])))
    return replace(plan, spans=tuple(spans))
