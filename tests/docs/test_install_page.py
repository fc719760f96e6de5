"""`docs/install.md` describes every extra of pyproject.toml, and the commands that need it."""

import re
import tomllib

from ..release_check import ROOT
from ..unit.test_extras import USERS

PAGE = (ROOT / "docs" / "install.md").read_text()
ROWS = dict(re.findall(r"^\| `([\w-]+)` \|.*\|(.*)\|$", PAGE, re.MULTILINE))
FOR_DEVELOPERS = {"test", "full", "docs", "mutate", "release"}


def test_the_table_has_every_extra():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert ROWS.keys() == project["optional-dependencies"].keys() - FOR_DEVELOPERS
    assert all(f"`{extra}`" in PAGE for extra in FOR_DEVELOPERS)


def test_the_table_has_the_commands_that_ask_for_an_extra():
    for extra, user, (command, *_) in USERS:
        needed = user.split()[-1]  # such as `math500`, `--plot`, `batch`
        named = ROWS[extra].replace("EngineConfig.", "--")
        assert needed.removeprefix("EngineConfig.") in named and (f"dlstep {command}" in named or extra == "lora"), user
