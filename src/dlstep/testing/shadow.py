"""A device made of dictionaries: it runs plans, rejects wrong ones and samples hashes of its input.

Each slot stores two layers of "keys and values". The state of a row is a hash of its token, its
position and all that it sees. A wrong, stale, unwritten or doubly counted slot therefore changes
the samples, and reading a slot with other contents than expected raises at once.
"""

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import KW_ONLY, dataclass, field, replace
from functools import lru_cache, reduce
from math import exp, log
from typing import NamedTuple

from ..core import Admission, CacheMismatch, Ids, Plan, Samples, SampleSpec, Span, SpanSamples, Spec
from ..core.constraint import TokenMask
from ..core.draws import integer, key, mix
from ..core.plan import EMPTY_CACHE, STATISTICS, PendingSamples, Ran


class Slot(NamedTuple):
    """Content of a slot: the request, position and token of its row, and whether it is final.

    `prefix` holds the tokens up to the position, for a window row of a span with `keeps_window`. The
    row is final if none of them changes.
    """

    id: int
    position: int
    token: int
    final: bool
    states: tuple[int, ...]
    prefix: Ids = ()

    def is_final(self, tokens: Sequence[int]) -> bool:
        """Return whether the content is final in a sequence that begins with `tokens`, which include its position."""
        return self.final or self.prefix == tuple(tokens[: self.position + 1])


States = dict[tuple[int, int], int]  # of the rows, by sequence number and position
Layers = dict[tuple[int, int], tuple[int, ...]]  # states of the rows after each layer
Sample = tuple[int, float]  # a token and its probability
BROKEN_CACHE = -1  # no state has this cache digest
# Numbers, because hashes of strings differ between processes.
DENOISED, SPREAD, SCORED, BLIND, DRAFTED, POLICY = 11, 12, 13, 14, 15, 16
LISTED = 8  # number of most probable ids that the device computes if ids are scored


@lru_cache(maxsize=4096)
def _ids(mask: TokenMask, mask_id: int | None) -> Ids:
    """Return the allowed ids, without the mask id, which no device samples."""
    ids = tuple(token for token in mask.ids() if token != mask_id)
    assert ids, f"{mask} allows no id"
    return ids


def _hash(*parts: object) -> int:
    return mix(hash(parts) & 0xFFFFFFFFFFFFFFFF)


@dataclass
class ShadowCache:
    """All that the device holds for one cache digest; ids are sequence numbers."""

    num_pages: int
    cache_digest: int = EMPTY_CACHE
    last: Plan | None = None
    slots: dict[tuple[int, int], Slot] = field(default_factory=dict)
    tables: dict[int, list[int]] = field(default_factory=dict)
    owners: dict[int, int] = field(default_factory=dict)
    carriers: dict[int, int] = field(default_factory=dict)  # request to carry slot
    carried: dict[tuple[int, int], tuple[int, int]] = field(default_factory=dict)  # (slot, draw) to (window start, content)

    def apply_ownership(self, plan: Plan, page_size: int) -> None:
        """Apply the plan's changes in ownership of pages and carry slots."""
        for seq_id in (*plan.releases, *plan.preemptions):
            for page in self.tables.pop(seq_id, ()):
                self.owners[page] -= 1
            self.carriers.pop(seq_id, None)
        for admission in plan.admissions:
            self._admit(admission, page_size)
        for grant in plan.grants:
            for page in grant.pages:
                assert not self.owners.get(page), f"request {grant.seq_id} is granted page {page}, which a request holds"
                for offset in range(page_size):
                    self.slots.pop((page, offset), None)
                self._own(grant.seq_id, page)

    def _admit(self, admission: Admission, page_size: int) -> None:
        assert admission.seq_id not in self.tables, f"request {admission.seq_id} is admitted while it holds pages"
        self.tables[admission.seq_id] = []
        shared = [[self.at((page, offset)) for offset in range(page_size)] for page in admission.shared]
        tokens = [held.token for slots in shared for held in slots]
        for page, slots in zip(admission.shared, shared, strict=True):
            final = all(held.is_final(tokens) for held in slots)
            assert final, f"request {admission.seq_id} shares page {page}, which is not full and final"
            self._own(admission.seq_id, page)
        if admission.slot is not None:
            free = admission.slot not in self.carriers.values()
            assert free, f"request {admission.seq_id} is given carry slot {admission.slot}, which a request holds"
            self.carriers[admission.seq_id] = admission.slot
            self.carried = {place: kept for place, kept in self.carried.items() if place[0] != admission.slot}

    def _own(self, seq_id: int, page: int) -> None:
        table = self.tables[seq_id]
        new = 0 <= page < self.num_pages and page not in table
        assert new, f"request {seq_id} is given page {page}, which it already holds or which does not exist"
        self.owners[page] = self.owners.get(page, 0) + 1
        table.append(page)

    def at(self, slot: tuple[int, int]) -> Slot:
        """Return the content of a slot, which must not be empty."""
        assert slot in self.slots, f"slot {slot} is read before anything was stored in it"
        return self.slots[slot]


@dataclass(eq=False)
class ShadowDriver:
    """A driver without a model, which checks every plan.

    `run` raises AssertionError for a plan that breaks ownership or reads a slot with wrong contents,
    and CacheMismatch for an unknown cache digest.

    Args:
        page_size: Positions of a page, as in the configuration of its states.
        num_pages: Number of pages.
        spec: Facts of the model, as in the configuration of its states.
        eos_share: Fraction of rows that sample end of sequence.
        exact: Without, unfed window positions may hold what an earlier pass of the sequence stored
            for another token.
        places: Number of KV caches that the device keeps. A new one replaces the least recently
            used.
        blind: Fraction of positions whose samples depend on position and draw number only, so that
            different prompts get equal samples there.
    """

    page_size: int
    num_pages: int
    spec: Spec
    eos_share: float = 0.05
    _: KW_ONLY
    exact: bool = True
    places: int = 1
    blind: float = 0.0

    layers = 2

    def __post_init__(self) -> None:
        self.caches: dict[int, ShadowCache] = {}  # by owner, least recently used first
        self.now = ShadowCache(self.num_pages)

    def run(self, plan: Plan, owner: int = 0) -> Samples:
        """Return the samples of a plan: a function of what its rows could see.

        Args:
            plan: The plan of a forward pass.
            owner: Number of the decode that runs the plan.

        Raises:
            AssertionError: If the plan breaks ownership or reads a slot with wrong contents.
            CacheMismatch: If the owner does not have the KV cache that the plan needs.
        """
        self.now = cache = self._cache_of(plan, owner)
        if plan.cache_digest == EMPTY_CACHE or plan != cache.last:
            # If this pass fails, no plan may continue from it.
            cache.cache_digest, cache.last = BROKEN_CACHE, None
            cache.apply_ownership(plan, self.page_size)
        samples = Samples(plan, self._forward(plan))
        cache.last, cache.cache_digest = plan, samples.cache_digest
        return samples

    def start(self, plan: Plan, owner: int = 0) -> PendingSamples:
        """Run a plan, as `run` does.

        Args:
            plan: The plan of a forward pass.
            owner: Number of the decode that runs the plan.
        """
        return Ran(self.run(plan, owner))

    def fork(self, cache_digest: int, owner: int) -> bool:
        """Copy a KV cache for a new owner. Return whether there was one to copy, and room for it.

        Args:
            cache_digest: Cache digest of the KV cache.
            owner: Number of the new owner.
        """
        cache = next((cache for cache in self.caches.values() if cache.cache_digest == cache_digest), None)
        if cache is None or len(self.caches) >= self.places:
            return False
        self.caches[owner] = deepcopy(cache)
        return True

    def release(self, owner: int) -> None:
        """Drop the KV cache of an owner, if it has one.

        Args:
            owner: Number of the owner.
        """
        self.caches.pop(owner, None)

    def _cache_of(self, plan: Plan, owner: int) -> ShadowCache:
        """Return the KV cache that `plan` continues, repeats or begins."""
        found = ShadowCache(plan.num_pages) if plan.cache_digest == EMPTY_CACHE else self.caches.get(owner)
        if found is None or (plan.cache_digest != found.cache_digest and plan != found.last):
            raise CacheMismatch(f"owner {owner} has no KV cache of digest {plan.cache_digest}: rebuild(state) begins a new one")
        found.num_pages = max(found.num_pages, plan.num_pages)
        self.release(owner)
        while len(self.caches) >= self.places:
            del self.caches[next(iter(self.caches))]
        self.caches[owner] = found
        return found

    def slot(self, seq_id: int, position: int) -> tuple[int, int]:
        """Return page and offset of a position of a live request.

        Args:
            seq_id: Sequence number of the request.
            position: A position of the request.

        Raises:
            AssertionError: If the request has no page for the position.
        """
        table, (index, offset) = self.now.tables.get(seq_id, ()), divmod(position, self.page_size)
        assert index < len(table), f"request {seq_id} has no page for position {position}"
        return table[index], offset

    def _forward(self, plan: Plan) -> tuple[SpanSamples, ...]:
        spans = plan.spans
        states: States = {}
        for span in spans:
            states |= self._embeddings(span)
        layers: Layers = {place: (state,) for place, state in states.items()}
        for layer in range(self.layers):
            for span in spans:
                self._store(span, layers)
            for span in spans:
                states |= self._attend(span, layer, states)
            layers = {place: (*layers[place], states[place]) for place in layers}
        for span in spans:
            if span.rows.carry != "none":
                kept = _hash(*(states[span.who.seq_id, position] for position in range(span.rows.start, span.rows.stop)))
                self.now.carried[self._carrier(span), span.wanted.draws[0]] = (span.rows.start, kept)
        return tuple(self._sample(span, states, plan.sample_spec) for span in spans)

    def _carrier(self, span: Span) -> int:
        carries = span.who.seq_id in self.now.carriers and span.wanted.sampled
        assert carries, f"request {span.who.seq_id} carries state and holds no slot, or samples nothing"
        return self.now.carriers[span.who.seq_id]

    def _embeddings(self, span: Span) -> States:
        """Return the first layer's input of each row: position, token, soft and carried input."""
        rows, seq_id = span.rows, span.who.seq_id
        final_rows = rows.query_only + rows.final_rows
        assert not rows.final_rows or rows.mode == "encode", f"request {seq_id} stores final rows in mode {rows.mode}"
        assert self.spec.mask_id not in rows.tokens[:final_rows], f"request {seq_id} feeds a mask as a final token of {span}"
        at = rows.positions or range(rows.start, rows.stop)
        found = {
            place: _hash(position, token)
            for place, (position, token) in enumerate(zip(at, rows.tokens, strict=True), rows.start)
        }
        if (soft := rows.soft) is not None:
            for index, position in enumerate(soft.positions):
                in_window = rows.start + final_rows <= position < rows.stop
                assert in_window, f"request {seq_id} feeds position {position} softly, which is no row of its window"
                part = slice(index * soft.width, (index + 1) * soft.width)
                found[position] = _hash(found[position], soft.ids[part], soft.probabilities[part])
        marks: list[int] = []
        if rows.carry == "held":
            start, kept = self.now.carried.get((self._carrier(span), span.wanted.draws[0] - 1), (-1, 0))
            assert start == rows.start, f"request {seq_id} continues state that no pass carried to position {rows.start}"
            marks.append(kept)
        marks += [DRAFTED] * rows.draft + [DENOISED] * (rows.mode == "denoise")
        return {(seq_id, position): reduce(_hash, marks, state) for position, state in found.items()}

    def _store(self, span: Span, layers: Layers) -> None:
        """Store the rows of `span` with the states up to this layer."""
        rows, seq_id = span.rows, span.who.seq_id
        final_stop = rows.start + rows.query_only + rows.final_rows
        before_span = range(rows.start if span.storing.keeps_window else 0)
        tokens = tuple(self.now.at(self.slot(seq_id, position)).token for position in before_span) + rows.tokens
        for row in range(rows.query_only, len(rows.tokens)):
            position = rows.start + row
            slot = self.slot(seq_id, position)
            shared = f"request {seq_id} stores position {position} to page {slot[0]}, which it shares"
            assert self.now.owners[slot[0]] == 1, shared
            final, prefix = position < final_stop, tokens[: position + 1] if span.storing.keeps_window else ()
            own = rows.positions[row] if rows.positions else position
            held = Slot(seq_id, own, rows.tokens[row], final, layers[seq_id, position], prefix)
            before = self.now.slots.get(slot)
            kept = before is None or not before.final or (before.position, before.token) == (position, held.token)
            assert kept, f"request {seq_id} overwrites {before} with {held}"
            self.now.slots[slot] = held

    def _attend(self, span: Span, layer: int, states: States) -> States:
        """Return the new state of each row: a hash of the old one and all that its group sees."""
        rows, seq_id = span.rows, span.who.seq_id
        first_fed = rows.start + rows.query_only
        seen: list[tuple[int, int]] = []  # group and state of each visible position
        tokens: list[int] = []
        for position in range(rows.end):
            held = self.now.at(self.slot(seq_id, position))
            fed, own = first_fed <= position < rows.stop, held.id == seq_id
            due = rows.positions[position - rows.start] if fed and rows.positions else position
            assert held.position == due, f"request {seq_id} reads position {due}, the slot holds {held}"
            tokens.append(held.token)
            if fed:
                assert own, f"request {seq_id} reads {held} of another request"
            else:
                known = held.is_final(tokens) or (own and not self.exact)
                assert known, f"request {seq_id} reads {held}, which is not final and not fed"
            seen.append((rows.grid.group(position), held.states[layer]))
        new: States = {}
        digests: dict[int, int] = {}
        for position in range(rows.start, rows.stop):
            group = rows.grid.group(position)
            if group not in digests:
                digests[group] = _hash(*(state for other, state in seen if other <= group))
            new[seq_id, position] = _hash(layer, states[seq_id, position], digests[group])
        return new

    def _sample(self, span: Span, states: States, spec: SampleSpec) -> SpanSamples:
        """Return the rows of a span; like a device's noise, they depend on the draw number."""
        wanted, seq_id = span.wanted, span.who.seq_id
        drawn, best = list[Sample](), list[Sample]()
        spread, scored, policy = list[float](), list[float](), list[float]()
        noise: list[int] = []
        width = wanted.scored_width
        count = max(spec.best, LISTED) if width else spec.best
        for number, (position, draw) in enumerate(zip(wanted.sampled, wanted.draws, strict=True)):
            at = position - wanted.row_shift(self.spec.head_shift)
            row = span.rows.start + span.rows.index(at)
            assert span.rows.start <= row < span.rows.stop, (
                f"request {seq_id} samples position {position} but does not feed row {row}"
            )
            seed = span.who.seed if span.who.params.temperature else 0
            blind = _hash(position, BLIND) / 2**64 < self.blind
            parts = (0 if blind else states[seq_id, row], position, draw, seed, wanted.penalty)
            allowed = _ids(wanted.masks[number], self.spec.mask_id) if wanted.masks else ()
            answer = self._choice(*parts, allowed=allowed)
            listed = self._listed(parts[:3], count, None if seed else answer, allowed)
            if "noise" in spec.statistics:
                noise.append(integer(key(span.who.seed, position, draw, "renoise"), self.spec.vocab_size))
            drawn.append(answer)
            best += listed[: spec.best]
            spread.append(_hash(*parts, SPREAD) / 2**64)
            ids = wanted.scored_ids[number * width : (number + 1) * width]
            measured = (answer, *listed[: spec.best])
            # In place of logarithms in the plain softmax: numbers that depend on no sampling parameter.
            plain = {token: -_hash(*parts[:3], POLICY, token) / 2**64 for token in (*dict(measured), *ids)}
            policy += [
                spread[-1],
                *[log(max(chance, 1e-30)) for _, chance in measured],
                *[plain[token] for token, _ in measured],
            ]
            known = dict([*listed[::-1], answer])
            known |= {token: exp(plain[token]) for token in ids if spec.all_ids and token >= 0}
            scored += [known[token] if token in known else self._chance(token, 1 - answer[1], *parts[:3]) for token in ids]

        (tokens, chances), (best_ids, best_chances) = (
            zip(*pairs, strict=True) if pairs else ((), ()) for pairs in (drawn, best)
        )
        optional = tuple(spread), tuple(spread), best_ids, best_chances, tuple(noise), tuple(scored), tuple(policy)
        return SpanSamples(tokens, chances, *optional).trimmed(replace(spec, statistics=STATISTICS), spec)

    def _listed(self, parts: tuple[object, ...], count: int, first: Sample | None, allowed: Ids) -> list[Sample]:
        """Return the `count` + 1 most probable ids, falling; greedy sampling gives `first`."""
        first = self._choice(*parts, 1, allowed=allowed) if first is None else first
        others = enumerate([self._choice(*parts, rank, allowed=allowed) for rank in range(2, count + 2)], 1)
        possible = len(allowed) or count + 1  # further ids have probability 0
        return [
            first,
            *((token, first[1] * chance / 2**rank if rank < possible else 0.0) for rank, (token, chance) in others),
        ]

    def _chance(self, token: int, left: float, *parts: object) -> float:
        """Return the probability of an id neither drawn nor listed; all together at most `left`."""
        allowed = 0 <= token < self.spec.vocab_size and token != self.spec.mask_id
        return left * _hash(*parts, SCORED, token) / 2**64 / self.spec.vocab_size if allowed else 0.0

    def _choice(self, *parts: object, allowed: Ids = ()) -> Sample:
        """Return a token, of `allowed` if there are any, and its probability, drawn for `parts`."""
        token, chance, end = (_hash(*parts, purpose) for purpose in range(3))
        if allowed:
            return allowed[token % len(allowed)], (chance / 2**64) ** 0.25
        token %= self.spec.vocab_size
        if token == self.spec.mask_id or end / 2**64 < self.eos_share:
            token = self.spec.eos_ids[0]
        return token, (chance / 2**64) ** 0.25
