"""A plan describes one forward pass completely; samples are its results.

`SampleSpec` lists the statistics that the driver reports of sampled positions, `SoftTokens` the
positions whose input is a blend of embeddings, which the driver computes.
"""

from collections.abc import Sequence
from dataclasses import InitVar, dataclass, field, fields, replace
from math import inf, isfinite
from operator import eq, ge
from pathlib import Path
from sys import float_info
from typing import Annotated, Any, Literal, NamedTuple, Protocol, get_args, runtime_checkable

from annotated_types import Ge

from .block import Grid, positions
from .checks import Checked, Fields, Json, check_ranges, short, values_of
from .constraint import TokenMask
from .errors import Refused, SamplesMismatch
from .frozen import built_fast
from .request import SoFar, Who
from .spec import Ids, NonNegativeInt, Pages, Positions, Probabilities, SeqIds

MergeMode = Literal["dmax_topk", "iter_smooth_topk"]


@dataclass(frozen=True, slots=True)
class Merge(Checked):
    """How to compute a soft token's embedding from table E, probabilities q_k and residual r.

    The mode `dmax_topk` computes `s = sum q_k E[id_k] + r E[mask]`, scaled to the norm `sum q_k
    |E[id_k]| + r |E[mask]|` with `renormalize`. The mode `iter_smooth_topk` computes `E[fed] +
    weight * sum q_k E[id_k]`. Source: DMax, dInfer.
    """

    mode: MergeMode = "dmax_topk"
    """Which of the two formulas."""
    renormalize: bool = True
    """With `dmax_topk`: scale the blend."""
    weight: Annotated[float, Ge(0.0)] = 1.0
    """With `iter_smooth_topk`: factor of the blend."""


@built_fast
@dataclass(frozen=True, slots=True)
class SoftTokens:
    """Soft inputs of some positions. Each has equally many ids and probabilities."""

    positions: Positions
    """The positions, ascending."""
    ids: Ids
    """Token ids of each position in turn."""
    probabilities: Probabilities
    """The weight of each id."""
    merge: Merge
    """How to compute the embeddings."""

    def mark(self) -> int:
        """Return a hash of the blends (residuals follow from them), equal in every process."""
        at = self.positions
        # Positions are mostly consecutive: then the first and the last identify all.
        where = (at[0], at[-1]) if at and at[-1] - at[0] < len(at) else at
        merge = self.merge
        how = (merge.mode == "dmax_topk", merge.renormalize, merge.weight)
        return hash((where, self.ids, self.probabilities, how))

    @property
    def width(self) -> int:
        """The number of ids per position."""
        return len(self.ids) // len(self.positions) if self.positions else 0


Statistic = Literal["entropy", "margin", "noise", "policy"]
STATISTICS: frozenset[str] = frozenset(get_args(Statistic))
Ties = Literal["highest", "lowest"]
FEW_BEST = 8  # smallest `best` of a plan with `top_logprobs`: if most plans share one value, a device captures fewer graphs


@dataclass(frozen=True, slots=True)
class SampleSpec:
    """Statistics that a strategy needs for each sampled position, and its tie-breaking.

    Raises:
        Refused: For an unknown statistic, and for a negative number.
    """

    statistics: frozenset[Statistic] = frozenset()
    """`entropy`: of the distribution that `tempered` selects; `margin`: after temperature and filters; `noise`: a uniform
    random id; `policy`: the numbers of step maps (`SpanSamples.policy`), which the core adds for requests with `step_map`."""
    ties: Ties = "highest"
    """Which of equally probable ids greedy sampling selects."""
    best: NonNegativeInt = 0
    """How many of the most probable ids to report with their probabilities."""
    tempered: bool = True
    """Whether probabilities and entropies are those after temperature and filters, or those of the plain softmax."""
    scored: NonNegativeInt = 0
    """Maximum number of ids per sampled position whose probabilities a span may request."""
    all_ids: bool = False
    """Also allow the mask id and ids beyond the vocabulary, as published likelihoods do."""

    def __post_init__(self) -> None:
        check_ranges(self)
        if type(self.statistics) is not frozenset or not self.statistics <= STATISTICS:
            allowed = ", ".join(sorted(STATISTICS))
            raise Refused("statistics", "invalid_value", f"must be a frozenset of {allowed}, got {short(self.statistics)}")

    def widths(self, scored: int) -> dict[str, int]:
        """Return how many numbers each optional field of `SpanSamples` has per sampled position, in order of the fields.

        Args:
            scored: Number of scored ids per position.
        """
        asked = self.statistics
        return {
            "entropies": int("entropy" in asked),
            "margins": int("margin" in asked),
            "best_ids": self.best,
            "best_probabilities": self.best,
            "noise": int("noise" in asked),
            "scored_probabilities": scored,
            "policy": 3 + 2 * self.best if "policy" in asked else 0,
        }

    def lacking(self, other: "SampleSpec") -> str:
        """Return the fields and values of `other` that rows sampled with `self` lack, such as `best=4`.

        Args:
            other: The statistics that are needed.
        """
        alike = ("ties", "tempered", "all_ids")  # of other fields, `self` may have more
        ours, theirs = values_of(self), values_of(other)
        missing = [name for name, value in theirs.items() if not (eq if name in alike else ge)(ours[name], value)]
        theirs["statistics"] = sorted(other.statistics)
        return ", ".join([f"{name}={theirs[name]}" for name in missing])


PLAIN = SampleSpec()


@built_fast
@dataclass(frozen=True, slots=True)
class SpanSamples:
    """Results of one span, one entry per sampled position."""

    tokens: Ids
    """Sampled token ids; -1 in a row with non-finite logits."""
    probabilities: Probabilities
    """Probability of each token; 0.0 in a row with non-finite logits."""
    entropies: tuple[float, ...] = ()
    """Entropies in nats; empty unless requested."""
    margins: tuple[float, ...] = ()
    """Best minus second-best probability; empty unless requested."""
    best_ids: Ids = ()
    """For each entry in turn, its `SampleSpec.best` most probable ids, the most probable first.
    Ids of probability 0 are arbitrary and may repeat."""
    best_probabilities: Probabilities = ()
    """Probabilities of `best_ids`."""
    noise: Ids = ()
    """One uniform random id per entry; empty unless requested."""
    scored_probabilities: Probabilities = ()
    """Probabilities of `Wanted.scored_ids`, under the distribution that `SampleSpec` selects. They are 0.0
    for the id -1; with `tempered`, for ids that a filter removed; and without `all_ids`, for the mask id
    and ids beyond the vocabulary."""
    policy: tuple[float, ...] = ()
    """For each entry in turn: the entropy in nats of the plain softmax of the network's logits over all ids; then the
    log-probabilities of the sampled token and of each of `best_ids` in the distribution that the token was drawn from,
    after processors, penalty, mask, temperature and filters; then those in the plain softmax. Empty unless requested."""
    error: str = ""
    """Error of a processor of the request, after which every token is -1; empty if none failed."""

    def at(self, indices: Sequence[int]) -> "SpanSamples":
        """Return some entries, in this order.

        Args:
            indices: Indices of the entries.
        """
        kept: list[Any] = []
        for each in fields(self)[:-1]:  # all but `error`
            values: tuple[Any, ...] = getattr(self, each.name)
            width = len(values) // len(self.tokens)
            kept.append(tuple([value for index in indices for value in values[index * width : (index + 1) * width]]))
        return SpanSamples(*kept)

    def trimmed(self, given: "SampleSpec", needed: "SampleSpec") -> "SpanSamples":
        """Return the rows with only the statistics of `needed`.

        The span requests the scored ids, so their probabilities stay.

        Args:
            given: The statistics with which the rows were made.
            needed: The statistics of the strategy, which `given` covers.
        """
        if given == needed:
            return self
        dropped: dict[str, tuple[()]] = {name: () for name, width in needed.widths(1).items() if not width}
        within = [index for index in range(len(self.best_ids)) if index % given.best < needed.best]
        best: Json = {
            "best_ids": tuple([self.best_ids[index] for index in within]),
            "best_probabilities": tuple([self.best_probabilities[index] for index in within]),
        }
        return replace(self, **best | dropped)


NO_SAMPLES = SpanSamples((), ())


MOST = 1.001  # largest probability: devices round
_LARGEST = {"entropies": float_info.max, "noise": inf, "best_ids": inf, "policy": inf}  # of other fields: MOST
Mode = Literal["encode", "denoise"]
Carry = Literal["none", "fresh", "held"]
# Numbers, because hashes of strings differ between processes.
MODES: dict[Mode, int] = {"encode": 0, "denoise": 1}
CARRIES: dict[Carry, int] = {"none": 0, "fresh": 1, "held": 2}


@built_fast
@dataclass(frozen=True, slots=True)
class Rows:
    """The rows `[start, start + len(tokens))`: `query_only` rows, then `final_rows` rows, then the window."""

    start: int
    """Position of the first row."""
    tokens: Ids
    """Token ids of the rows."""
    end: int
    """Queries see positions below this; for those after the last row, an earlier pass stored keys and values."""
    grid: Grid
    """Groups that decide which positions a query sees."""
    query_only: int = 0
    """Number of first rows that read their keys and values from the pages and store nothing."""
    final_rows: int = 0
    """Number of rows of final tokens after the `query_only` rows."""
    mode: Mode = "encode"
    """For networks that encode final tokens and denoise the window differently."""
    carry: Carry = "none"
    """Whether a pass starts (`fresh`) or continues (`held`) state carried between passes."""
    soft: SoftTokens | None = None
    """Blended inputs of window rows; None if there are none."""
    positions: Positions = ()
    """Position of each row, which decides its rotary embedding and what it predicts; empty if row i has position `start + i`.
    What rows see and where they are stored follows from their order, as if row i had position `start + i`. `_reordered` in
    `driver/lowering.py` gives the network these positions."""
    draft: bool = False
    """Whether the rows draft tokens for a later pass to verify. An adapter for drafts applies only to such rows."""

    @property
    def stop(self) -> int:
        """First position after the fed ones."""
        return self.start + len(self.tokens)

    def index(self, position: int) -> int:
        """Return the index of the row that has a position; of the last one if several rows have it.

        Args:
            position: A position that a row has.
        """
        return len(self.tokens) - 1 - self.positions[::-1].index(position) if self.positions else position - self.start


@built_fast
@dataclass(frozen=True, slots=True)
class Wanted:
    """The results that the driver returns for a span: the positions to sample, and how to sample them."""

    sampled: Positions = ()
    """Positions (not rows) to sample, ascending."""
    draws: tuple[int, ...] = ()
    """Draw number of each sampled position."""
    scored_ids: Ids = ()
    """Ids to report probabilities of, equally many per sampled position in turn; -1 is none."""
    masks: tuple[TokenMask, ...] = ()
    """Ids that each sampled position may hold; if empty, any id. Under a constraint, the core sets `LazyMasks`."""
    penalty: float = 0.0
    """Subtracted at each sampled position from the logit of the previous token in its group."""
    shift: int | None = None
    """1 if row p-1 predicts position p in this span, 0 if row p does; None for the model's `Spec.head_shift`."""
    so_far: SoFar | None = None
    """The tokens of a request with processors; only the core sets it."""

    @property
    def scored_width(self) -> int:
        """Number of scored ids per sampled position."""
        return len(self.scored_ids) // len(self.sampled) if self.scored_ids else 0

    def row_shift(self, head_shift: int) -> int:
        """Return the distance from a sampled position back to the row that predicts it.

        Args:
            head_shift: The model's `Spec.head_shift`, which applies unless the span has a shift.
        """
        return head_shift if self.shift is None else self.shift


@dataclass(frozen=True, slots=True)
class Storing:
    """How the core stores rows of a span."""

    joins: bool = True
    """Whether the core may put unstored final rows before the window."""
    keeps_window: bool = False
    """Whether window rows count as stored if the tokens fed to them became final. If False, the core feeds these again."""


JOINS = Storing()
ALONE = Storing(joins=False)


@built_fast
@dataclass(frozen=True, slots=True)
class Span:
    """Consecutive positions of one request to feed in one forward pass.

    Queries see positions below `rows.end` under `rows.grid`. A strategy plans only the window, and how the window
    is sampled and stored. The core adds rows of final tokens (`with_prefix`) and, in `wanted`, what constraints and
    processors need.
    """

    who: Who
    """The request."""
    rows: Rows
    """What to feed."""
    wanted: Wanted = Wanted()
    """What to sample."""
    storing: Storing = JOINS
    """What the core may store with it."""

    def with_prefix(self, start: int, tokens: Ids, *, query_only: int = 0, final_rows: int = 0) -> "Span":
        """Return the span with more rows before its own.

        Args:
            start: Position of the first new row.
            tokens: Token ids of the new rows, which end where the span starts.
            query_only: Number of new rows that store nothing.
            final_rows: Number of new rows of final tokens.
        """
        tokens += self.rows.tokens
        at = self.rows.positions and positions(start, self.rows.start) + self.rows.positions
        rows = replace(self.rows, start=start, tokens=tokens, positions=at, query_only=query_only, final_rows=final_rows)
        return replace(self, rows=rows)

    def mark(self) -> int:
        """Return a hash of everything that the span writes to the device, equal in every process.

        `wanted` is left out, because it affects only the samples, and so is `storing`, which affects only the core.
        """
        rows, extra = self.rows, 0
        grid, seq_id = rows.grid, self.who.seq_id
        if rows.soft is not None or rows.carry != "none" or rows.mode != "encode":
            blend = 0 if rows.soft is None else rows.soft.mark()
            extra = hash((MODES[rows.mode], CARRIES[rows.carry], self.who.params.temperature, blend))
        if rows.draft:
            extra = hash((extra, 1))
        if rows.positions:
            extra = hash((extra, rows.positions))
        return hash(
            (seq_id, rows.start, rows.tokens, rows.end, grid.origin, grid.size, rows.query_only, rows.final_rows, extra)
        )


@dataclass(frozen=True, slots=True)
class Admission:
    """The start of a request's page table."""

    seq_id: int
    """Sequence number of the request."""
    shared: Pages
    """Full final pages of its prefix, which it only reads."""
    slot: int | None = None
    """Where the device keeps state between passes; None if the strategy carries no state."""


@dataclass(frozen=True, slots=True)
class Grant:
    """Pages appended to the page table of a request, which is their only owner."""

    seq_id: int
    """Sequence number of the request."""
    pages: Pages
    """The pages, in order of position."""


@dataclass(frozen=True, slots=True)
class Plan:
    """One forward pass, and the ownership changes that it needs.

    Effects in order: `releases` and `preemptions` release all pages of a sequence, `admissions`
    open page tables, `grants` extend them, `spans` run.
    """

    step: int
    """Number of the forward pass, from 0."""
    cache_digest: int
    """Cache digest of the KV cache that the plan continues; EMPTY_CACHE for a plan that begins an empty one."""
    spans: tuple[Span, ...]
    """What to feed, at most one span per request."""
    sample_spec: SampleSpec = PLAIN
    """Statistics to return for each sampled position."""
    releases: SeqIds = ()
    """Sequence numbers of requests that ended since the last plan."""
    preemptions: SeqIds = ()
    """Sequence numbers of requests that lose their pages."""
    admissions: tuple[Admission, ...] = ()
    """Requests that start to run."""
    grants: tuple[Grant, ...] = ()
    """Pages that requests get."""
    num_pages: int = 0
    """Number of pages of the KV cache; needed by a plan that begins an empty cache."""

    @property
    def num_rows(self) -> int:
        """Number of rows that all spans feed."""
        return sum(len(span.rows.tokens) for span in self.spans)


@dataclass(frozen=True, slots=True)
class Samples:
    """Results of a plan.

    Args:
        marks: `span.mark()` of each span, if they were computed while the device worked.
        checked: If False, the constructor checks the numbers, and `commit` checks the ids.

    Raises:
        SamplesMismatch: For a wrong number of rows or a number that is out of range.
    """

    plan: Plan
    """The plan that ran."""
    spans: tuple[SpanSamples, ...] = ()
    """Results of each span of the plan, in order."""
    marks: InitVar[Sequence[int] | None] = None
    checked: bool = field(default=False, repr=False, compare=False)
    """Whether the driver guarantees that no row failed, all ids are token ids and all numbers are in range."""
    cache_digest: int = field(init=False, repr=False, compare=False)
    """Cache digest of the next state."""

    def __post_init__(self, marks: Sequence[int] | None) -> None:
        check_ranges(self)
        if len(self.spans) != len(self.plan.spans):
            raise SamplesMismatch(
                f"step {self.plan.step}: {len(self.plan.spans)} spans were planned, {len(self.spans)} results came back"
            )
        for span, rows in zip(self.plan.spans, self.spans, strict=True):
            if not len(span.wanted.sampled) == len(rows.tokens) == len(rows.probabilities):
                raise SamplesMismatch(
                    f"step {self.plan.step}, request {span.who.id}: {len(span.wanted.sampled)} sampled positions, "
                    f"{len(rows.tokens)} tokens and {len(rows.probabilities)} probabilities came back"
                )
        if not self.checked or self.plan.sample_spec != PLAIN:
            self._check_numbers()
        object.__setattr__(self, "cache_digest", next_cache_digest(self.plan, self.spans, marks))

    def _check_numbers(self) -> None:
        spec = self.plan.sample_spec
        for span, rows in zip(self.plan.spans, self.spans, strict=True):
            for name, width in {"probabilities": 1, **spec.widths(span.wanted.scored_width)}.items():
                numbers: tuple[Any, ...] = getattr(rows, name)
                due, most = width * len(span.wanted.sampled), _LARGEST.get(name, MOST)
                if len(numbers) != due and spec != PLAIN:  # a plain plan needs none of them
                    raise SamplesMismatch(
                        f"step {self.plan.step}, request {span.who.id}: {due} {name} were requested, {len(numbers)} came back"
                    )
                if name == "policy" and not all(map(isfinite, numbers)):
                    raise SamplesMismatch(f"step {self.plan.step}, request {span.who.id}: not all of policy is finite")
                if self.checked or most == inf:  # `commit` checks ids
                    continue
                for index, number in enumerate(numbers):
                    if type(number) not in (int, float) or not 0.0 <= number <= most:
                        raise SamplesMismatch(
                            f"step {self.plan.step}, request {span.who.id}: {name}[{index}]={short(number)} came back: it must "
                            f"be a number from 0 to {most}; for non-finite logits a driver returns token -1, probability 0.0"
                        )


EMPTY_CACHE = 0


def next_cache_digest(plan: Plan, samples: tuple[SpanSamples, ...], marks: Sequence[int] | None = None) -> int:
    """Return the cache digest after `plan` returned `samples`: equal only for equal caches.

    It hashes everything the plan put on the device, who owns it, and the sampled tokens. Only
    numbers are hashed: their hashes are the same in every process.

    Args:
        plan: The plan that ran.
        samples: Results of each span of the plan, in order.
        marks: `span.mark()` of each span; None: compute them.
    """
    parts = [*(marks or [span.mark() for span in plan.spans]), *[hash(answer.tokens) for answer in samples]]
    if plan.releases or plan.preemptions or plan.admissions or plan.grants:
        opened = tuple([(a.seq_id, a.shared, -1 if a.slot is None else a.slot) for a in plan.admissions])
        granted = tuple([(grant.seq_id, grant.pages) for grant in plan.grants])
        parts.append(hash((plan.releases, plan.preemptions, opened, granted)))
    return (hash((plan.cache_digest, plan.step, plan.num_pages, *parts)) & 0x3FFFFFFFFFFFFFFF) + 1


class Driver(Protocol):
    """A device that runs plans, the only side effect of decoding. It owns weights and KV bytes; the core owns page numbers."""

    def run(self, plan: Plan) -> Samples:
        """Run `plan` and return its samples.

        Args:
            plan: The plan of a forward pass.

        Raises:
            CacheMismatch: If the device does not hold the KV cache that the plan needs.
        """
        ...


class PendingSamples(Protocol):
    """The samples of a plan that the device runs."""

    def wait(self) -> Samples:
        """Wait for the device and return the samples. Call this method once. Raises CacheMismatch, like `start`."""
        ...


@runtime_checkable
class OverlappingDriver(Protocol):
    """A driver that can start a plan without waiting for its samples, so that the host works meanwhile."""

    def start(self, plan: Plan, owner: int) -> PendingSamples:
        """Start `plan`.

        Args:
            plan: The plan of a forward pass.
            owner: Number of the decode that runs the plan. A driver with one KV cache ignores it.

        Raises:
            CacheMismatch: If the owner does not have the KV cache that the plan needs.
        """
        ...


class Ran(NamedTuple):
    """The samples of a plan that has run."""

    samples: Samples
    """The samples."""

    def wait(self) -> Samples:
        """Return the samples."""
        return self.samples


class _Blocking(NamedTuple):
    """A driver without `start`: a plan runs to its end when it starts."""

    driver: Driver

    def start(self, plan: Plan, owner: int) -> PendingSamples:
        del owner
        return Ran(self.driver.run(plan))


def overlapping(driver: Driver | OverlappingDriver) -> OverlappingDriver:
    """Return a driver with the method `start`.

    Args:
        driver: The driver; it is wrapped if it has no such method.
    """
    return driver if isinstance(driver, OverlappingDriver) else _Blocking(driver)


@runtime_checkable
class CachingDriver(Driver, Protocol):
    """A driver with a KV cache per owner, the number of a decode. A plan runs only on the KV cache of its owner."""

    def fork(self, cache_digest: int, owner: int) -> bool:
        """Copy a KV cache for a new owner. Return whether there was one to copy, and room for it.

        Args:
            cache_digest: Cache digest of the KV cache.
            owner: Number of the new owner.
        """
        ...

    def release(self, owner: int) -> None:
        """Drop the KV cache of an owner, if it has one. Must not wait for a lock, because finalizers call it.

        Args:
            owner: Number of the owner.
        """
        ...


@runtime_checkable
class WeightsDriver(Driver, Protocol):
    """A driver that owns weights, which can be replaced, moved to the host or dropped. No plan may run meanwhile."""

    @property
    def weights_version(self) -> int:
        """Number of updates so far."""
        ...

    @property
    def fingerprint(self) -> str:
        """Fingerprint of the weights (`Spec.fingerprint`)."""
        ...

    def check(self, fingerprint: str | None = None) -> None:
        """Check that plans can run.

        Args:
            fingerprint: Fingerprint of the state to continue; None accepts any.

        Raises:
            DlstepError: If the weights cannot be used now, or have another fingerprint.
        """
        ...

    def update(self, source: Path | Fields) -> int:
        """Replace the weights, drop all KV caches, and return the new version.

        Args:
            source: Folder of a checkpoint, or its tensors by name.

        Raises:
            ValueError: For tensors that do not fit, which changes nothing. If the update fails while writing, no plan can run
                until one succeeds.
        """
        ...

    def sleep(self, level: int) -> tuple[int, int]:
        """Free all KV caches and the memory of the weights. Return the bytes in use before and after.

        Args:
            level: 1: move the weights to the host. 2: drop them.
        """
        ...

    def wake_up(self) -> tuple[int, int]:
        """Allocate what `sleep` freed. Return the bytes in use before and after."""
        ...
