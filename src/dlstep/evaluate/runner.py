"""The evaluation loop: a pool answers the items, threads score them, the loop writes them."""

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import closing
from dataclasses import asdict, replace
from functools import partial
from itertools import groupby, product
from pathlib import Path
from time import perf_counter
from typing import Any

from ..engine.json_lines import Line
from ..engine.run_lock import RunLock
from ..extras import require
from .answerer_pool import AnsweredItem, AnswererPool, EvaluatorInfo
from .checkpoint import RunCheckpoint, begin
from .documents import Document, digest
from .items import Item, items_of
from .jail import Jail, JailLimits, find_jail
from .maths import WORKER
from .metrics import FAILURES, ForwardSums
from .options import CODE_TASKS, EvalOptions, refused
from .scoring import Mark, code_mark, ending_mark, maths_mark, number_mark

SCORERS = 2  # threads that wait for jails and for the process that compares formulas
# The options that select problems are not in the key, because the key has a digest of the problems.
NOT_IN_KEY = ("data", "questions", "out", "workers", "worker_timeout", "dataset_limit", "problem_seed")
Show = Callable[[int, float], None]  # answers so far, sum of their scores


def no_show(done: int, score: float) -> None:
    """Show nothing."""


def mark_of(item: Item, row: Mapping[str, Any], jail: Jail | None) -> Mark:
    """Return the scores of an answer; there are none if it was rejected or failed."""
    if row["finish"] in FAILURES:
        return Mark(note=row["error"])
    if item.task == "math500":
        return maths_mark(item.document, row["answer"])
    if item.task in CODE_TASKS:
        return code_mark(item.task, item.document, row["answer"], jail, chat=not isinstance(item.prompt, str))
    if item.task == "questions":
        return ending_mark(item.document, row["answer"])
    return number_mark(item.task, item.document, row["answer"])


def jail_for(options: EvalOptions) -> Jail | None:
    """Return a jail if the tasks need one. Raises ValueError or DlstepError if a scorer is missing."""
    if "math500" in options.tasks:
        require("task math500", "eval")
    code = options.run_code and any(task in CODE_TASKS for task in options.tasks)
    return find_jail(JailLimits(seconds=options.code_seconds)) if code else None


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
    jail = jail_for(options)
    with closing(WORKER), closing(RunLock(folder)) as lock:
        key = key_of_run(options, documents, pool.about)
        begin(folder, {"key": key, "told": dict(given_options or {}), "machines": [pool.about.machine]})
        with closing(RunCheckpoint(folder, items)) as checkpoint:
            done, score = len(checkpoint.known), float(sum(row["score"] for row in checkpoint.known))

            def note(place: int, row: Line, beside: Line) -> None:
                nonlocal done, score
                checkpoint.note(place, row, beside)
                done, score = done + 1, score + row["score"]
                show(done, score)

            # One task after the other, so that the time of each can be measured.
            for task, places in groupby(checkpoint.missing, key=lambda place: items[place].task):
                of_task = {place: items[place] for place in places}
                answer_all(pool, jail, of_task, note, partial(checkpoint.note_work, task))
            lock.check()


def check(about: EvaluatorInfo, options: EvalOptions) -> None:
    """Raise ValueError for parameters with which no prompt could be answered, however short."""
    for task, chosen in product(options.tasks, options.grid):
        if reason := refused(about.config, about.strategy, options.params(task, chosen)):
            raise ValueError(reason)


def answer_all(
    pool: AnswererPool,
    jail: Jail | None,
    items: Mapping[int, Item],
    note: Callable[[int, Line, Line], None],
    note_work: Callable[[ForwardSums], None] | None = None,
) -> None:
    """Answer and score items, which are given by place.

    `note` stores the place of each answer and its two lines. `note_work` stores the work since its
    previous call.
    """
    waiting, scoring = deque(items), dict[Future[Mark], AnsweredItem]()
    begin, work = perf_counter(), ForwardSums()

    def collect(scored: Iterable[Future[Mark]]) -> None:
        for future in sorted(scored, key=lambda future: scoring[future].place):
            answered, mark = scoring.pop(future), future.result()
            document = items[answered.place].document
            problem = {"problem": digest([replace(document, number=0)]), "gold": document.gold}
            marks = {"found": mark.found, "note": mark.note, "scores": dict(mark.scores), "score": mark.score}
            note(answered.place, {**answered.row, **problem, **marks}, answered.beside)

    with ThreadPoolExecutor(SCORERS) as threads:
        try:
            while waiting or pool.live:
                while waiting and pool.live < 2 * pool.about.seats:  # queue as many requests as are decoded
                    place = waiting.popleft()
                    pool.add(place, items[place])
                answers, more = pool.step()
                work += more
                for answered in answers:
                    scoring[threads.submit(mark_of, items[answered.place], answered.row, jail)] = answered
                if answers and note_work is not None:
                    now = perf_counter()
                    note_work(replace(work, wall_seconds=now - begin))
                    begin, work = now, ForwardSums()
                collect(wait(scoring, timeout=0).done)
            while scoring:
                collect(wait(scoring, return_when=FIRST_COMPLETED).done)
        finally:
            threads.shutdown(cancel_futures=True)  # some are left only if the run is interrupted
