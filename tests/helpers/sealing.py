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
    each = list(changes)
    for name in ("answers.jsonl", "scores.jsonl"):
        rows = list(sealed_lines(run / name))
        padded = [*each, *each[-1:] * (len(rows) - len(each))]
        with (to / name).open("wb") as file:
            for row, change in zip(rows, padded, strict=True):
                own = {field: value for field, value in change.items() if field in row}
                file.write(encoded(sealed({**row, **own})))
    return to
