"""Answers of a run, each decoded again alone, with a trace to step through."""

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
from .items import items_of, read_documents
from .options import EvalOptions, grid_of
from .report import names_of, trace_path, wrong
from .runner import key_of_run
from .runs import Run
from .versions import about


def row_named(run: Run, name: str) -> Mapping[str, Any]:
    """Return the answer with this name. Raises ValueError if there is none."""
    names = {each: key for key, each in names_of(run).items()}
    if name not in names:
        raise ValueError(f"--show {short(name)} is not an answer of {run.folder}: names are like {next(iter(names), 'none')}")
    return run.rows[names[name]]


def options_of(run: Run) -> EvalOptions:
    """Return the options of a run. Raises ValueError for a run whose options were Python values."""
    told = run.asked.get("told") or {}
    if not isinstance(told, dict) or not isinstance(told.get("eval"), dict):
        raise ValueError(f"{run.folder} was not written by the command `dlstep eval`, so --show cannot read its options")
    given: dict[str, Any] = dict(told["eval"])
    for name in ("tasks", "stop", "stop_token_ids"):
        given[name] = tuple(given[name])
    given["grid"] = grid_of(given["grid"])
    return EvalOptions(**given)


def shown(run: Run, names: Items[str]) -> list[Trace]:
    """Decode answers again, each alone, save their traces in the folder of the run, and return the traces.

    Raises ValueError if the model, its options or the problems differ from those of the run, or if another process writes to
    its folder, and DlstepError if an answer differs.
    """
    check_free(run.folder)
    rows, options = [row_named(run, name) for name in names], options_of(run)
    documents = read_documents(options)
    llm = LLM.from_config(engine_config(run.asked["told"]["engine"]))
    key = key_of_run(options, documents, about(llm.engine))
    for part in ("engine", "problems"):
        if key[part] != run.asked["key"][part]:
            raise ValueError(f"{part} of {run.folder} was {short(run.asked['key'][part])} and is now {short(key[part])}")
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
                raise DlstepError(f"{name} decoded alone gives {short(found)}, but {short(row['tokens'])} in the run")
            path = trace_path(run.folder, name)
            path.parent.mkdir(exist_ok=True)
            session.trace.save(path)
            traces.append(session.trace)
            session.close()
    return traces


def untraced(run: Run, most: int) -> list[str]:
    """Return the names of those of the first `most` wrong answers (lowest score first) that have no trace yet."""
    names = names_of(run)
    missed = wrong([pair for pairs in run.groups.values() for pair in pairs])[:most]
    return [name for row, _ in missed if not trace_path(run.folder, name := names[key_of(row)]).is_file()]
