"""The evaluation loop: a pool answers the items, threads score them, the loop writes them."""

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import closing, contextmanager, nullcontext
from dataclasses import asdict, dataclass, replace
from itertools import groupby, product
from pathlib import Path
from time import perf_counter
from typing import Any

from ..engine.json_lines import Line
from ..engine.run_lock import RunLock
from .answerer_pool import ROUND, AnsweredItem, AnswererPool, EvaluatorInfo
from .checkpoint import RunCheckpoint, begin
from .documents import Document, digest
from .items import Item, items_of
from .jail import Jail, JailLimits, find_jail
from .maths import Maths
from .metrics import FAILURES, ForwardSums
from .options import CODE_TASKS, EvalOptions, refused
from .scoring import Mark, code_mark, ending_mark, maths_mark, number_mark

SCORERS = 2  # threads that wait for jails and for the process that compares formulas
# The options that select problems are not in the key, because the key has a digest of the problems.
NOT_IN_KEY = ("data", "questions", "out", "workers", "worker_timeout", "dataset_limit", "problem_seed")
Show = Callable[[int, float], None]  # answers so far, sum of their scores
Note = Callable[[int, Line, Line], None]  # place, lines of `answers.jsonl` and `beside.jsonl`


def no_show(done: int, score: float) -> None:
    """Show nothing."""


@dataclass(frozen=True, slots=True)
class Scorers:
    """Helpers of scoring, each None if unused: a process for formulas, a jail for programs."""

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
    """Yield the scorers that the tasks need. Raises ValueError or DlstepError if this fails."""
    code = options.run_code and any(task in CODE_TASKS for task in options.tasks)
    with closing(Maths()) if "math500" in options.tasks else nullcontext() as maths:
        yield Scorers(maths, find_jail(JailLimits(seconds=options.code_seconds)) if code else None)


def key_of_run(options: EvalOptions, documents: Mapping[str, list[Document]], about: EvaluatorInfo) -> dict[str, Any]:
    """Return all that the answers and scores of a run depend on."""
    eval_settings = {name: value for name, value in asdict(options).items() if name not in NOT_IN_KEY}
    eval_settings["grid"] = [{name: repr(value) for name, value in chosen} for chosen in options.grid]
    problems = {task: {"count": len(found), "digest": digest(found)} for task, found in documents.items()}
    code = {"versions": about.versions, "environment": about.environment}
    return {"engine": dict(about.facts), "eval": eval_settings, "problems": problems} | code


def evaluate(
    pool: AnswererPool,
    options: EvalOptions,
    documents: Mapping[str, list[Document]],
    *,
    given_options: Mapping[str, Any] | None = None,
    show: Show = no_show,
) -> None:
    """Answer and score everything that `options.out` does not hold yet.

    `given_options` are the options as they were given; they are stored in the folder. If the
    process is killed, call this again: the answers equal those of an uninterrupted run byte for
    byte. Raises ValueError for a folder that holds another run, or that another process writes to.
    """
    folder = Path(options.out)
    items = items_of(options, documents)
    check(pool.about, options)
    with scorers_for(options) as scorers, closing(RunLock(folder)) as lock:
        key = key_of_run(options, documents, pool.about)
        begin(folder, {"key": key, "told": dict(given_options or {}), "machines": [pool.about.machine]})
        with closing(RunCheckpoint(folder, items)) as checkpoint:
            known = [row["score"] for row in checkpoint.known]

            def show_all(done: int, score: float) -> None:
                show(len(known) + done, sum(known) + score)

            running = Running(pool, scorers, items, show_all, checkpoint.note, checkpoint.note_work)
            for task, places in groupby(checkpoint.missing, key=lambda place: items[place].task):
                running.answer(task, deque(places))
            lock.check()


def check(about: EvaluatorInfo, options: EvalOptions) -> None:
    """Raise ValueError for parameters with which no prompt could be answered, however short."""
    for task, chosen in product(options.tasks, options.grid):
        if reason := refused(about.config, about.strategy, options.params(task, chosen)):
            raise ValueError(reason)


class Running:
    """A run in progress, one task after the other, so that the time of each can be measured.

    `note` stores a scored answer by its place, and `note_work` the work of forward passes.
    """

    def __init__(
        self,
        pool: AnswererPool,
        scorers: Scorers,
        items: Sequence[Item],
        show: Show,
        note: Note,
        note_work: Callable[[str, Line], None] | None = None,
    ) -> None:
        self._pool, self._scorers, self._items = pool, scorers, items
        self._show, self._note, self._note_work = show, note, note_work
        self._done, self._score = 0, 0.0
        self._scoring: dict[Future[Mark], AnsweredItem] = {}
        self._begin, self._work = 0.0, ForwardSums()  # since the last answers

    def answer(self, task: str, places: "deque[int]") -> None:
        """Answer the items at `places`, which are all of `task`."""
        pool = self._pool
        most = 2 * pool.about.seats  # as many requests wait as are decoded
        self._begin = perf_counter()
        with ThreadPoolExecutor(SCORERS) as threads:
            try:
                while places or pool.live:
                    while places and pool.live < most:
                        place = places.popleft()
                        pool.add(place, self._items[place])
                    answers, work = pool.step()
                    for answered in answers:
                        mark = threads.submit(self._scorers.mark, self._items[answered.place], answered.row)
                        self._scoring[mark] = answered
                    self._work += work
                    if answers:
                        now = perf_counter()
                        done = asdict(replace(self._work, wall_seconds=now - self._begin))
                        self._begin, self._work = now, ForwardSums()
                        if self._note_work is not None:
                            self._note_work(task, {name: round(value, ROUND) for name, value in done.items()})
                    self._collect(everything=False)
                self._collect(everything=True)
            finally:
                threads.shutdown(cancel_futures=True)  # futures are left if the run is interrupted

    def _collect(self, *, everything: bool) -> None:
        """Write the answers that have been scored; with `everything`, wait for all."""
        while self._scoring:
            done = wait(self._scoring, timeout=None if everything else 0, return_when=FIRST_COMPLETED).done
            if not done:
                return
            for future in sorted(done, key=lambda future: self._scoring[future].place):
                answered, mark = self._scoring.pop(future), future.result()
                document = self._items[answered.place].document
                problem = {"problem": digest([replace(document, number=0)]), "gold": document.gold}
                marks = {"found": mark.found, "note": mark.note, "scores": dict(mark.scores), "score": mark.score}
                self._note(answered.place, {**answered.row, **problem, **marks}, answered.beside)
                self._done, self._score = self._done + 1, self._score + mark.score
                self._show(self._done, self._score)
