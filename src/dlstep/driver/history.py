"""Histories: separate KV caches, one per line of plans, so that no state reads another's."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch

from ..core import START_LINE, DlstepError, LineMismatch, Plan
from ..models.networks import Memory
from .executor import Executor
from .lowering import Placed
from .tables import CarrySlots, PageTables

FREE_LINE = -1  # no state continues this history


@dataclass(eq=False)
class History:
    """The KV cache of one line of plans, and which requests own its pages.

    `line` is the line of the state that may continue from here, `last` the plan that led to it
    (which may be run again), and `placed` its last forward's rows. `executor` runs on `memory`.
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
        """Apply the changes of page and slot ownership in `plan`, unless it repeats the last plan.

        If the forward pass then fails, only the same plan, or one that starts a line, may follow.
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
        """Copy the content of `other`, which must have the same number of pages."""
        self.memory.copy(other.memory)
        self.tables.copy(other.tables)
        self.slots.slots = dict(other.slots.slots)
        self.line, self.last, self.placed = other.line, other.last, None


class Histories:
    """A main history for states of `main.num_pages` pages, and up to `most` others, made on demand.

    A plan that starts a line gets the main history if its number of pages matches. Otherwise it
    gets a free history, a new one, or the least recently used one, whose state loses its cache.
    """

    def __init__(self, main: History, make: Callable[[int], History], most: int) -> None:
        self.main, self._make, self._most = main, make, most
        self._others: list[History] = []  # least recently used first

    def __iter__(self) -> Iterator[History]:
        return iter((self.main, *self._others))

    def place(self, plan: Plan) -> History:
        """Return the history that `plan` continues, repeats or begins, or raise LineMismatch."""
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
        """Return whether `place` would find or begin a history for `plan`."""
        return plan.line == START_LINE or self._behind(plan) is not None

    def fork(self, line: int) -> bool:
        """Copy the history on `line`; return False if there is none, or no room for a copy."""
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
        """Forget the history on `line`, and free its memory unless it is the main one."""
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
        # Drop references before allocating, so that the memory of dropped histories is free.
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
