"""Runs of an evaluation with other answers, sealed as if they had been written so."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from dlstep.engine.json_lines import encoded, sealed, sealed_lines


def with_answers(run: Path, to: Path, changes: Iterable[Mapping[str, Any]]) -> Path:
    """A copy of a run in a new folder, its answers with these changes in turn, the last ones for all that are left."""
    to.mkdir()
    for name in ("run.json", "beside.jsonl"):
        (to / name).write_bytes((run / name).read_bytes())
    each, change = iter(changes), {}
    with (to / "answers.jsonl").open("wb") as file:
        for row in sealed_lines(run / "answers.jsonl", {}):
            change = next(each, change)
            file.write(encoded(sealed({**row, **change})))
    return to
