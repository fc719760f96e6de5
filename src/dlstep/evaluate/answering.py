"""An engine that accepts requests while it decodes, and the cost of each answer and each forward pass."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from time import perf_counter
from typing import Any

from ..core import Event, Request, Samples, Update
from ..core.usage import RequestUsage, Usage
from ..driver import TorchDriver
from ..engine.loader import Engine
from ..text.detokenize import cut, decode
from .items import Item
from .metrics import Work

ROUND = 6  # decimals of what is measured


@dataclass(frozen=True, slots=True)
class Answered:
    """The answer to the item at `place` of a run: `row` holds values that only depend on the request, `beside` all others."""

    place: int
    row: Mapping[str, Any]
    beside: Mapping[str, Any]


class Live:
    """A live request, and the step at which each token of the window was decided."""

    def __init__(self, place: int, item: Item) -> None:
        self.place, self.item, self.begin = place, item, perf_counter()
        self._decided: dict[int, tuple[int, int]] = {}  # offset in the answer: token, step

    def fold(self, update: Update) -> None:
        """Record the step at which each position got its current token."""
        start, steps, decided = len(update.sequence.request.prompt), update.steps, self._decided
        for offset, token in enumerate(update.tokens, update.start - start):
            if offset not in decided or decided[offset][0] != token:
                decided[offset] = token, steps
        for offset, cell in enumerate(update.window, update.stop - start):
            if cell.token is None:
                decided.pop(offset, None)
            elif offset not in decided or decided[offset][0] != cell.token:
                decided[offset] = cell.token, steps

    def answered(self, update: Update, engine: Engine, usage: RequestUsage) -> Answered:
        """Return the answer, from the update that reports its end and what the request took."""
        sequence, item = update.sequence, self.item
        tokens = sequence.answer
        row = {
            "task": item.task,
            "document": item.document.number,
            "options": dict(item.options),
            "prompt": item.prompt,
            "answer": cut(decode(engine.tokenizer, tokens), item.params.stop),
            "tokens": list(tokens),
            "steps": sequence.steps,
            "finish": sequence.finish,
            "error": sequence.error,
            "seed": sequence.request.seed,
        }
        beside = {
            "task": item.task,
            "document": item.document.number,
            "options": dict(item.options),
            "forwards": sequence.nfe,
            "computed": usage.rows,
            "wasted": usage.wasted(sequence.finish or "error"),
            "seconds": round(perf_counter() - self.begin, ROUND),
            "decided_at": [self._decided[offset][1] for offset in range(len(tokens))],
            "probabilities": [round(probability, ROUND) for probability in sequence.probabilities],
        }
        return Answered(self.place, row, beside)


class Answering:
    """An engine that accepts items at any time; each step returns the answers that ended in it."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self._decode = engine.decode(record=self._count)
        self._live: dict[int, Live] = {}
        self._usage = Usage()
        self._work = Work()
        self._sampled = False

    @property
    def live(self) -> int:
        """The number of live requests."""
        return len(self._live)

    def add(self, place: int, item: Item) -> None:
        """Queue an item. Raises ValueError for a prompt that cannot be encoded."""
        self._decode.add(Request(place, item.ids(self.engine), item.params, index=item.index))
        self._live[place] = Live(place, item)
        if (arrival := self._decode.state.live.get(place)) is not None:
            self._usage.open(arrival, 0)

    def step(self) -> list[Answered]:
        """Run one forward pass, and return the answers that ended in it."""
        begin, padding = perf_counter(), self._padding
        self._sampled = False
        ended: list[Answered] = []
        for update in self._decode.step():
            live = self._live[update.id]
            live.fold(update)
            if update.ending is not None:
                arrival = update.sequence.request.arrival
                ended.append(live.answered(update, self.engine, self._usage.of(arrival)))
                self._usage.close(arrival)
                del self._live[update.id]
        took = perf_counter() - begin
        self._work += Work(padding=self._padding - padding, seconds=took, decode_seconds=took if self._sampled else 0.0)
        return ended

    def worked(self) -> Work:
        """Return the work since the last call of this method."""
        work, self._work = self._work, Work()
        return replace(work, seconds=round(work.seconds, ROUND), decode_seconds=round(work.decode_seconds, ROUND))

    @property
    def _padding(self) -> int:
        """The number of padding rows so far; only drivers of devices that capture forward passes pad them."""
        driver = self.engine.driver
        return driver.padding if isinstance(driver, TorchDriver) else 0

    def _count(self, event: Event) -> None:
        """Count a forward pass, for each request and in total."""
        if isinstance(event, Samples):
            done = self._usage.take(event.plan, self._decode.state.config.page_size)
            self._sampled = self._sampled or bool(done.sampling_forwards)
            self._work += Work(1, done.sampling_forwards, done.spans, done.rows, preemptions=done.preemptions)
