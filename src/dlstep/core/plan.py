"""A plan says everything a device must do in one forward; samples are its answer."""

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
# Numbers, because strings hash differently in every process.
_MODES: dict[Mode, int] = {"encode": 0, "denoise": 1}
_CARRIES: dict[Carry, int] = {"none": 0, "fresh": 1, "held": 2}


@value
class Wants:
    """Statistics that a strategy needs for each sampled position, and how ties are broken.

    `statistics`: `entropy` and `margin` of the distribution sampled from, `noise` a uniformly random id. `best` is how many
    most probable ids are reported with their probabilities. `named` is the largest number of ids that a span names for each
    sampled position, whose probabilities are reported. `ties` says which of equally probable ids greedy sampling takes.
    Probabilities are those of the distribution sampled from, or unless `tempered` those of the plain softmax of the allowed
    ids' logits. With `all_ids`, the mask id and ids beyond the vocabulary are also allowed, as in published likelihoods.
    """

    statistics: frozenset[Statistic] = frozenset()
    ties: Ties = "highest"
    best: int = 0
    tempered: bool = True
    named: int = 0
    all_ids: bool = False

    def covers(self, other: "Wants") -> bool:
        """Whether rows with these statistics hold those of `other`, computed alike."""
        alike = (self.ties, self.tempered, self.all_ids) == (other.ties, other.tempered, other.all_ids)
        enough = self.best >= other.best and self.named >= other.named
        return alike and enough and self.statistics >= other.statistics


PLAIN = Wants()


@value
class Span:
    """Consecutive positions of one request to feed in one forward.

    Rows are `[start, start + len(tokens))`: first `query_only` rows whose keys and values are read from the pages and not
    stored, then `final_rows` rows of final tokens, then the window's. Queries see positions below `end` under `grid`; those
    from the last row on hold what an earlier forward of the window stored.
    `wanted` are the positions (not rows) to sample, ascending, and `draws` the draw number of each. A strategy plans the
    window alone; `joins` lets the core put final rows that are not stored yet in front of it.

    `id` is the caller's and may be used again; `arrival`, the request's arrival number, never is. Devices and `commit` go by
    `arrival`.

    Only some strategies use the rest: `soft` inputs of window rows; `mode`, for networks that encode final tokens and
    denoise the window differently; `carry`, whether the network carries something from this window's forward to the next,
    and whether this one begins (`fresh`) or goes on (`held`); `penalty`, taken from the logit that a wanted position gives
    to the token fed in front of it in its group; `named` ids, equally many for each entry of `wanted` and at most
    `Wants.named`, one entry after the other (-1 is none), whose probabilities are wanted.
    """

    id: int
    arrival: int
    start: int
    tokens: tuple[int, ...]
    end: int
    grid: Grid
    wanted: tuple[int, ...]
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
    named: tuple[int, ...] = ()

    @property
    def stop(self) -> int:
        """First position after the fed ones."""
        return self.start + len(self.tokens)

    def named_width(self, most: int) -> int:
        """How many ids are named for each wanted position.

        Raises DlstepError if they are more than `most`, or not equally many for each.
        """
        wanted, named = len(self.wanted), len(self.named)
        if named > wanted * most or (named and named % wanted):
            raise DlstepError(
                f"request {self.id}: {named} ids are named for {wanted} wanted positions; name equally many for each, at most "
                f"Wants.named={most}"
            )
        return named // wanted if named else 0

    def behind(self, start: int, tokens: tuple[int, ...], *, query_only: int = 0, final_rows: int = 0) -> "Span":
        """The span with rows of `tokens`, from `start` on, put in front of its own."""
        return Span(
            self.id, self.arrival, start, tokens + self.tokens, self.end, self.grid, self.wanted, self.draws, self.params,
            self.seed, query_only, final_rows, self.joins, self.soft, self.mode, self.carry, self.penalty, self.named,
        )  # fmt: skip

    def mark(self) -> int:
        """A number that differs where what the span puts on a device differs; the same in every process.

        `wanted`, `named` and `penalty` only choose what is answered: they leave nothing on the device.
        """
        grid, extra = self.grid, 0
        if self.soft is not None or self.carry != "none" or self.mode != "encode":
            blend = 0 if self.soft is None else self.soft.mark()
            extra = hash((_MODES[self.mode], _CARRIES[self.carry], self.params.temperature, blend))
        return hash(
            (self.arrival, self.start, self.tokens, self.end, grid.origin, grid.size, self.query_only, self.final_rows, extra)
        )


def storing_span(request: Request, start: int, tokens: tuple[int, ...], grid: Grid) -> Span:
    """A span that stores final `tokens` of `request` from `start` on, and wants nothing."""
    stop = start + len(tokens)
    return Span(
        request.id, request.arrival, start, tokens, stop, grid, (), (), request.params, request.seed, final_rows=len(tokens)
    )


def span_of(
    request: Request,
    start: int,
    tokens: tuple[int, ...],
    grid: Grid,
    wanted: tuple[int, ...],
    draws: tuple[int, ...],
    *,
    end: int | None = None,
    joins: bool = True,
    named: tuple[int, ...] = (),
) -> Span:
    """A span of `request` that feeds `tokens` from `start` on and sees everything up to their end, or up to `end`."""
    end = start + len(tokens) if end is None else end
    params, seed = request.params, request.seed
    return Span(request.id, request.arrival, start, tokens, end, grid, wanted, draws, params, seed, joins=joins, named=named)


@dataclass(frozen=True, slots=True)
class Admission:
    """A request, by arrival number, starts to hold pages: `shared` are full final pages of its prefix that it may only read.

    `slot` is where the network keeps what it carries from forward to forward; None if the strategy carries nothing.
    """

    arrival: int
    shared: tuple[int, ...]
    slot: int | None = None


@dataclass(frozen=True, slots=True)
class Grant:
    """Pages appended to the table of the request of this arrival number; nobody else holds them."""

    arrival: int
    pages: tuple[int, ...]


@value
class Plan:
    """One forward, and the changes of ownership that make it possible.

    Order of effects: `releases` (requests that ended since the last plan) and `preemptions`, both arrival numbers, give all
    their pages back, `admissions` open tables, `grants` extend them, `spans` run. `line` names the history of the device this
    plan relies on; `START_LINE` relies on none and takes a place for `num_pages` pages.
    """

    step: int
    line: int
    spans: tuple[Span, ...]
    wants: Wants = PLAIN
    releases: tuple[int, ...] = ()
    preemptions: tuple[int, ...] = ()
    admissions: tuple[Admission, ...] = ()
    grants: tuple[Grant, ...] = ()
    num_pages: int = 0


@value
class Rows:
    """The answer to one span, entry by entry of its `wanted`: sampled token and its probability, plus statistics asked for.

    A row of non-finite logits is token -1, probability 0.0. `entropies` are in nats, `margins` are best minus second-best
    probability. `best_ids` holds the `Wants.best` most probable ids of each entry, one entry after the other and the most
    probable first, `noise` a uniformly random id for each.

    `named_probabilities` has the layout of `Span.named`. Each is the id's probability under the same distribution as
    `probabilities`: after temperature and filters where `Wants.tempered`, so that an id the filters removed has 0.0, and of
    the plain softmax otherwise. -1 has 0.0; without `Wants.all_ids`, the mask id and ids beyond the vocabulary also have 0.0.
    """

    tokens: tuple[int, ...]
    probabilities: tuple[float, ...]
    entropies: tuple[float, ...] = ()
    margins: tuple[float, ...] = ()
    best_ids: tuple[int, ...] = ()
    best_probabilities: tuple[float, ...] = ()
    noise: tuple[int, ...] = ()
    named_probabilities: tuple[float, ...] = ()

    def at(self, rows: Sequence[int], best: int) -> "Rows":
        """Some of the rows, in this order; `best` is how many most probable ids each of them has."""
        within = [index for row in rows for index in range(row * best, row * best + best)]
        return Rows(
            tuple([self.tokens[row] for row in rows]),
            tuple([self.probabilities[row] for row in rows]),
            tuple([self.entropies[row] for row in rows]) if self.entropies else (),
            tuple([self.margins[row] for row in rows]) if self.margins else (),
            tuple([self.best_ids[index] for index in within]),
            tuple([self.best_probabilities[index] for index in within]),
            tuple([self.noise[row] for row in rows]) if self.noise else (),
        )

    def trimmed(self, held: "Wants", wanted: "Wants") -> "Rows":
        """The rows as if less had been asked for: those of `held` as a strategy gets them that asks for `wanted`.

        Named ids are the span's own, so that their probabilities stay.
        """
        ids, probabilities = self.best_ids, self.best_probabilities
        if wanted.best != held.best:
            width = held.best
            kept = [index for index in range(len(ids)) if index % width < wanted.best]
            ids, probabilities = tuple([ids[index] for index in kept]), tuple([probabilities[index] for index in kept])
        return Rows(
            self.tokens,
            self.probabilities,
            self.entropies if "entropy" in wanted.statistics else (),
            self.margins if "margin" in wanted.statistics else (),
            ids,
            probabilities,
            self.noise if "noise" in wanted.statistics else (),
            self.named_probabilities,
        )


NO_ROWS = Rows((), ())


@dataclass(frozen=True, slots=True)
class Samples:
    """The answer to `plan`: `rows[i]` answers `plan.spans[i]`; `line` is that of the state after them.

    Raises SamplesMismatch when the numbers of rows and wanted positions differ, and for what is no probability.
    """

    plan: Plan
    rows: tuple[Rows, ...] = field(default=())
    line: int = field(init=False, repr=False, compare=False)
    any_zero: bool = field(init=False, repr=False, compare=False)
    """Whether some probability is 0.0 (or no more than 2e-305), as that of a failed row is."""

    def __post_init__(self) -> None:
        any_zero = False
        if len(self.rows) != len(self.plan.spans):
            raise SamplesMismatch(
                f"step {self.plan.step}: {len(self.plan.spans)} spans were planned, {len(self.rows)} answers came back"
            )
        for span, rows in zip(self.plan.spans, self.rows, strict=True):
            if not len(span.wanted) == len(rows.tokens) == len(rows.probabilities):
                raise SamplesMismatch(
                    f"step {self.plan.step}, request {span.id}: {len(span.wanted)} positions wanted, "
                    f"{len(rows.tokens)} tokens and {len(rows.probabilities)} probabilities came back"
                )
            numbers = rows.probabilities
            highest = _packer(len(numbers))(*numbers)[_HIGHEST_BYTES]
            if not highest.isascii() or 0x7F in highest:
                self._check_probabilities(span, rows)
            any_zero = any_zero or 0 in highest
        if self.plan.wants != PLAIN:
            self._check_extras()
        object.__setattr__(self, "any_zero", any_zero)
        object.__setattr__(self, "line", next_line(self.plan, self.rows))

    def _check_probabilities(self, span: Span, rows: Rows) -> None:
        for position, number in zip(span.wanted, rows.probabilities, strict=True):
            if not 0.0 <= number < inf:
                raise SamplesMismatch(
                    f"step {self.plan.step}, request {span.id}: position {position} came back with probability {number}, "
                    "which must be finite and not negative; for non-finite logits a driver answers token -1, probability 0.0"
                )

    def _check_extras(self) -> None:
        wants = self.plan.wants
        for span, rows in zip(self.plan.spans, self.rows, strict=True):
            wanted = len(span.wanted)
            for name, numbers, due in (
                ("entropies", rows.entropies, wanted if "entropy" in wants.statistics else 0),
                ("margins", rows.margins, wanted if "margin" in wants.statistics else 0),
                ("noise", rows.noise, wanted if "noise" in wants.statistics else 0),
                ("best_ids", rows.best_ids, wanted * wants.best),
                ("best_probabilities", rows.best_probabilities, wanted * wants.best),
                ("named_probabilities", rows.named_probabilities, wanted * span.named_width(wants.named)),
            ):
                if len(numbers) != due:
                    raise SamplesMismatch(
                        f"step {self.plan.step}, request {span.id}: {due} {name} were wanted, {len(numbers)} came back"
                    )


# The highest byte of a double holds its sign and most of its exponent. A negative number sets the sign, so the byte is not an
# ASCII character; NaN and infinity set all bits of the exponent. Looking at these bytes takes half as long as `min` and `sum`.
_HIGHEST_BYTES = slice(7, None, 8) if byteorder == "little" else slice(0, None, 8)


@cache
def _packer(count: int) -> Callable[..., bytes]:
    """Return a function that packs `count` numbers as native doubles."""
    return Struct(f"{count}d").pack


START_LINE = 0


def next_line(plan: Plan, rows: tuple[Rows, ...]) -> int:
    """The line of the state after `plan` was answered with `rows`, never START_LINE: equal for equal histories only.

    Folded in is all that the plan put on the device and who owns it since, and the sampled tokens. Only numbers are hashed,
    whose hashes are the same in every process.
    """
    parts = [span.mark() for span in plan.spans]
    parts += [hash(answer.tokens) for answer in rows]
    if plan.releases or plan.preemptions or plan.admissions or plan.grants:
        opened = tuple([(a.arrival, a.shared, -1 if a.slot is None else a.slot) for a in plan.admissions])
        granted = tuple([(grant.arrival, grant.pages) for grant in plan.grants])
        parts.append(hash((plan.releases, plan.preemptions, opened, granted)))
    return (hash((plan.line, plan.step, plan.num_pages, *parts)) & 0x3FFFFFFFFFFFFFFF) + 1
