"""`docs/structure.md` describes exactly the laws that `dlstep laws` runs."""

import re

from dlstep.testing.trial import KNOWN

from .blocks import ROOT


def test_the_table_of_laws_names_those_of_the_command():
    _, _, section = (ROOT / "docs" / "structure.md").read_text().partition("\n## The laws\n")
    rows = re.findall(r"^\| (`.*?`) \|", section.partition("\n## ")[0], re.MULTILINE)
    assert sorted(re.findall(r"`(\w+)`", " ".join(rows))) == sorted(KNOWN)
