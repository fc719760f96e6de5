"""Histories: what a device knows of each line of plans, in pages of their own. None can read what another stored."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch

from ..core import START_LINE, DlstepError, LineMismatch, Plan
from ..models.networks import Memory
from .executor import Executor
from .lowering import Placed
from .tables import CarrySlots, PageTables

FREE_LINE = -1  # no state is on it


@dataclass(eq=False)
class History:
    """Keys and values of one line of plans, and who owns them.

    `line` is that of the state that may go on from here, `last` the plan that led there, which may be run again, `placed` the
    rows of its last forward. `executor` runs forwards over this memory.
    """

    num_pages: int
    memory: Memory
    executor: Executor
    tables: PageTables
    slots: CarrySlots
    line: int = FREE_LINE
    last: Plan | None = None
    placed: Placed | None = None

    def follow(self, plan: Plan) -> None:
        """Take over the ownership of pages and carry slots as `plan` has it, once.

        Should the forward fail, only the same plan may go on from here, or one that starts a line.
        """
        if plan.line != START_LINE and (plan is self.last or plan == self.last):
            return
        self.line, self.last = FREE_LINE, None
        if plan.line == START_LINE:
            self.tables.clear()
            self.slots.clear()
        self.tables.apply(plan)
        self.slots.apply(plan)
        self.last = plan

    def copy(self, other: "History") -> None:
        """Hold what `other` holds, which has as many pages."""
        self.memory.copy(other.memory)
        self.tables.copy(other.tables)
        self.slots.slots = dict(other.slots.slots)
        self.line, self.last, self.placed = other.line, other.last, None


class Histories:
    """One history for the states of `main.num_pages` pages, and up to `most` others, made when they are needed.

    A new line takes the main one or, for another number of pages, a free one, then a new one, then the one that was not used
    for longest. Whoever was on that gets a LineMismatch from its next plan.
    """

    def __init__(self, main: History, make: Callable[[int], History], most: int) -> None:
        self.main, self._make, self._most = main, make, most
        self._others: list[History] = []  # not used for longest first

    def __iter__(self) -> Iterator[History]:
        return iter((self.main, *self._others))

    def place(self, plan: Plan) -> History:
        """The history that `plan` goes on from, repeats, or begins. Raises LineMismatch if it is not there."""
        if plan.line == START_LINE:
            found = self.main if plan.num_pages == self.main.num_pages else self._new(plan.num_pages)
        else:
            found = self._behind(plan)
        if found is None:
            raise LineMismatch(
                f"step {plan.step} goes on from line {plan.line}, which the device does not hold: rebuild(state) makes a state "
                "that any driver accepts"
            )
        if found is not self.main:
            self._others.remove(found)
            self._others.append(found)
        return found

    def holds(self, plan: Plan) -> bool:
        """Whether `place` finds or begins a history for `plan`."""
        return plan.line == START_LINE or self._behind(plan) is not None

    def fork(self, line: int) -> bool:
        """Copy the history on `line`; False if there is none, or no room for another one."""
        found = self._on(line)
        if found is None or len(self._others) >= self._most:
            return False
        try:
            copy = self._make(found.num_pages)
        except torch.OutOfMemoryError:
            return False
        copy.copy(found)
        self._others.append(copy)
        return True

    def release(self, line: int) -> None:
        """Forget the history on `line`; the memory of all but the main one is given back."""
        found = self._on(line)
        if found is self.main:
            self.main.line, self.main.last = FREE_LINE, None
        elif found is not None:
            self._others.remove(found)

    def _on(self, line: int) -> History | None:
        return next((history for history in self if history.line == line), None)

    def _behind(self, plan: Plan) -> History | None:
        return self._on(plan.line) or next((history for history in self if history.last == plan), None)

    def _new(self, num_pages: int) -> History:
        fits = [history for history in self._others if history.line == FREE_LINE and history.num_pages == num_pages]
        if fits:
            return fits[0]
        # No name is left for those that go: their memory is needed.
        self._others = [history for history in self._others if history.line != FREE_LINE]
        while len(self._others) >= self._most and self._others:
            if self._others[0].num_pages == num_pages:
                self._others.append(self._others.pop(0))
                return self._others[-1]
            del self._others[0]
        while True:
            try:
                made = self._make(num_pages)
                break
            except torch.OutOfMemoryError as error:
                if not self._others:
                    raise DlstepError(f"there is no room for another history: {error}") from error
                self._others.pop(0)
        self._others.append(made)
        return made
