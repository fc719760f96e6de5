"""DiffusionGemma: canvases of random tokens, each denoised and committed as a whole.

The network encodes final tokens causally and denoises the canvas after them bidirectionally. It has
no mask token, so any token may be noise, and nothing is unmasked before the canvas is committed.
Each pass samples the whole canvas: it accepts positions in order of entropy up to the bound, and
renoises the others, even ones accepted before. When the most probable tokens are stable and the
canvas is confident, or after `max_denoising_steps` passes, the most probable tokens (not the
sampled ones) are committed, and the core encodes them. Predictions for pinned positions are
ignored.

Sources: `DiffusionGemmaForBlockDiffusion.generate` of transformers; for the bound, Ben-Hamu et al.,
"Accelerated Sampling from Masked Diffusion Models via Entropy Bounded Unmasking", 2025, arXiv
2505.24857.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from math import fsum
from struct import Struct
from typing import Annotated, TypeVar, final

from annotated_types import Interval

from ..core import (
    ALONE,
    Block,
    Extra,
    Grid,
    Ids,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    Probabilities,
    Progress,
    Refusal,
    Refused,
    Request,
    Rows,
    SampleSpec,
    SamplingParams,
    SequenceState,
    Span,
    SpanSamples,
    Spec,
    Wanted,
    check_ranges,
    positions,
)
from ..core.automaton import members
from ..core.draws import integers
from ..core.filtering import FilteredBlock, WindowFilter, passes_left, passes_to_come, window_filter_of
from ..core.request import COLDEST
from ..rules.entropy_bound import accepted
from ._verified import Causal

_SAMPLE_SPEC = SampleSpec(statistics=frozenset({"entropy", "noise"}), ties="lowest", best=1)
_PLAIN = SamplingParams()
_FP32 = Struct("f")
Item = TypeVar("Item")


@dataclass(frozen=True, slots=True)
class CanvasDraft(Extra):
    """The most probable tokens of a canvas in its last pass, and how many passes in a row had them."""

    tokens: Ids
    run: int


# The parameters that a pass reads, cached because validating them would take half the time of `schedule`.
_params = lru_cache(maxsize=1024)(SamplingParams)


def _fp32(number: float) -> float:
    """Return `number` rounded to single precision."""
    return _FP32.unpack(_FP32.pack(number))[0]


@final
@dataclass(frozen=True, slots=True)
class DiffusionGemma(Causal):
    """Canvases of `canvas_length` positions, each denoised in at most `max_denoising_steps` passes.

    The temperature falls linearly from `t_max` to just above `t_min`; requests set none, and no
    filter. `entropy_bound` limits the sum of accepted entropies (nats, sampled distribution),
    without the largest. A canvas is done once its most probable tokens equal those of the
    `stability_threshold` previous passes and its mean entropy is below `confidence_threshold`.
    """

    holds_pins = True
    takes_canvas = True  # the given ids replace as many random ones
    carries = True  # predictions are inputs of the canvas's next pass (self-conditioning)
    SWEEP = ("entropy_bound", (0.03, 0.1, 0.3, 1.0, 3.0))
    OWN_PARAMS = ("temperature", "top_k", "top_p", "min_p")

    canvas_length: PositiveInt = 256
    """Positions of a canvas, fixed by the model."""
    max_denoising_steps: PositiveInt = 48
    """Maximum number of passes per canvas."""
    entropy_bound: PositiveFloat = 0.1
    """Accept the most certain positions up to this sum of entropies in nats; renoise others."""
    t_min: Annotated[float, Interval(ge=0.0, le=1e29)] = 0.4
    """The temperature falls from `t_max` towards this."""
    t_max: Annotated[float, Interval(gt=0.0, le=1e29)] = 0.8
    """Temperature of the first pass of a canvas."""
    stability_threshold: NonNegativeInt = 1
    """A canvas may end when its most probable tokens have been stable for this many passes."""
    confidence_threshold: PositiveFloat = 0.005
    """A canvas may end when its mean entropy is below this, in nats."""

    def __post_init__(self) -> None:
        check_ranges(self)
        if self.t_max <= self.t_min:
            raise Refused("t_max", "out_of_range", f"must be more than t_min={self.t_min}, got {self.t_max}")
        if self.temperature(1) < COLDEST:
            raise Refused(
                "t_max",
                "out_of_range",
                f"no temperature may be below {COLDEST}, and the last is {self.temperature(1)}: raise t_min or t_max",
            )

    def temperature(self, remaining: int) -> float:
        """Return the temperature of a pass, in single precision.

        Args:
            remaining: Number of denoising passes left, this one included.
        """
        share = _fp32(max(remaining, 1) / self.max_denoising_steps)
        return _fp32(_fp32(self.t_min) + _fp32(_fp32(self.t_max - self.t_min) * share))

    def init(self, sequence: SequenceState, spec: Spec) -> Progress:
        """Mark the prompt as final and open the first canvas."""
        return self._progress(sequence, self._opened(sequence, sequence.request.start, spec), spec)

    def schedule(self, sequence: SequenceState, spec: Spec) -> Span:
        """Return a span that samples the whole canvas. Final rows never join it."""
        block, request = sequence.progress.window[0], sequence.request
        number = sequence.steps - block.opened
        count = len(block.tokens)
        sampled = positions(block.start, block.end)  # positions past the answer too: a canvas is denoised whole
        carry = "held" if number else "fresh"
        rows = Rows(block.start, block.tokens, block.end, Grid(block.start, count), mode="denoise", carry=carry)
        temperature = self.temperature(self.max_denoising_steps - number)
        own = request.params
        params = _params(temperature=temperature, top_logprobs=own.top_logprobs, step_map=own.step_map)
        return Span(replace(request.who, params=params), rows, Wanted(sampled, (number,) * count), ALONE)

    def commit(self, sequence: SequenceState, span: Span, samples: SpanSamples, spec: Spec) -> Progress:
        """Accept tokens and renoise the others; after the last pass, commit the most probable tokens."""
        progress = sequence.progress
        block, window_filter = progress.window[0], window_filter_of(sequence, progress.window)
        best, chances, entropies = samples.best_ids, samples.best_probabilities, samples.entropies
        pinned = members(block.given)
        if pinned:
            best = mixed(best, block.tokens, pinned)
            chances = mixed(chances, block.probabilities, pinned)
            entropies = mixed(entropies, (0.0,) * len(best), pinned)
        before = block.extra
        run = before.run + 1 if isinstance(before, CanvasDraft) and before.tokens == best else 1
        stable = run > self.stability_threshold
        last = sequence.steps - block.opened >= self.max_denoising_steps  # ">" if the option was lowered meanwhile
        if last or (stable and fsum(entropies) / (len(best) - len(pinned)) < self.confidence_threshold):
            done = Block(block.start, best, (), chances, block.given, block.opened)
            if window_filter is not None:
                done = _committed(window_filter, block, best, chances, samples.noise)
            return self._progress(sequence, done, spec)
        chosen = accepted(entropies, self.entropy_bound)
        if window_filter is not None:
            chosen = _consistent(window_filter.enter(block), chosen, samples)
        canvas = mixed(samples.noise, samples.tokens, chosen)
        if pinned:
            canvas = mixed(canvas, block.tokens, pinned)
        block = Block(block.start, canvas, block.masked, block.probabilities, block.given, block.opened, CanvasDraft(best, run))
        return Progress((block,), progress.final, progress.settled, progress.past)

    def forget(self, sequence: SequenceState, spec: Spec) -> Progress:
        """Return the progress with its canvas restarted. The repeated passes have equal draws, so they give equal tokens."""
        (block,) = sequence.progress.window
        return replace(sequence.progress, window=(self._opened(sequence, block.start, spec),))

    def lost_passes(self, sequence: SequenceState) -> int:
        """Return the number of passes of the canvas, all of which repeat: only the device had the data that they carried."""
        return sequence.steps - sequence.progress.window[0].opened

    def rows_at_once(self, request: Request) -> int:
        """Return the length of a canvas."""
        return self.canvas_length

    def fed_end(self, request: Request) -> int:
        """Return the end of the last canvas, which is denoised whole."""
        return request.start - (-request.params.max_tokens // self.canvas_length) * self.canvas_length

    def measure(self, sequence: SequenceState) -> int:
        """Return a bound on the passes for the canvases up to the answer's end."""
        if not sequence.progress.window:
            return 0
        block = sequence.progress.window[0]
        most, limit = self.max_denoising_steps, sequence.request.limit
        # A fork may allow fewer passes than the canvas has had.
        return passes_left(sequence, block, max(1, block.opened + most - sequence.steps)) + passes_to_come(
            sequence, -((block.end - limit) // self.canvas_length) * most, max(0, limit - block.end)
        )

    def refusal(self, spec: Spec, request: Request) -> Refusal | None:
        """Return why a model with a mask or a shifted head, a canvas of another length, or a sampling option is refused."""
        params = request.params
        if spec.mask_id is not None:
            return Refusal(
                "decoding_strategy",
                "unsupported",
                f"the model has a mask token, id {spec.mask_id}; a canvas starts from uniformly random tokens",
            )
        if spec.head_shift:
            return Refusal("decoding_strategy", "unsupported", "its head is shifted; a canvas row predicts its own position")
        if params.canvas and len(params.canvas) not in (self.canvas_length, params.max_tokens):
            return Refusal(
                "canvas",
                "out_of_range",
                f"it has {len(params.canvas)} ids: give canvas_length={self.canvas_length} of them for the first canvas, "
                f"or max_tokens={params.max_tokens} for the answer",
            )
        for name in self.OWN_PARAMS:
            option = getattr(params, name)
            if option != getattr(_PLAIN, name):
                return Refusal(
                    name,
                    "unsupported",
                    f"{option} has no effect in DiffusionGemma (temperatures: t_max to t_min): leave it out",
                )
        return None

    @property
    def sample_spec(self) -> SampleSpec:
        """Entropy, noise and the most probable token of each position."""
        return _SAMPLE_SPEC

    def _opened(self, sequence: SequenceState, start: int, spec: Spec) -> Block:
        """Return a canvas at `start`, of the request's or of random ids, fixed per position."""
        request, length = sequence.request, self.canvas_length
        stop = start + length
        params, origin = request.params, request.start
        tokens = integers(request.seed, start, stop, 0, "open", spec.vocab_size)
        if params.canvas:
            own = params.canvas[start - origin : stop - origin]
            tokens = own + tokens[len(own) :]
        masked = positions(start, min(stop, request.limit))
        block = Block(start, tokens, masked, (0.0,) * length, opened=sequence.steps)
        return block.with_pinned(params.pinned, origin) if params.pinned else block

    def _progress(self, sequence: SequenceState, block: Block, spec: Spec) -> Progress:
        """Return the progress at `block`, or if `block` is full, at the next canvas that is not.

        A full canvas is final unless the answer ends inside it.
        """
        past, request, end = sequence.progress.past, sequence.request, block.start
        while not block.masked:
            if block.end > request.limit:
                return Progress((block,), end, request.limit, past)
            past, end = past.push_front(block.sealed()), block.end
            if end == request.limit or any(stop_id in block.tokens for stop_id in request.stop_ids):
                return Progress((), end, end, past)
            block = self._opened(sequence, end, spec)
        return Progress((block,), end, end, past)


def _committed(window_filter: WindowFilter, block: Block, best: Ids, chances: Probabilities, noise: Ids) -> Block:
    """Return the canvas after committing those of the tokens `best` that satisfy the constraint together.

    The committed tokens count as given from then on. The other positions get noise and are denoised
    further.
    """
    start, entered = block.start, window_filter.enter(block)
    at = [position - start for position in block.masked]
    after = entered.unmask(block.masked, [best[index] for index in at], [chances[index] for index in at])
    done = window_filter.leave(after, entered)
    left = [position - start for position in done.masked]
    if not left:
        return done
    given = done.given | sum(1 << index for index in set(at).difference(left))
    return replace(done, tokens=mixed(done.tokens, noise, left), given=given, extra=None)


def _consistent(block: FilteredBlock, chosen: list[int], samples: SpanSamples) -> list[int]:
    """Return the indices `chosen` without those whose tokens contradict more certain ones.

    Noise needs no filter, because it is only fed and never committed.
    """
    masked = set(block.masked)
    inside = [index for index in chosen if block.start + index in masked]
    tokens, certainties = [samples.tokens[index] for index in inside], [-samples.entropies[index] for index in inside]
    kept = block.compatible([block.start + index for index in inside], tokens, certainties)
    dropped = set(inside).difference([inside[number] for number in kept])
    return [index for index in chosen if index not in dropped]


def mixed(values: tuple[Item, ...], others: tuple[Item, ...], offsets: Sequence[int]) -> tuple[Item, ...]:
    """Return `values` with those of `others` at the `offsets`."""
    changed = list(values)
    for offset in offsets:
        changed[offset] = others[offset]
    return tuple(changed)


STRATEGY = DiffusionGemma
