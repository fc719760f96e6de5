"""Rules and strategies with bugs of many kinds; each behaves like `Threshold` until the bug shows."""

from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from sys import _getframe as frame  # pyright: ignore[reportPrivateUsage]
from typing import Any, final

from dlstep.core import (
    Block,
    BlockPass,
    Choice,
    Grid,
    PlannedPass,
    Progress,
    Refusal,
    Request,
    Rule,
    SampleSpec,
    SamplingParams,
    SequenceState,
    Span,
    SpanSamples,
    Spec,
)  # fmt: skip
from dlstep.core.constraint import TokenMask
from dlstep.core.plan import Merge, SoftTokens
from dlstep.rules.threshold import Threshold
from dlstep.strategies import Blockwise
from dlstep.strategies.diffusion_gemma import DiffusionGemma

from .spans import changed, span_with

THRESHOLD = Threshold()


class Unprintable(Exception):
    """An exception whose message cannot be made."""

    def __str__(self) -> str:
        raise RuntimeError("no message")


def deeper(depth: int) -> int:
    """Recurse without end."""
    return deeper(depth + 1) + 1


def raised(kind: str) -> Any:
    """Raise what user code may raise."""
    match kind:
        case "exception":
            raise KeyError("a name")
        case "long message":
            raise ValueError("words\n" * 1000)
        case "unprintable":
            raise Unprintable
        case "system exit":
            raise SystemExit(3)
        case "stop iteration":
            raise StopIteration
        case "runtime":
            raise RuntimeError("CUDA error: as a driver would raise it")
        case "recursion":
            return deeper(0)
        case "memory":
            return [0] * 10**15
        case _:
            raise AssertionError(kind)


RAISED = (
    "exception",
    "long message",
    "unprintable",
    "system exit",
    "stop iteration",
    "runtime",
    "recursion",
    "memory",
)
CHOSEN: dict[str, Any] = {
    "none": None,
    "no indices": [],
    "text": "rows",
    "beyond the block": lambda count: [count],
    "negative": [-1],
    "descending": lambda count: [max(1, count - 1), 0],
    "twice": [0, 0],
    "fractions": [0.0],
    "truth values": [False],
    "lists": [[0]],
    "iterator": lambda count: iter([0]),
    "set": {0},
}


@final
@dataclass(frozen=True, slots=True)
class FaultyChoice(Choice):
    """A rule whose `chosen` goes wrong from forward pass `after` on; not at all without a `kind`."""

    kind: str = ""
    after: int = 0

    def chosen(self, block_pass: BlockPass) -> list[int]:
        """Some indices, or the bug."""
        if not self.kind or not block_pass.must or block_pass.sequence.steps <= self.after:
            return THRESHOLD.chosen(block_pass)
        if self.kind in RAISED:
            return raised(self.kind)
        made: Any = CHOSEN[self.kind]
        return made(len(block_pass.block.masked)) if callable(made) else made


@dataclass(frozen=True, slots=True)
class OtherBlock(Block):
    """A block with a field that no strategy of this package would keep."""

    own: int = 7


@dataclass(frozen=True, slots=True)
class OtherSpan(Span):
    """A span that says something else than its fields."""

    def mark(self) -> int:
        """Another hash than that of the rows."""
        return 0


@dataclass(frozen=True, slots=True)
class OtherProgress(Progress):
    """Progress of another class."""


@dataclass(frozen=True, slots=True)
class Growing(Grid):
    """Groups that grow, which a device would not see: it reads the fields only."""

    def group(self, position: int) -> int:
        """Another group than that of the fields."""
        return position.bit_length()


def of_class(cls: Any, given: Any) -> Any:
    """The same values in another class."""
    return cls(**{field.name: getattr(given, field.name) for field in fields(given)})


CHOICES = (*RAISED, *CHOSEN)


def wrong_blocks(right: Block, block: Block) -> dict[str, Any]:
    """What the commit of a faulty rule returns, by the name of its bug, instead of the `right` block after `block`."""
    changes: dict[str, dict[str, Any]] = {
        "shifted": {"start": right.start + 1},
        "longer": {"tokens": (*right.tokens, 0), "probabilities": (*right.probabilities, 0.5)},
        "given changed": {"given": right.given ^ 1},
        "junk token": {"tokens": (10**9, *right.tokens[1:]), "masked": right.masked[1:]},
        "mask as token": {"tokens": block.tokens, "masked": block.masked[1:], "probabilities": block.probabilities},
        "unsampled token": {"tokens": tuple([11 if token != 11 else 12 for token in right.tokens])},
        "new masks": {"masked": tuple(range(block.start, block.end))},
        "masked descending": {"masked": (*right.masked, *right.masked, block.start)},
        "fewer probabilities": {"probabilities": right.probabilities[1:]},
        "truth values": {"given": bool(right.given)},
        "fractions": {"tokens": tuple(map(float, right.tokens))},
        "no number": {"probabilities": (float("nan"),) * len(right.probabilities)},
        "impossible probability": {"probabilities": (1.5,) * len(right.probabilities)},
        "list of masks": {"masked": list(right.masked)},
        "fractional start": {"start": float(right.start)},
    }
    others = {"nothing": None, "same block": block, "subclass": of_class(OtherBlock, right)}
    return others | {name: replace(right, **values) for name, values in changes.items()}


def wrong_samples(block: Block) -> dict[str, Any]:
    """What `sampled` of a faulty rule returns, by the name of its bug."""
    return {
        "none": None,
        "empty": (),
        "list": list(block.masked),
        "outside": (block.end,),
        "twice": block.masked[:1] * 2,
        "text": ("a",),
    }


BLOCK = Block(0, (1,), (), (0.5,))
BLOCKS, SAMPLED = tuple(wrong_blocks(BLOCK, BLOCK)), tuple(wrong_samples(BLOCK))
MEASURES: dict[str, Any] = {"negative": -1, "constant": 7, "text": "x", "none": None}


@final
@dataclass(frozen=True, slots=True)
class FaultyRule(Rule):
    """A rule whose `commit`, `sampled` or `measure` goes wrong from forward pass `after` on."""

    kind: str = "nothing"
    after: int = 0
    hook: str = "commit"

    def commit(self, block_pass: BlockPass) -> Block:
        """The block of `Threshold`, or the bug."""
        right, block = THRESHOLD.commit(block_pass), block_pass.block
        if self.hook != "commit" or not block_pass.must or block_pass.sequence.steps <= self.after:
            return right
        if self.kind in RAISED:
            return raised(self.kind)
        return wrong_blocks(right, block)[self.kind]

    def sampled(self, planned: PlannedPass) -> tuple[int, ...]:
        """All masked positions, or the bug."""
        block = planned.block
        if self.hook != "sampled" or planned.number < self.after:
            return block.masked
        if self.kind in RAISED:
            return raised(self.kind)
        return wrong_samples(block)[self.kind]

    def measure(self, planned: PlannedPass) -> int:
        """The masked positions, or the bug."""
        if self.hook != "measure":
            return len(planned.block.masked)
        if self.kind in RAISED:
            return raised(self.kind)
        return MEASURES[self.kind]


def called_by(*names: str) -> bool:
    """Whether a function of the core with one of these names has called a hook, directly or not."""
    at = frame()
    while at := at.f_back:
        if at.f_code.co_name in names and "core" in at.f_code.co_filename:
            return True
    return False


def wrong_soft_tokens(span: Span) -> dict[str, SoftTokens]:
    """Soft tokens for the last rows of a span, by the name of their bug."""
    at, last = (span.rows.stop - 2, span.rows.stop - 1), span.rows.stop
    bugs: dict[str, Any] = {
        "nothing": {"positions": (), "ids": (), "probabilities": ()},
        "before the window": {"positions": (span.rows.start - 1, last - 1)},
        "after the window": {"positions": (last - 1, last)},
        "descending": {"positions": at[::-1]},
        "text positions": {"positions": ("a", "b")},
        "list of positions": {"positions": list(at)},
        "junk id": {"ids": (1, 10**6)},
        "negative id": {"ids": (1, -1)},
        "too few ids": {"ids": (1,), "probabilities": (0.5,)},
        "text probabilities": {"probabilities": ("a", "b")},
        "fewer probabilities": {"probabilities": (0.5,)},
        "no merge": {"merge": None},
    }
    return {f"soft {name}": replace(SoftTokens(at, (1, 2), (0.5, 0.5), Merge()), **values) for name, values in bugs.items()}


SCORED = SampleSpec(scored=1)
RULES: tuple[Rule, ...] = (
    *[FaultyChoice(kind) for kind in CHOICES],
    *[FaultyRule(kind) for kind in (*RAISED[:1], *BLOCKS)],
    *[FaultyRule(kind, hook="sampled") for kind in (*RAISED[:1], *SAMPLED)],
    *[FaultyRule(kind, hook="measure") for kind in (*RAISED[:1], *MEASURES)],
)

GRIDS: dict[str, Any] = {
    "growing": Growing,
    "fractional": lambda origin, size: Grid(float(origin), float(size)),
    "pair": lambda origin, size: (origin, size),
    "none": lambda origin, size: None,
    "huge": lambda origin, size: Grid(origin, 1 << 63),
    "empty": lambda origin, size: Grid(origin, 0),
    "negative": lambda origin, size: Grid(-1, size),
}
STATED = {"rows_at_once": [4.5, True, None], "fed_end": [40.0, None], "sample_spec": [None, {"best": 2}]}
STATED |= {"certain_from": ["0.9", 1, True]}


def wrong_spans(right: Span, reach: int, size: int) -> dict[str, Any]:
    """What `schedule` of a faulty strategy returns, by the name of its bug: something else, or other fields of the span.

    The request feeds at most `reach` positions, in blocks of this size.
    """
    rows, (sampled, draws), count = right.rows, (right.wanted.sampled, right.wanted.draws), len(right.wanted.sampled)
    fed, apart = len(rows.tokens), {"joins": False}
    changes: dict[str, dict[str, Any]] = {
        "another request": {"seq_id": right.who.seq_id + 1},
        "no tokens": {"tokens": (), "sampled": (), "draws": ()},
        "list of tokens": {"tokens": list(rows.tokens)},
        "nothing sampled": {"sampled": (), "draws": ()},
        "sampled outside": {"sampled": (rows.stop,), "draws": (0,)},
        "sampled text between": {"sampled": (sampled[0], "a", *sampled[1:]), "draws": (0, *draws)},
        "sampled twice": {"sampled": sampled[:1] * 2, "draws": (0, 0)},
        "fewer draws": {"draws": draws[1:]},
        "end too far": {"end": 10**6},
        "before its rows": {"end": rows.start},
        "too many scored ids": {"scored_ids": (1,) * 2 * count},
        "text as scored ids": {"scored_ids": ("a",) * count},
        "unknown carry": {"carry": "frsh"},
        "nothing to carry": {"carry": "held"},
        "fractional draws": {"draws": (0.5,) * count},
        "huge draws": {"draws": (10**30,) * count},
        "huge penalty": {"penalty": 10**400},
        "shift of two": {"shift": 2},
        "huge grid": {"grid": Grid(0, 10**30)} | apart,
        "fewer positions": {"positions": tuple(range(rows.start, rows.stop - 1))} | apart,
        "positions far away": {"positions": (10**6,) * fed} | apart,
        "text as positions": {"positions": ("a",) * fed} | apart,
        "list of positions": {"positions": list(range(rows.start, rows.stop))} | apart,
        "rows at one position": {"positions": (0,) * fed} | apart,
        "core's rows": {"final_rows": 1},
        "core's masks": {"masks": (TokenMask(1),) * count},
        "another grid": {"grid": Grid(1, 1)},
        "too many rows": {"tokens": (1,) * (reach - rows.start), "end": reach},
        "before final": {"start": rows.start - 1},
        "growing grid": {"grid": Growing(0, size)} | apart,
        "junk token": {"tokens": (*rows.tokens[1:], 10**6)},
        "text tokens": {"tokens": ("a",) * fed},
        "unknown mode": {"mode": "draft"},
        "truth values": {"shift": False},
        "penalty text": {"penalty": "1"},
        "no masks": {"masks": None},
        "flag": {"joins": "no"},
        "other inputs": {"soft": (1, 2)},
        **{name: {"soft": soft} for name, soft in wrong_soft_tokens(right).items()},
    }
    return {"none": None, "subclass": of_class(OtherSpan, right)} | changes


SPANS = tuple(wrong_spans(span_with(tokens=(1, 1), end=2, sampled=(0, 1), draws=(0, 0)), 2, 2))
PROGRESS = (
    "none", "the sequence", "same for ever", "settled back", "settled masks", "settled too far", "window list", "gap",
    "lost past", "tuple of past", "subclass", "block subclass", "true masks", "final masks",
    "text in the past", "short block in the past",
)  # fmt: skip
SETTLED = ("junk token", "text token", "forbidden token", "fewer probabilities", "nothing", "text as probabilities")
LOST_PASSES: tuple[Any, ...] = (-1, 10**6, True, "two", None)
# Hooks that are called before a request comes in.
JUDGING = ("__post_init__", "sample_spec", "fed_end", "rows_at_once", "refusal", "certain_from")


@final
@dataclass(frozen=True, slots=True)
class FaultyStrategy(Blockwise):
    """`multi_bd` with a bug in one of its hooks, which only requests with these options have."""

    hook: str = ""
    kind: str = ""
    late: int = 0

    def __post_init__(self) -> None:
        Blockwise.__post_init__(self)
        self._maybe("__post_init__")

    def _maybe(self, hook: str) -> None:
        """Raise the bug if it is in this hook."""
        if self.hook == hook:
            raised(self.kind)

    def _stated(self, hook: str, right: Any) -> Any:
        """The value of this hook, or the bug: a number is the index of what it returns."""
        if self.hook == hook and self.kind.isdigit():
            return STATED[hook][int(self.kind)]
        self._maybe(hook)
        return right

    def refusal(self, spec: Spec, request: Request) -> Refusal | None:
        """Nothing, or the bug."""
        self._maybe("refusal")
        return Blockwise.refusal(self, spec, request)

    @property
    def sample_spec(self) -> SampleSpec:
        """The statistics of the rule and one scored id, or the bug; a late one shows once the request is decoded."""
        if self.hook == "sample_spec" and self.late:
            if not called_by("schedule", "after_samples"):
                return SCORED
            if self.kind == "none":
                return None  # type: ignore[return-value]
        return self._stated("sample_spec", SCORED)

    def fed_end(self, request: Request) -> int:
        """The positions that are fed, or the bug."""
        return self._stated("fed_end", Blockwise.fed_end(self, request))

    @property
    def certain_from(self) -> float | None:
        """No threshold, or the bug."""
        return self._stated("certain_from", None)

    def rows_at_once(self, request: Request) -> int:
        """The rows that are fed at once, or the bug."""
        return self._stated("rows_at_once", Blockwise.rows_at_once(self, request))

    def grid(self, request: Request) -> Grid:
        """Groups of `block_size`, or the bug."""
        return GRIDS[self.kind](0, self.block_size) if self.hook == "grid" else Grid(0, self.block_size)

    def init(self, sequence: SequenceState, spec: Spec) -> Progress:
        """The first window, or the bug."""
        right = Blockwise.init(self, sequence, spec)
        return self._progress_or_bug(sequence, right) if self.hook == "init" else right

    def schedule(self, sequence: SequenceState, spec: Spec) -> Span:
        """The window's span, or the bug."""
        right = Blockwise.schedule(self, sequence, spec)
        if self.hook != "schedule" or sequence.steps < self.late:
            return right
        if self.kind in RAISED:
            return raised(self.kind)
        bug = wrong_spans(right, self.fed_end(sequence.request), self.block_size)[self.kind]
        return changed(right, **bug) if isinstance(bug, dict) else bug

    def commit(self, sequence: SequenceState, span: Span, samples: SpanSamples, spec: Spec) -> Progress:
        """The progress after a forward, or the bug."""
        right = Blockwise.commit(self, sequence, span, samples, spec)
        return self._progress_or_bug(sequence, right) if self.hook == "commit" and sequence.steps > self.late else right

    def forget(self, sequence: SequenceState, spec: Spec) -> Progress:
        """The progress, or the bug."""
        right = Blockwise.forget(self, sequence, spec)
        return self._progress_or_bug(sequence, right) if self.hook == "forget" else right

    def lost_passes(self, sequence: SequenceState) -> int:
        """No passes, or the bug: a number is the index of what it returns."""
        if self.hook == "lost_passes":
            return LOST_PASSES[int(self.kind)] if self.kind.isdigit() else raised(self.kind)
        return 0

    def measure(self, sequence: SequenceState) -> int:
        """The forwards ahead, or the bug."""
        return raised(self.kind) if self.hook == "measure" else Blockwise.measure(self, sequence)

    def _progress_or_bug(self, before: SequenceState, right: Progress) -> Progress:
        if self.kind in RAISED:
            return raised(self.kind)
        limit, first = before.request.limit, right.window[0] if right.window else None
        made: dict[str, Any] = {
            "none": None,
            "the sequence": before,
            "same for ever": before.progress,
            "settled back": replace(right, settled=before.progress.settled - 1),
            "settled masks": replace(right, settled=limit),
            "settled too far": replace(right, settled=limit + 1),
            "window list": replace(right, window=list(right.window)),
            "gap": replace(right, window=(*right.window, replace(first, start=first.start + 1000))) if first else None,
            "lost past": replace(right, past=type(right.past)()) if before.progress.past else right,
            "tuple of past": replace(right, past=tuple(right.past)),
            "subclass": of_class(OtherProgress, right),
            "block subclass": replace(right, window=tuple([of_class(OtherBlock, block) for block in right.window]) or None),
            "true masks": replace(right, settled=True),
            "final masks": replace(right, final=limit),
            "text in the past": replace(right, past=right.past.push_front("a block")),  # type: ignore[arg-type]
            "short block in the past": replace(right, past=right.past.push_front(Block(0, (1, 2), (), (1.0,)))),
        }
        return made[self.kind] if self.kind in made else self._settling(before, first)

    def _settling(self, before: SequenceState, first: Block | None) -> Progress | None:
        """All tokens of the first block at once, with the bug at all its positions that had none."""
        if first is None:
            return None
        count = len(first.tokens)
        token: Any = {"junk token": 10**9, "text token": "a", "forbidden token": 3}.get(self.kind, 1)
        tokens = tuple([token if before.progress.settled <= n else t for n, t in enumerate(first.tokens, first.start)])
        right = (0.5,) * count
        wrong: Any = {"fewer probabilities": right[1:], "nothing": None, "text as probabilities": "a" * count}
        block = replace(first, tokens=tokens, masked=(), probabilities=wrong.get(self.kind, right))
        return replace(before.progress, window=(block,), settled=min(block.end, before.request.limit))


CANVAS_SPANS = ("half", "half sampled", "encoded", "nothing carried", "cold", "joins", "soft")


@dataclass(frozen=True, slots=True)
class FaultyCanvas(DiffusionGemma):
    """`diffusion_gemma` with spans that its network cannot denoise, which only requests of a `kind` have."""

    kind: str = ""

    def schedule(self, sequence: SequenceState, spec: Spec) -> Span:
        """The canvas, or the bug."""
        right = DiffusionGemma.schedule(self, sequence, spec)
        start, half = right.rows.start, self.canvas_length // 2
        few = {"sampled": right.wanted.sampled[:half], "draws": right.wanted.draws[:half]}
        made: dict[str, dict[str, Any]] = {
            "": {},
            "half": {"tokens": right.rows.tokens[:half], **few},
            "half sampled": few,
            "encoded": {"mode": "encode"},
            "nothing carried": {"carry": "none"},
            "cold": {"params": SamplingParams()},
            "joins": {"joins": True, "grid": sequence.request.grid},
            "soft": {"soft": SoftTokens((start,), (1,), (0.5,), Merge())},
        }
        return changed(right, **made[self.kind])


def strategies() -> Iterator[FaultyStrategy]:
    """One strategy of each kind of bug; `late` bugs show after a few forward passes."""
    for index in range(len(LOST_PASSES)):
        yield FaultyStrategy(hook="lost_passes", kind=str(index))
    for hook in ("init", "forget", "lost_passes", "measure"):
        yield FaultyStrategy(hook=hook, kind="exception")
    for hook, kinds in (("schedule", SPANS), ("commit", PROGRESS)):
        for kind in (*RAISED, *kinds):
            yield FaultyStrategy(hook=hook, kind=kind, late=0 if kind == "too many rows" else 2)
    for kind in ("none", *RAISED):
        yield FaultyStrategy(hook="sample_spec", kind=kind, late=1)
    for hook, kind in (("init", "none"), ("init", "the sequence"), ("init", "gap"), ("forget", "none"), ("forget", "gap")):
        yield FaultyStrategy(hook=hook, kind=kind)
