"""Answers of a run decoded again, each by itself, with traces to step through."""

from collections.abc import Mapping, Sequence as Items
from contextlib import closing
from dataclasses import replace
from typing import Any

from ..config import engine_config
from ..core import DlstepError, Trace
from ..core.checks import short
from ..llm import LLM
from ..run_lock import RunLock, check_free
from .checkpoint import key_of
from .crews import about
from .items import items_of, read_documents
from .options import EvalOptions, grid_of
from .report import names_of, trace_path, wrong
from .runner import key_of_run
from .runs import Run


def row_named(run: Run, name: str) -> Mapping[str, Any]:
    """The answer of this name. Raises ValueError for a name of none."""
    names = {each: key for key, each in names_of(run).items()}
    if name not in names:
        raise ValueError(f"--show {short(name)} is no answer of {run.folder}: names are like {next(iter(names), 'none')}")
    return run.rows[names[name]]


def options_of(run: Run) -> EvalOptions:
    """The options that a run was made with. Raises ValueError for one whose options were values of Python."""
    told = run.asked.get("told") or {}
    if not isinstance(told, dict) or not isinstance(told.get("eval"), dict):
        raise ValueError(f"{run.folder} was not made by the command `dlstep eval`, so --show does not know its options")
    given: dict[str, Any] = dict(told["eval"])
    for name in ("tasks", "stop", "stop_token_ids"):
        given[name] = tuple(given[name])
    given["grid"] = grid_of(given["grid"])
    return EvalOptions(**given)


def shown(run: Run, names: Items[str]) -> list[Trace]:
    """The traces of answers, each decoded again by itself, and saved in the folder of the run.

    Raises ValueError where the model, its options or the problems are not those of the run, or another process writes to its
    folder, DlstepError where an answer is another one.
    """
    check_free(run.folder)
    rows, options = [row_named(run, name) for name in names], options_of(run)
    documents = read_documents(options)
    llm = LLM.from_config(engine_config(run.asked["told"]["engine"]))
    key = key_of_run(options, documents, about(llm.engine))
    for part in ("engine", "problems"):
        if key[part] != run.asked["key"][part]:
            raise ValueError(f"{part} of {run.folder} {short(run.asked['key'][part])} is now {short(key[part])}")
    items = {item.key: item for item in items_of(options, documents)}
    traces: list[Trace] = []
    with closing(RunLock(run.folder)):
        for name, row in zip(names, rows, strict=True):
            item = items[key_of(row)]
            session = llm.session()
            session.submit(item.ids(llm.engine), replace(item.params, seed=row["seed"]))
            session.run()
            found = list(session.output(0).token_ids)
            if found != row["tokens"]:
                raise DlstepError(f"{name} decoded by itself answers {short(found)}, and in the run {short(row['tokens'])}")
            path = trace_path(run.folder, name)
            path.parent.mkdir(exist_ok=True)
            session.trace.save(path)
            traces.append(session.trace)
            session.close()
    return traces


def untraced(run: Run, most: int) -> list[str]:
    """The names of those of the first `most` wrong answers, the worst first, whose traces are not there yet."""
    names = names_of(run)
    missed = wrong([pair for pairs in run.groups.values() for pair in pairs])[:most]
    return [name for row, _ in missed if not trace_path(run.folder, name := names[key_of(row)]).is_file()]
