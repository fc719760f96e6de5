"""The page about models contains the table that the command prints."""

import json
import re
import shutil

from dlstep import tiny
from dlstep.cli import main
from dlstep.core.spec import TRAININGS
from dlstep.models import FAMILIES, read_description
from dlstep.models.description import SPEC_FACTS

from ..helpers.scripts import script
from .blocks import ROOT

PAGE = ROOT / "docs" / "models.md"


def test_the_page_has_the_table_of_families():
    table = script("make_pictures").families_table()
    assert f"<!-- families -->\n{table}<!-- end of families -->\n" in PAGE.read_text(), "run make pictures"


def test_the_page_has_all_thresholds_of_families():
    thresholds = {family.name: family.options.get("accept_threshold") for family in FAMILIES.values()}
    named = ", ".join(f"`{name}` {value}" for name, value in thresholds.items() if value is not None)
    assert f"  Families with a different default `accept_threshold`: {named}.\n" in PAGE.read_text()


def test_the_command_lists_every_family(capsys):
    assert main(["models", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [row["name"] for row in rows] == list(FAMILIES)
    assert all(row["strategies"][0] == (FAMILIES[row["name"]].decoding_strategy or row["strategies"][0]) for row in rows)
    assert main(["models"]) == 0
    assert "llada2dot1_mini" in capsys.readouterr().out


SECTION = {
    "decoding_strategy": "causal_blocks",
    "training": "bidirectional",
    "head_shift": 1,
    "accept_rule": "B",
    "mask_token_id": 3,
}


def test_the_page_lists_the_keys_of_the_section_and_each_has_an_effect(tmp_path):
    page = PAGE.read_text().partition("## The `dlstep` section")[2]
    rows = dict(re.findall(r"^\| `(\w+)` \| (.*?) \|", page, re.MULTILINE))
    assert tuple(rows) == SPEC_FACTS == tuple(SECTION)
    assert re.findall("`(.*?)`", rows["training"]) == list(TRAININGS)
    folder = tmp_path / "model"
    shutil.copytree(tiny.path("tiny-bd"), folder)
    facts = json.loads((folder / "config.json").read_text())
    assert json.dumps(facts["dlstep"]) in page
    before = read_description(folder)
    for key, value in (SECTION | {"block_size": 4}).items():
        (folder / "config.json").write_text(json.dumps(facts | {"dlstep": facts["dlstep"] | {key: value}}))
        after = read_description(folder)
        assert (after.spec, after.training, after.decoding_strategy, after.options) != (
            before.spec, before.training, before.decoding_strategy, before.options
        ), key  # fmt: skip
