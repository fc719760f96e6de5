"""A plan describes one forward pass completely; samples are its results."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache
from math import inf
from struct import Struct
from sys import byteorder
from typing import Literal

from .errors import DlstepError, SamplesMismatch
from .grid import Grid
from .request import Request, SamplingParams
from .soft import SoftTokens
from .values import value

Statistic = Literal["entropy", "margin", "noise"]
Ties = Literal["highest", "lowest"]
Mode = Literal["encode", "denoise"]
Carry = Literal["none", "fresh", "held"]
# Numbers, because hashes of strings differ between processes.
_MODES: dict[Mode, int] = {"encode": 0, "denoise": 1}
_CARRIES: dict[Carry, int] = {"none": 0, "fresh": 1, "held": 2}


@value
class SampleSpec:
    """Statistics that a strategy needs for each sampled position, and its tie-breaking.

    - `statistics`: `entropy` and `margin` of the sampled distribution; `noise`, a uniform random id
    - `ties`: which of equally probable ids greedy sampling selects
    - `best`: how many of the most probable ids to report with their probabilities
    - `tempered`: report probabilities after temperature and filters, otherwise of the plain softmax
    - `scored`: the most ids per sampled position whose probabilities a span may request
    - `all_ids`: also allow the mask id and ids beyond the vocabulary, as published likelihoods do
    """

    statistics: frozenset[Statistic] = frozenset()
    ties: Ties = "highest"
    best: int = 0
    tempered: bool = True
    scored: int = 0
    all_ids: bool = False

    def covers(self, other: "SampleSpec") -> bool:
        """Return whether rows with these statistics contain those of `other`."""
        alike = (self.ties, self.tempered, self.all_ids) == (other.ties, other.tempered, other.all_ids)
        enough = self.best >= other.best and self.scored >= other.scored
        return alike and enough and self.statistics >= other.statistics


PLAIN = SampleSpec()


@value
class Span:
    """Consecutive positions of one request to feed in one forward pass.

    The rows are `[start, start + len(tokens))`: first `query_only` rows, which read their keys and
    values from the pages and store nothing; then `final_rows` rows of final tokens; then the
    window. Queries see positions below `end` under `grid`; positions from the last row to `end`
    hold what an earlier pass of the window stored. `sampled` are the positions (not rows) to
    sample, ascending; `draws` has the draw number of each. A strategy plans only the window; with
    `joins`, the core may put unstored final rows before it. `seq_id` is unique; a caller may reuse
    an `id`.

    Only some strategies use the other fields:

    - `soft`: blended inputs of window rows
    - `mode`: for networks that encode final tokens and denoise the window differently
    - `carry`: whether a pass starts (`fresh`) or continues (`held`) state carried between passes
    - `penalty`: subtracted at sampled positions from the logit of the previous token in the group
    - `scored_ids`: ids to report probabilities of, equally many per sampled position in turn; -1
      is none
    """

    id: int
    seq_id: int
    start: int
    tokens: tuple[int, ...]
    end: int
    grid: Grid
    sampled: tuple[int, ...]
    draws: tuple[int, ...]
    params: SamplingParams
    seed: int
    query_only: int = 0
    final_rows: int = 0
    joins: bool = True
    soft: SoftTokens | None = None
    mode: Mode = "encode"
    carry: Carry = "none"
    penalty: float = 0.0
    scored_ids: tuple[int, ...] = ()

    @property
    def stop(self) -> int:
        """First position after the fed ones."""
        return self.start + len(self.tokens)

    def scored_width(self, most: int) -> int:
        """Return how many ids are scored for each sampled position.

        Raises DlstepError if there are more than `most`, or not equally many for each.
        """
        sampled, scored = len(self.sampled), len(self.scored_ids)
        if scored > sampled * most or (scored and scored % sampled):
            raise DlstepError(
                f"request {self.id}: {scored} scored ids for {sampled} sampled positions; give equally many for each, at most "
                f"SampleSpec.scored={most}"
            )
        return scored // sampled if scored else 0

    def with_prefix(self, start: int, tokens: tuple[int, ...], *, query_only: int = 0, final_rows: int = 0) -> "Span":
        """Return the span with rows of `tokens`, from `start` on, before its own rows."""
        return Span(
            self.id, self.seq_id, start, tokens + self.tokens, self.end, self.grid, self.sampled, self.draws, self.params,
            self.seed, query_only, final_rows, self.joins, self.soft, self.mode, self.carry, self.penalty, self.scored_ids,
        )  # fmt: skip

    def mark(self) -> int:
        """Return a hash of everything that the span writes to the device, equal in every process.

        `sampled`, `scored_ids` and `penalty` only affect the results, so they are left out.
        """
        grid, extra = self.grid, 0
        if self.soft is not None or self.carry != "none" or self.mode != "encode":
            blend = 0 if self.soft is None else self.soft.mark()
            extra = hash((_MODES[self.mode], _CARRIES[self.carry], self.params.temperature, blend))
        return hash(
            (self.seq_id, self.start, self.tokens, self.end, grid.origin, grid.size, self.query_only, self.final_rows, extra)
        )


def storing_span(request: Request, start: int, tokens: tuple[int, ...], grid: Grid) -> Span:
    """Return a span that stores final `tokens` of `request` from `start` on and samples nothing."""
    stop = start + len(tokens)
    return Span(
        request.id, request.seq_id, start, tokens, stop, grid, (), (), request.params, request.seed, final_rows=len(tokens)
    )


def span_of(
    request: Request,
    start: int,
    tokens: tuple[int, ...],
    grid: Grid,
    sampled: tuple[int, ...],
    draws: tuple[int, ...],
    *,
    end: int | None = None,
    joins: bool = True,
    scored_ids: tuple[int, ...] = (),
) -> Span:
    """Return a span that feeds `tokens` from `start` on and sees positions below `end`."""
    end = start + len(tokens) if end is None else end
    params, seed = request.params, request.seed
    return Span(
        request.id, request.seq_id, start, tokens, end, grid, sampled, draws, params, seed, joins=joins, scored_ids=scored_ids
    )


@dataclass(frozen=True, slots=True)
class Admission:
    """The start of a request's page table: `shared` are full final pages of its prefix, read-only.

    `slot` is where the device keeps state between passes; None if the strategy carries no state.
    """

    seq_id: int
    shared: tuple[int, ...]
    slot: int | None = None


@dataclass(frozen=True, slots=True)
class Grant:
    """Pages appended to the page table of the request with this sequence number, its only owner."""

    seq_id: int
    pages: tuple[int, ...]


@value
class Plan:
    """One forward pass, and the ownership changes that it needs.

    Effects in order: `releases` (requests ended since the last plan) and `preemptions`, both
    sequence numbers, release all pages, `admissions` open page tables, `grants` extend them,
    `spans` run. `cache_digest` is that of the KV cache that the plan needs; EMPTY_CACHE needs none,
    and allocates `num_pages`.
    """

    step: int
    cache_digest: int
    spans: tuple[Span, ...]
    sample_spec: SampleSpec = PLAIN
    releases: tuple[int, ...] = ()
    preemptions: tuple[int, ...] = ()
    admissions: tuple[Admission, ...] = ()
    grants: tuple[Grant, ...] = ()
    num_pages: int = 0


@value
class SpanSamples:
    """Results of one span, one entry per sampled position: token, probability, and statistics.

    A row with non-finite logits has token -1 and probability 0.0. `entropies` are in nats;
    `margins` are best minus second-best probability. `best_ids` holds the
    `SampleSpec.best` most probable ids of each entry in turn, the most probable first; `noise` one
    random id per entry.

    `scored_probabilities` has the layout of `Span.scored_ids` and the distribution of `SampleSpec`:
    with `tempered`, an id that the filters removed has 0.0. So does -1 and, without `all_ids`, the
    mask id and ids beyond the vocabulary.
    """

    tokens: tuple[int, ...]
    probabilities: tuple[float, ...]
    entropies: tuple[float, ...] = ()
    margins: tuple[float, ...] = ()
    best_ids: tuple[int, ...] = ()
    best_probabilities: tuple[float, ...] = ()
    noise: tuple[int, ...] = ()
    scored_probabilities: tuple[float, ...] = ()

    def at(self, rows: Sequence[int], best: int) -> "SpanSamples":
        """Return these rows in this order; `best` is the number of most probable ids per row."""
        within = [index for row in rows for index in range(row * best, row * best + best)]
        return SpanSamples(
            tuple([self.tokens[row] for row in rows]),
            tuple([self.probabilities[row] for row in rows]),
            tuple([self.entropies[row] for row in rows]) if self.entropies else (),
            tuple([self.margins[row] for row in rows]) if self.margins else (),
            tuple([self.best_ids[index] for index in within]),
            tuple([self.best_probabilities[index] for index in within]),
            tuple([self.noise[row] for row in rows]) if self.noise else (),
        )

    def trimmed(self, given: "SampleSpec", needed: "SampleSpec") -> "SpanSamples":
        """Return rows made for `given` as a strategy that needs `needed` would get them.

        Scored ids belong to the span, so their probabilities stay.
        """
        ids, probabilities = self.best_ids, self.best_probabilities
        if needed.best != given.best:
            width = given.best
            kept = [index for index in range(len(ids)) if index % width < needed.best]
            ids, probabilities = tuple([ids[index] for index in kept]), tuple([probabilities[index] for index in kept])
        return SpanSamples(
            self.tokens,
            self.probabilities,
            self.entropies if "entropy" in needed.statistics else (),
            self.margins if "margin" in needed.statistics else (),
            ids,
            probabilities,
            self.noise if "noise" in needed.statistics else (),
            self.scored_probabilities,
        )


NO_SAMPLES = SpanSamples((), ())


@dataclass(frozen=True, slots=True)
class Samples:
    """Results of `plan`: `rows[i]` belongs to `plan.spans[i]`; `cache_digest` is the next state's.

    Raises SamplesMismatch for a wrong number of rows or an invalid probability.
    """

    plan: Plan
    rows: tuple[SpanSamples, ...] = field(default=())
    cache_digest: int = field(init=False, repr=False, compare=False)
    any_zero: bool = field(init=False, repr=False, compare=False)
    """Whether a probability is 0.0 (or at most 2e-305), as in a failed row."""

    def __post_init__(self) -> None:
        any_zero = False
        if len(self.rows) != len(self.plan.spans):
            raise SamplesMismatch(
                f"step {self.plan.step}: {len(self.plan.spans)} spans were planned, {len(self.rows)} results came back"
            )
        for span, rows in zip(self.plan.spans, self.rows, strict=True):
            if not len(span.sampled) == len(rows.tokens) == len(rows.probabilities):
                raise SamplesMismatch(
                    f"step {self.plan.step}, request {span.id}: {len(span.sampled)} sampled positions, "
                    f"{len(rows.tokens)} tokens and {len(rows.probabilities)} probabilities came back"
                )
            numbers = rows.probabilities
            highest = _packer(len(numbers))(*numbers)[_HIGHEST_BYTES]
            if not highest.isascii() or 0x7F in highest:
                self._check_probabilities(span, rows)
            any_zero = any_zero or 0 in highest
        if self.plan.sample_spec != PLAIN:
            self._check_extras()
        object.__setattr__(self, "any_zero", any_zero)
        object.__setattr__(self, "cache_digest", next_cache_digest(self.plan, self.rows))

    def _check_probabilities(self, span: Span, rows: SpanSamples) -> None:
        for position, number in zip(span.sampled, rows.probabilities, strict=True):
            if not 0.0 <= number < inf:
                raise SamplesMismatch(
                    f"step {self.plan.step}, request {span.id}: position {position} came back with probability {number}, "
                    "which must be finite and not negative; for non-finite logits a driver returns token -1, probability 0.0"
                )

    def _check_extras(self) -> None:
        spec = self.plan.sample_spec
        for span, rows in zip(self.plan.spans, self.rows, strict=True):
            sampled = len(span.sampled)
            for name, numbers, due in (
                ("entropies", rows.entropies, sampled if "entropy" in spec.statistics else 0),
                ("margins", rows.margins, sampled if "margin" in spec.statistics else 0),
                ("noise", rows.noise, sampled if "noise" in spec.statistics else 0),
                ("best_ids", rows.best_ids, sampled * spec.best),
                ("best_probabilities", rows.best_probabilities, sampled * spec.best),
                ("scored_probabilities", rows.scored_probabilities, sampled * span.scored_width(spec.scored)),
            ):
                if len(numbers) != due:
                    raise SamplesMismatch(
                        f"step {self.plan.step}, request {span.id}: {due} {name} were requested, {len(numbers)} came back"
                    )


# The highest byte of a double holds its sign and most of its exponent. A negative number sets the
# top bit, so the byte is not ASCII; NaN and infinity make it 0x7F. Checking these bytes takes half
# as long as `min` and `sum`.
_HIGHEST_BYTES = slice(7, None, 8) if byteorder == "little" else slice(0, None, 8)


@cache
def _packer(count: int) -> Callable[..., bytes]:
    """Return a function that packs `count` numbers as native doubles."""
    return Struct(f"{count}d").pack


EMPTY_CACHE = 0


def next_cache_digest(plan: Plan, rows: tuple[SpanSamples, ...]) -> int:
    """Return the cache digest after `plan` returned `rows`: equal only for equal caches.

    It hashes everything the plan put on the device, who owns it, and the sampled tokens. Only
    numbers are hashed: their hashes are the same in every process.
    """
    parts = [span.mark() for span in plan.spans]
    parts += [hash(answer.tokens) for answer in rows]
    if plan.releases or plan.preemptions or plan.admissions or plan.grants:
        opened = tuple([(a.seq_id, a.shared, -1 if a.slot is None else a.slot) for a in plan.admissions])
        granted = tuple([(grant.seq_id, grant.pages) for grant in plan.grants])
        parts.append(hash((plan.releases, plan.preemptions, opened, granted)))
    return (hash((plan.cache_digest, plan.step, plan.num_pages, *parts)) & 0x3FFFFFFFFFFFFFFF) + 1
