"""A device made of dictionaries: it follows plans, refuses every lie in them, and answers with hashes of what it saw.

Two layers of "keys and values" are kept per slot. The state of a row is a hash of its token, position and everything it
sees, so a wrong, stale, unwritten or doubly counted slot changes the answer, and a slot that does not hold what it should
raises at once.
"""

from dataclasses import dataclass

from ..core import LineMismatch, Plan, Rows, Samples, Span, Spec, next_line
from ..core.draws import mix
from ..core.plan import START_LINE


class ShadowError(AssertionError):
    """A plan asks for something that a device could not do right."""


@dataclass(frozen=True, slots=True)
class Slot:
    """What one slot holds: whose row stored it, for which position and token, and whether as final."""

    id: int
    position: int
    token: int
    final: bool
    states: tuple[int, ...]


def _hash(*parts: object) -> int:
    return mix(hash(parts) & 0xFFFFFFFFFFFFFFFF)


class ShadowDriver:
    """Runs plans without a model; `page_size` and `spec` must be those of the states it serves.

    `eos_share` of the rows say end of sequence. `run` raises ShadowError for a plan that breaks a rule of ownership or reads
    a slot that does not hold what it should, LineMismatch for one that relies on another history.
    """

    layers = 2

    def __init__(self, page_size: int, num_pages: int, spec: Spec, eos_share: float = 0.05) -> None:
        self.page_size, self.num_pages, self.eos_share = page_size, num_pages, eos_share
        self.vocab_size, self.eos_id, self.mask_id = spec.vocab_size, spec.eos_ids[0], spec.mask_id
        self.head_shift = spec.head_shift
        self.line = START_LINE
        self.last: Plan | None = None
        self.slots: dict[tuple[int, int], Slot] = {}
        self.tables: dict[int, list[int]] = {}
        self.owners: dict[int, int] = {}

    def run(self, plan: Plan) -> Samples:
        """The samples of `plan`: a function of what its rows could see."""
        if plan.line == START_LINE:
            self.slots, self.tables, self.owners = {}, {}, {}
        elif plan != self.last:
            if plan.line != self.line:
                raise LineMismatch(f"the plan continues line {plan.line}, the device is on line {self.line}: rebuild(state)")
            self._transfer(plan)
        if plan.line == START_LINE:
            self._transfer(plan)
        samples = Samples(plan, self._forward(plan.spans))
        self.last, self.line = plan, next_line(samples)
        return samples

    def _transfer(self, plan: Plan) -> None:
        for request_id in (*plan.releases, *plan.preemptions):
            for page in self.tables.pop(request_id, ()):
                self.owners[page] -= 1
        for admission in plan.admissions:
            if admission.id in self.tables:
                raise ShadowError(f"request {admission.id} is admitted while it holds pages")
            self.tables[admission.id] = []
            for page in admission.shared:
                self._own(admission.id, page, shared=True)
        for grant in plan.grants:
            for page in grant.pages:
                self._own(grant.id, page, shared=False)

    def _own(self, request_id: int, page: int, shared: bool) -> None:
        table = self.tables[request_id]
        if not 0 <= page < self.num_pages or page in table:
            raise ShadowError(f"request {request_id} is given page {page}, which it holds or which does not exist")
        if not shared and self.owners.get(page):
            raise ShadowError(f"request {request_id} is granted page {page}, which somebody holds")
        if shared and not all(self._at((page, offset)).final for offset in range(self.page_size)):
            raise ShadowError(f"request {request_id} shares page {page}, which is not full and final")
        self.owners[page] = self.owners.get(page, 0) + 1
        if not shared:
            for offset in range(self.page_size):
                self.slots.pop((page, offset), None)
        table.append(page)

    def _at(self, slot: tuple[int, int]) -> Slot:
        try:
            return self.slots[slot]
        except KeyError:
            raise ShadowError(f"slot {slot} is read before anything was stored in it") from None

    def slot(self, request_id: int, position: int) -> tuple[int, int]:
        """Page and offset of a position of a live request."""
        table = self.tables.get(request_id)
        if table is None or position // self.page_size >= len(table):
            raise ShadowError(f"request {request_id} has no page for position {position}")
        return table[position // self.page_size], position % self.page_size

    def _forward(self, spans: tuple[Span, ...]) -> tuple[Rows, ...]:
        states = {(span.id, span.start + row): self._embedding(span, row) for span in spans for row in range(len(span.tokens))}
        history: dict[tuple[int, int], tuple[int, ...]] = {place: (state,) for place, state in states.items()}
        for layer in range(self.layers):
            for span in spans:
                self._store(span, history)
            for span in spans:
                states |= self._attend(span, layer, states)
            history = {place: (*history[place], states[place]) for place in history}
        return tuple(self._sample(span, states) for span in spans)

    def _embedding(self, span: Span, row: int) -> int:
        if row < span.query_only + span.final_rows and span.tokens[row] == self.mask_id:
            raise ShadowError(f"request {span.id} feeds a mask as the final token of position {span.start + row}")
        return _hash(span.start + row, span.tokens[row])

    def _store(self, span: Span, history: dict[tuple[int, int], tuple[int, ...]]) -> None:
        """Store the rows of `span` as far as this layer knows them."""
        final_stop = span.start + span.query_only + span.final_rows
        for row in range(span.query_only, len(span.tokens)):
            position = span.start + row
            slot = self.slot(span.id, position)
            if self.owners[slot[0]] != 1:
                raise ShadowError(f"request {span.id} stores position {position} to page {slot[0]}, which it shares")
            held = Slot(span.id, position, span.tokens[row], position < final_stop, history[span.id, position])
            before = self.slots.get(slot)
            if before is not None and before.final and (before.position, before.token) != (position, held.token):
                raise ShadowError(f"request {span.id} overwrites {before} with {held}")
            self.slots[slot] = held

    def _attend(self, span: Span, layer: int, states: dict[tuple[int, int], int]) -> dict[tuple[int, int], int]:
        """The new state of each row: its old one and all that its group sees."""
        first_fed = span.start + span.query_only
        seen: list[tuple[int, int]] = []  # group and state of each visible position
        for position in range(span.end):
            held = self._at(self.slot(span.id, position))
            if held.position != position:
                raise ShadowError(f"request {span.id} reads position {position}, the slot holds {held}")
            if position < first_fed and not held.final:
                raise ShadowError(f"request {span.id} reads {held}, which is not final and not fed")
            if position >= first_fed and held.id != span.id:
                raise ShadowError(f"request {span.id} reads {held} of another request")
            seen.append((span.grid.group(position), held.states[layer]))
        new: dict[tuple[int, int], int] = {}
        digests: dict[int, int] = {}
        for row in range(len(span.tokens)):
            position = span.start + row
            group = span.grid.group(position)
            if group not in digests:
                digests[group] = _hash(*(state for other, state in seen if other <= group))
            place = (span.id, position)
            new[place] = _hash(layer, states[place], digests[group])
        return new

    def _sample(self, span: Span, states: dict[tuple[int, int], int]) -> Rows:
        """Token and probability of each wanted position; both depend on the draw number, as a device's noise would."""
        tokens: list[int] = []
        probabilities: list[float] = []
        for position, draw in zip(span.wanted, span.draws, strict=True):
            row = position - self.head_shift
            if row < span.start:
                raise ShadowError(f"request {span.id} wants position {position} but does not feed row {row}")
            seed = span.seed if span.params.temperature else 0
            token, chance, end = (_hash(states[span.id, row], position, draw, seed, purpose) for purpose in range(3))
            token %= self.vocab_size
            if token == self.mask_id or end / 2**64 < self.eos_share:
                token = self.eos_id
            tokens.append(token)
            probabilities.append((chance / 2**64) ** 0.25)
        return Rows(tuple(tokens), tuple(probabilities))
