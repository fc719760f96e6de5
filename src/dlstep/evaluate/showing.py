"""One answer of a run decoded again by itself, with a trace to step through."""

from collections.abc import Mapping
from contextlib import closing
from dataclasses import replace
from typing import Any

from ..config import engine_config
from ..core import DlstepError, Trace
from ..core.checks import short
from ..llm import LLM
from .crews import about
from .items import Item, items_of, read_documents
from .options import EvalOptions, grid_of
from .report import name_of
from .report_html import trace_path
from .run_lock import RunLock, check_free
from .runner import key_of_run
from .runs import Run


def row_named(run: Run, name: str) -> Mapping[str, Any]:
    """The answer of this name. Raises ValueError for a name of none."""
    for row in run.rows.values():
        if name_of(run, row) == name:
            return row
    some = next((name_of(run, row) for row in run.rows.values()), "none")
    raise ValueError(f"--show {short(name)} is no answer of {run.folder}: names are like {some}")


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


def shown(run: Run, name: str) -> Trace:
    """The trace of an answer, decoded again by itself, and saved beside the run.

    Raises ValueError where the model, its options or the problems are not those of the run, DlstepError where the answer is
    another one.
    """
    check_free(run.folder)
    row, options = row_named(run, name), options_of(run)
    documents = read_documents(options)
    llm = LLM.from_config(engine_config(run.asked["told"]["engine"]))
    key = key_of_run(options, documents, about(llm.engine))
    for part in ("engine", "problems"):
        if key[part] != run.asked["key"][part]:
            raise ValueError(f"{part} of {run.folder} {short(run.asked['key'][part])} is now {short(key[part])}")
    item = item_of(items_of(options, documents), row)
    session = llm.session()
    session.submit(item.ids(llm.engine), replace(item.params, seed=row["seed"]))
    session.run()
    found = list(session.output(0).token_ids)
    if found != row["tokens"]:
        raise DlstepError(f"{name} decoded by itself answers {short(found)}, and in the run {short(row['tokens'])}")
    path = trace_path(run.folder, name)
    with closing(RunLock(run.folder)):
        path.parent.mkdir(exist_ok=True)
        session.trace.save(path)
    return session.trace


def item_of(items: list[Item], row: Mapping[str, Any]) -> Item:
    """The item of an answer."""
    return next(
        item
        for item in items
        if (item.task, item.document.number, dict(item.options)) == (row["task"], row["document"], row["options"])
    )
