"""The tables of `docs/evaluation.md` are those of the code."""

import json
import re
from dataclasses import fields

from dlstep import LLM
from dlstep.engine.json_lines import CHECKSUM
from dlstep.evaluate import EvalOptions, evaluate_with
from dlstep.evaluate.comparing import ComparisonRow
from dlstep.evaluate.table import Figures, TableLine

from .blocks import ROOT

PAGE = (ROOT / "docs" / "evaluation.md").read_text()


def test_every_column_is_defined():
    table = PAGE.partition("## Columns")[2].partition("## ")[0]
    defined = set(
        re.findall(r"`([\w.]+)`", "".join(line.split("|")[1] for line in table.splitlines() if line.startswith("| `")))
    )
    for column in (field.name for field in fields(TableLine)):
        assert column in defined, column


def test_every_column_of_a_comparison_is_defined():
    table = PAGE.partition("## Comparing strategies and rules")[2].partition("\n## ")[0]
    defined = {name for line in table.splitlines() if line.startswith("| `") for name in re.findall(r"`(\w+)`", line)}
    own = {field.name for field in fields(ComparisonRow)} - {field.name for field in fields(Figures)}
    assert own <= defined


def test_every_field_of_an_answer_is_listed(tmp_path):
    run = evaluate_with(LLM("tiny-bd"), EvalOptions(dataset_limit=1, max_tokens=2, out=str(tmp_path)))
    for name in ("answers", "beside", "scores"):
        (listed,) = (line for line in PAGE.splitlines() if line.startswith(f"| `{name}.jsonl`"))
        (row,) = [json.loads(line) for line in (run.folder / f"{name}.jsonl").read_text().splitlines()]
        own = [field for field in row if name == "answers" or field not in ("task", "document", "options")]
        assert re.findall(r"`(\w+)`", listed) == [field for field in own if field != CHECKSUM]
