"""An engine that accepts requests while it decodes, and the cost of each answer and each forward pass."""

from collections.abc import Mapping
from dataclasses import dataclass
from time import perf_counter
from typing import Any

from ..core import Event, Request, Samples, Update
from ..driver import TorchDriver
from ..engine import Engine
from ..text import cut, decode
from .items import Item
from .metrics import Work
from .versions import about

ROUND = 6  # decimals of what is measured


@dataclass(frozen=True, slots=True)
class Answered:
    """The answer to the item at `place` of a run: `row` holds values that only depend on the request, `beside` all others."""

    place: int
    row: Mapping[str, Any]
    beside: Mapping[str, Any]


class Live:
    """A live request: the step at which each token of the window was decided, and the rows computed for it."""

    def __init__(self, place: int, item: Item) -> None:
        self.place, self.item, self.begin = place, item, perf_counter()
        self.computed = self.wasted = self.stored = 0
        self._decided: dict[int, tuple[int, int]] = {}  # offset in the answer: token, step

    def fold(self, update: Update) -> None:
        """Record the step at which each position got its current token."""
        decided, first = self._decided, update.start - len(update.sequence.request.prompt)
        for offset, token in enumerate([*update.tokens, *(cell.token for cell in update.window)], first):
            if token is None:
                decided.pop(offset, None)
            elif offset not in decided or decided[offset][0] != token:
                decided[offset] = token, update.steps

    def answered(self, update: Update, engine: Engine) -> Answered:
        """Return the answer, from the update that reports its end."""
        sequence, item = update.sequence, self.item
        tokens = sequence.answer
        key = {"task": item.task, "document": item.document.number, "options": dict(item.options)}
        row = key | {
            "prompt": item.prompt,
            "answer": cut(decode(engine.tokenizer, tokens), item.params.stop),
            "tokens": list(tokens),
            "steps": sequence.steps,
            "finish": sequence.finish,
            "error": sequence.error,
            "seed": sequence.request.seed,
        }
        beside = key | {
            "forwards": sequence.nfe,
            "computed": self.computed,
            "wasted": self.wasted,
            "seconds": round(perf_counter() - self.begin, ROUND),
            "decided_at": [self._decided[offset][1] for offset in range(len(tokens))],
            "probabilities": [round(probability, ROUND) for probability in sequence.probabilities],
        }
        return Answered(self.place, row, beside)


class Answering:
    """An engine that accepts items at any time: the crew of this process."""

    def __init__(self, engine: Engine) -> None:
        self.about = about(engine)
        self._engine = engine
        self._decode = engine.decode(record=self._count)
        self._live: dict[int, Live] = {}
        self._work = Work()  # of the current step

    @property
    def live(self) -> int:
        """The number of live requests."""
        return len(self._live)

    def add(self, place: int, item: Item) -> None:
        """Queue an item. Raises ValueError for a prompt that cannot be encoded."""
        self._decode.add(Request(place, item.ids(self._engine), item.params, index=item.index))
        self._live[place] = Live(place, item)

    def step(self) -> tuple[list[Answered], Work]:
        """Run one forward pass, and return the answers that ended in it and its work."""
        begin, padding, self._work = perf_counter(), self._padding, Work()
        ended: list[Answered] = []
        for update in self._decode.step():
            live = self._live[update.id]
            live.fold(update)
            if update.ending is not None:
                ended.append(live.answered(update, self._engine))
                del self._live[update.id]
        took = perf_counter() - begin
        timed = Work(padding=self._padding - padding, seconds=took, decode_seconds=took if self._work.sampling else 0.0)
        return ended, self._work + timed

    def close(self) -> None:
        """Do nothing: this crew has no resources to release."""

    @property
    def _padding(self) -> int:
        """The number of padding rows so far; only drivers of devices that capture forward passes pad them."""
        driver = self._engine.driver
        return driver.padding if isinstance(driver, TorchDriver) else 0

    def _count(self, event: Event) -> None:
        """Count the rows that a forward pass computed, for each request and in total."""
        if not isinstance(event, Samples):
            return
        plan = event.plan
        for span in plan.spans:
            live, final = self._live[span.id], span.start + span.query_only + span.final_rows
            live.computed += len(span.tokens)
            live.wasted += max(0, min(live.stored, final) - span.start - span.query_only)
            live.stored = max(live.stored, final)
        samples = any(span.wanted for span in plan.spans)
        rows = sum([len(span.tokens) for span in plan.spans])
        self._work += Work(1, int(samples), len(plan.spans), rows, preemptions=len(plan.preemptions))
