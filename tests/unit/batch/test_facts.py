"""The facts that answers depend on: the code of strategies and rules is among them."""

import linecache
import sys
from pathlib import Path
from types import ModuleType

import dlstep
from dlstep import LLM
from dlstep.batch import facts

PACKAGE = Path(dlstep.__file__).parent


def test_a_rule_of_a_file_is_among_the_facts(tmp_path):
    source = (
        (PACKAGE / "rules" / "threshold.py")
        .read_text()
        .replace("from ..core", "from dlstep.core")
        .replace("from ._", "from dlstep.rules._")
    )
    found = []
    for number, text in enumerate((source, f"{source}\n# changed\n")):
        path = tmp_path / f"mine{number}.py"
        path.write_text(text)
        found.append(facts.code_of(LLM("tiny-bd", rule=str(path)).engine))
    plain = facts.code_of(LLM("tiny-bd").engine)
    assert found[0] != found[1] and [each.keys() - plain.keys() for each in found] == [{"Threshold"}] * 2
    assert all(each[name] == value for each in found for name, value in plain.items())


def test_a_rule_of_a_notebook_is_among_the_facts(monkeypatch):
    """A notebook's module has no file; IPython keeps the source of each cell for `linecache`."""
    monkeypatch.setitem(sys.modules, "notebook", ModuleType("notebook"))
    for number, order in enumerate((b"min", b"max")):
        source = f"class Own:\n    def chosen(self, rows):\n        return {order.decode()}(rows)\n"
        name = f"cell-{number}"
        monkeypatch.setitem(linecache.cache, name, (len(source), None, source.splitlines(keepends=True), name))
        scope = {"__name__": "notebook"}
        exec(compile(source, name, "exec"), scope)
        assert order in facts.own_source(scope["Own"])
