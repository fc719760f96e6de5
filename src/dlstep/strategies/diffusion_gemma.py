"""DiffusionGemma: canvases of random tokens, each denoised and committed as a whole.

The network encodes final tokens causally and denoises the canvas after them bidirectionally. It has
no mask token, so any token may be noise, and nothing is decided before the canvas is committed.
Each pass samples the whole canvas: it accepts positions in order of entropy up to the bound, and
renoises the others, even ones accepted before. When the most probable tokens are stable and the
canvas is confident, or after `max_denoising_steps` passes, the most probable tokens (not the
sampled ones) are committed, and the core encodes them. Predictions for pinned positions are
ignored.

Sources: `DiffusionGemmaForBlockDiffusion.generate` of transformers; for the bound, Ben-Hamu et al.,
"Accelerated Sampling from Masked Diffusion Models via Entropy Bounded Unmasking", 2025, arXiv
2505.24857.
"""

from dataclasses import dataclass, replace
from functools import lru_cache
from math import fsum
from struct import Struct
from typing import Annotated, TypeVar, final

from annotated_types import Ge, Gt, Interval

from ..core import (
    Block,
    Extra,
    Grid,
    Request,
    Rows,
    SamplingParams,
    Sequence,
    Span,
    Spec,
    Strategy,
    Wants,
    check_ranges,
    positions,
)
from ..core.draws import integers
from ..core.request import COLDEST
from ..rules._ranking import accepted

_WANTS = Wants(statistics=frozenset({"entropy", "noise"}), ties="lowest", best=1)
_PLAIN = SamplingParams()
_FP32 = Struct("f")
Item = TypeVar("Item")


@dataclass(frozen=True, slots=True)
class Draft(Extra):
    """The most probable tokens of a canvas in its last pass, and for how many passes in a row."""

    tokens: tuple[int, ...]
    run: int


def renoised(tokens: tuple[int, ...], noise: tuple[int, ...], kept: list[int]) -> tuple[int, ...]:
    """Return `noise` with the sampled `tokens` at the indices `kept`."""
    if len(kept) == len(tokens):
        return tokens
    canvas = list(noise)
    for index in kept:
        canvas[index] = tokens[index]
    return tuple(canvas)


@lru_cache(maxsize=1024)  # validating again would take half the time of `schedule`
def _at(temperature: float) -> SamplingParams:
    """Return the parameters that a pass reads. Excludes a request's long texts from the cache."""
    return SamplingParams(temperature=temperature)


def _fp32(number: float) -> float:
    """Return `number` rounded to single precision."""
    return _FP32.unpack(_FP32.pack(number))[0]


@final
@dataclass(frozen=True, slots=True)
class DiffusionGemma(Strategy):
    """Canvases of `canvas_length` positions, each denoised in at most `max_denoising_steps` passes.

    The temperature falls linearly from `t_max` to just above `t_min`; requests set none, and no
    filter. `entropy_bound` limits the sum of accepted entropies (nats, sampled distribution),
    without the largest. A canvas is done once its most probable tokens equal those of the
    `stability_threshold` previous passes and its mean entropy is below `confidence_threshold`.
    """

    SWEEP = ("entropy_bound", (0.03, 0.1, 0.3, 1.0, 3.0))

    canvas_length: Annotated[int, Gt(0)] = 256
    """Positions of a canvas, fixed by the model."""
    max_denoising_steps: Annotated[int, Gt(0)] = 48
    """Maximum number of passes per canvas."""
    entropy_bound: Annotated[float, Interval(gt=0.0, lt=float("inf"))] = 0.1
    """Accept the most certain positions up to this sum of entropies in nats; renoise others."""
    t_min: Annotated[float, Interval(ge=0.0, le=1e29)] = 0.4
    """The temperature falls from `t_max` towards this."""
    t_max: Annotated[float, Interval(gt=0.0, le=1e29)] = 0.8
    """Temperature of the first pass of a canvas."""
    stability_threshold: Annotated[int, Ge(0)] = 1
    """A canvas may end when its most probable tokens have been stable for this many passes."""
    confidence_threshold: Annotated[float, Interval(gt=0.0, lt=float("inf"))] = 0.005
    """A canvas may end when its mean entropy is below this, in nats."""

    def __post_init__(self) -> None:
        check_ranges(self)
        if self.t_max <= self.t_min:
            raise ValueError(f"DiffusionGemma.t_max must be more than t_min={self.t_min}, got {self.t_max}")
        if self.temperature(1) < COLDEST:
            raise ValueError(
                f"DiffusionGemma.t_max must be larger: no temperature may be less than {COLDEST}, and from t_max={self.t_max} "
                f"they fall to {self.temperature(1)}"
            )

    def temperature(self, remaining: int) -> float:
        """Return a pass's temperature in single precision. `remaining` counts the pass."""
        share = _fp32(max(remaining, 1) / self.max_denoising_steps)
        return _fp32(_fp32(self.t_min) + _fp32(_fp32(self.t_max - self.t_min) * share))

    def init(self, sequence: Sequence, spec: Spec) -> Sequence:
        """Mark the prompt as final and open the first canvas."""
        length = len(sequence.goal.request.prompt)
        sequence = sequence.moved(sequence.past, (), length, length)
        return self._behind(sequence, self._opened(sequence, length, spec), spec)

    def schedule(self, sequence: Sequence, spec: Spec) -> Span:
        """Return a span that samples the whole canvas. Final rows never join it."""
        del spec
        block, request = sequence.window[0], sequence.goal.request
        taken = sequence.ledger.steps - block.opened
        count = len(block.tokens)
        return Span(
            id=request.id,
            arrival=request.arrival,
            start=block.start,
            tokens=block.tokens,
            end=block.end,
            grid=Grid(block.start, count),
            wanted=positions(block.start, block.end),  # positions past the answer too: a canvas is denoised whole
            draws=(taken,) * count,
            params=_at(self.temperature(self.max_denoising_steps - taken)),
            seed=request.seed,
            joins=False,
            mode="denoise",
            carry="held" if taken else "fresh",
        )

    def commit(self, sequence: Sequence, span: Span, rows: Rows, spec: Spec) -> Sequence:
        """Accept and renoise, or after the canvas's last pass commit the most probable tokens."""
        del span
        block = sequence.window[0]
        best, chances, entropies = rows.best_ids, rows.best_probabilities, rows.entropies
        pinned = _offsets(block.given) if block.given else ()
        if pinned:
            best = _with(best, block.tokens, pinned)
            chances = _with(chances, block.probabilities, pinned)
            entropies = _with(entropies, (0.0,) * len(best), pinned)
        before = block.extra
        run = before.run + 1 if isinstance(before, Draft) and before.tokens == best else 1
        stable = run > self.stability_threshold
        last = sequence.ledger.steps - block.opened >= self.max_denoising_steps  # "more" if the option was lowered meanwhile
        if last or (stable and fsum(entropies) / (len(best) - len(pinned)) < self.confidence_threshold):
            done = Block(block.start, best, (), chances, block.given, block.opened)
            return self._behind(sequence.moved(sequence.past, (), sequence.final, sequence.settled), done, spec)
        canvas = renoised(rows.tokens, rows.noise, accepted(entropies, self.entropy_bound))
        if pinned:
            canvas = _with(canvas, block.tokens, pinned)
        block = Block(block.start, canvas, block.undecided, block.probabilities, block.given, block.opened, Draft(best, run))
        return sequence.moved(sequence.past, (block,), sequence.final, sequence.settled)

    def forget(self, sequence: Sequence, spec: Spec) -> Sequence:
        """Return the sequence with its canvas restarted; equal draws give the same answer."""
        opened = sequence.window[0].opened
        sequence = sequence.with_ledger(replace(sequence.ledger, steps=opened))
        block = self._opened(sequence, sequence.window[0].start, spec)
        return sequence.moved(sequence.past, (block,), sequence.final, sequence.settled)

    def grid(self, request: Request) -> Grid:
        """Return single positions as groups: final tokens are encoded causally."""
        del request
        return Grid(0, 1)

    def atom(self, request: Request) -> int:
        """Return the length of a canvas."""
        del request
        return self.canvas_length

    def reach(self, request: Request) -> int:
        """Return the end of the last canvas, which is denoised whole."""
        return len(request.prompt) - (-request.params.max_tokens // self.canvas_length) * self.canvas_length

    def measure(self, sequence: Sequence) -> int:
        """Return a bound on the passes for the canvases up to the answer's end."""
        if not sequence.window:
            return 0
        block = sequence.window[0]
        canvases = -((block.start - sequence.limit) // self.canvas_length)
        return canvases * self.max_denoising_steps - (sequence.steps - block.opened)

    def unfit(self, spec: Spec) -> str:
        """Return why a model with a mask token or a shifted head does not fit; empty for others."""
        if spec.mask_id is not None:
            return f"it has a mask token, id {spec.mask_id}; a canvas starts from uniformly random tokens"
        return "its head is shifted; a canvas row predicts its own position" if spec.head_shift else ""

    def refuses(self, request: Request) -> str:
        """Return why a temperature, filter or canvas length is refused; else empty."""
        params = request.params
        if params.canvas and len(params.canvas) not in (self.canvas_length, params.max_tokens):
            return (
                f"canvas has {len(params.canvas)} ids: give canvas_length={self.canvas_length} of them for the first canvas, "
                f"or max_tokens={params.max_tokens} for the answer"
            )
        for name, given, plain in (
            ("temperature", params.temperature, _PLAIN.temperature),
            ("top_k", params.top_k, _PLAIN.top_k),
            ("top_p", params.top_p, _PLAIN.top_p),
            ("min_p", params.min_p, _PLAIN.min_p),
        ):
            if given != plain:
                return f"{name}={given} has no effect in DiffusionGemma, which samples at t_max={self.t_max} falling to t_min"
        return ""

    @property
    def wants(self) -> Wants:
        """Entropy, noise and the most probable token of each position."""
        return _WANTS

    @property
    def holds_pins(self) -> bool:
        """True: each canvas holds its pinned tokens."""
        return True

    @property
    def takes_canvas(self) -> bool:
        """True: the ids replace the random ones of as many positions."""
        return True

    @property
    def carries(self) -> bool:
        """True: predictions are inputs of the canvas's next pass (self-conditioning)."""
        return True

    def _opened(self, sequence: Sequence, start: int, spec: Spec) -> Block:
        """Return a canvas at `start`, of the request's or of random ids, fixed per position."""
        goal, length = sequence.goal, self.canvas_length
        stop, request = start + length, goal.request
        params, origin = request.params, len(request.prompt)
        tokens = integers(request.seed, start, stop, 0, "open", spec.vocab_size)
        if params.canvas:
            own = params.canvas[start - origin : stop - origin]
            tokens = own + tokens[len(own) :]
        undecided = positions(start, min(stop, goal.limit))
        block = Block(start, tokens, undecided, (0.0,) * length, opened=sequence.ledger.steps)
        return block.pinning(params.pinned, origin) if params.pinned else block

    def _behind(self, sequence: Sequence, block: Block, spec: Spec) -> Sequence:
        """Return the sequence at `block`, or if it is decided, at the next undecided canvas.

        A decided canvas is final unless the answer ends inside it.
        """
        past, goal, end = sequence.past, sequence.goal, block.start
        while not block.undecided:
            if block.end > goal.limit:
                return sequence.moved(past, (block,), end, goal.limit)
            past, end = past.push_front(block.sealed()), block.end
            if end == goal.limit or any(stop_id in block.tokens for stop_id in goal.stop_ids):
                return sequence.moved(past, (), end, end)
            block = self._opened(sequence, end, spec)
        return sequence.moved(past, (block,), end, end)


def _offsets(bitmap: int) -> tuple[int, ...]:
    """Return the offsets of the set bits."""
    return tuple([offset for offset in range(bitmap.bit_length()) if bitmap >> offset & 1])


def _with(values: tuple[Item, ...], others: tuple[Item, ...], offsets: tuple[int, ...]) -> tuple[Item, ...]:
    """Return `values` with those of `others` at the `offsets`."""
    mixed = list(values)
    for offset in offsets:
        mixed[offset] = others[offset]
    return tuple(mixed)


STRATEGY = DiffusionGemma
