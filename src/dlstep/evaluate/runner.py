"""The evaluation loop: a crew answers the items, threads score them, and the loop writes them."""

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence as Items
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import closing, contextmanager, nullcontext
from dataclasses import asdict, dataclass, replace
from itertools import groupby, product
from pathlib import Path
from time import perf_counter
from typing import Any, Protocol

from ..engine.run_lock import RunLock
from .checkpoint import Checkpoint, begin
from .crews import ROUND, About, Answered, Crew
from .documents import Document, digest
from .items import Item, items_of
from .jail import Jail, Limits, find_jail
from .maths import Maths
from .metrics import FAILURES, Work
from .options import CODE_TASKS, EvalOptions, refused
from .scoring import Mark, code_mark, ending_mark, maths_mark, number_mark

SCORERS = 2  # threads that wait for jails and for the process that compares formulas
# The options that select problems are not in the key, because the key has a digest of the problems.
NOT_IN_KEY = ("data", "questions", "out", "workers", "worker_timeout", "dataset_limit", "problem_seed")
Show = Callable[[int, float], None]  # answers so far, sum of their scores


def no_show(done: int, score: float) -> None:
    """Show nothing."""


@dataclass(frozen=True, slots=True)
class Scorers:
    """The helpers of scoring: a process for formulas and a jail for programs, each None if no task needs it."""

    maths: Maths | None
    jail: Jail | None

    def mark(self, item: Item, row: Mapping[str, Any]) -> Mark:
        """Return the scores of an answer, without any score if it was rejected or failed."""
        if row["finish"] in FAILURES:
            return Mark(note=row["error"])
        if item.task == "math500":
            assert self.maths is not None, "`scorers_for` makes it for this task"
            return maths_mark(item.document, row["answer"], self.maths)
        if item.task in CODE_TASKS:
            return code_mark(item.task, item.document, row["answer"], self.jail, chat=not isinstance(item.prompt, str))
        if item.task == "questions":
            return ending_mark(item.document, row["answer"])
        return number_mark(item.task, item.document, row["answer"])


@contextmanager
def scorers_for(options: EvalOptions) -> Iterator[Scorers]:
    """Yield the scorers that the tasks need. Raises ValueError or DlstepError if one of them cannot be made."""
    code = options.run_code and any(task in CODE_TASKS for task in options.tasks)
    with closing(Maths()) if "math500" in options.tasks else nullcontext() as maths:
        yield Scorers(maths, find_jail(Limits(seconds=options.code_seconds)) if code else None)


def key_of_run(options: EvalOptions, documents: Mapping[str, list[Document]], about: About) -> dict[str, Any]:
    """Return all that the answers and scores of a run depend on."""
    asked = {name: value for name, value in asdict(options).items() if name not in NOT_IN_KEY}
    asked["grid"] = [{name: repr(value) for name, value in chosen} for chosen in options.grid]
    problems = {task: {"count": len(found), "digest": digest(found)} for task, found in documents.items()}
    code = {"versions": about.versions, "environment": about.environment}
    return {"engine": dict(about.facts), "eval": asked, "problems": problems} | code


def evaluate(
    crew: Crew,
    options: EvalOptions,
    documents: Mapping[str, list[Document]],
    *,
    told: Mapping[str, Any] | None = None,
    show: Show = no_show,
) -> None:
    """Answer and score everything that `options.out` does not hold yet.

    `told` are the options as they were given; they are stored in the folder. If the process is killed at any moment and called
    again, the answers equal those of an uninterrupted run byte for byte. Raises ValueError for a folder that holds another run,
    or that another process writes to.
    """
    folder = Path(options.out)
    items = items_of(options, documents)
    check(crew.about, options)
    with scorers_for(options) as scorers, closing(RunLock(folder)) as lock:
        key = key_of_run(options, documents, crew.about)
        begin(folder, {"key": key, "told": dict(told or {}), "machines": [crew.about.machine]})
        with closing(Checkpoint(folder, items)) as checkpoint:
            missing, score = checkpoint.missing, sum(row["score"] for row in checkpoint.known)
            running = Running(crew, scorers, checkpoint, items, show, len(items) - len(missing), score)
            for task, places in groupby(missing, key=lambda place: items[place].task):
                running.answer(task, deque(places))
            lock.check()


def check(about: About, options: EvalOptions) -> None:
    """Raise ValueError for parameters with which no prompt could be answered, however short."""
    for task, chosen in product(options.tasks, options.grid):
        if why := refused(about.config, about.strategy, options.params(task, chosen)):
            raise ValueError(why)


class Notes(Protocol):
    """A store of the answers with their scores, and of the work of forward passes."""

    def note(self, place: int, row: Mapping[str, Any], beside: Mapping[str, Any]) -> None:
        """Store the answer to the item at a place."""

    def note_work(self, task: str, work: Mapping[str, Any]) -> None:
        """Store the work of forward passes."""


class Running:
    """A run in progress. Tasks are answered one after the other, so that the time of each can be measured."""

    def __init__(
        self, crew: Crew, scorers: Scorers, notes: Notes, items: Items[Item], show: Show, done: int = 0, score: float = 0.0
    ) -> None:
        self._crew, self._scorers, self._notes, self._items = crew, scorers, notes, items
        self._show, self._done, self._score = show, done, score
        self._scoring: dict[Future[Mark], Answered] = {}
        self._begin, self._unsaid = 0.0, Work()

    def answer(self, task: str, places: "deque[int]") -> None:
        """Answer the items at `places`, which are all of `task`."""
        crew = self._crew
        most = 2 * crew.about.seats  # as many requests wait as are decoded
        self._begin = perf_counter()
        with ThreadPoolExecutor(SCORERS) as pool:
            try:
                while places or crew.live:
                    while places and crew.live < most:
                        place = places.popleft()
                        crew.add(place, self._items[place])
                    answers, work = crew.step()
                    for answered in answers:
                        mark = pool.submit(self._scorers.mark, self._items[answered.place], answered.row)
                        self._scoring[mark] = answered
                    self._unsaid += work
                    if answers:
                        now = perf_counter()
                        done = asdict(replace(self._unsaid, wall_seconds=now - self._begin))
                        self._begin, self._unsaid = now, Work()
                        self._notes.note_work(task, {name: round(value, ROUND) for name, value in done.items()})
                    self._collect(everything=False)
                self._collect(everything=True)
            finally:
                pool.shutdown(cancel_futures=True)  # there are futures left only if the run is interrupted

    def _collect(self, *, everything: bool) -> None:
        """Write the answers that have been scored; with `everything`, wait until all of them are."""
        while self._scoring:
            done = wait(self._scoring, timeout=None if everything else 0, return_when=FIRST_COMPLETED).done
            if not done:
                return
            for future in sorted(done, key=lambda future: self._scoring[future].place):
                self._write(self._scoring.pop(future), future.result())

    def _write(self, answered: Answered, mark: Mark) -> None:
        document = self._items[answered.place].document
        asked = {"problem": digest([replace(document, number=0)]), "gold": document.gold}
        told = {"found": mark.found, "note": mark.note, "scores": dict(mark.scores), "score": mark.score}
        row = {**answered.row, **asked, **told}
        self._notes.note(answered.place, row, answered.beside)
        self._done, self._score = self._done + 1, self._score + mark.score
        self._show(self._done, self._score)
