"""`import dlstep` is light."""

import subprocess
import sys

import pytest

import dlstep
from dlstep.core.request import PLUGINS

PROCESSORS = ", ".join(f"dlstep.processors.{name}" for name in PLUGINS.own())
HEAVY = ("torch", "numpy", "transformers", "tokenizers", "safetensors", "triton", "rich", "yaml", "hypothesis", "matplotlib")


def loaded(statement):
    """Which heavy packages a fresh process has after `statement`."""
    code = f"import sys; {statement}; print(*[name for name in {HEAVY!r} if name in sys.modules])"
    return set(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split())


@pytest.mark.parametrize(
    "module",
    [
        "dlstep",
        "dlstep.core",
        "dlstep.strategies, dlstep.rules, dlstep.testing",
        PROCESSORS,
        "dlstep.tiny",
        "dlstep.engine.config",
    ],
)
def test_a_light_module_loads_nothing_heavy(module):
    assert loaded(f"import {module}") == set()


def test_views_load_no_plots():
    assert "matplotlib" not in loaded("import dlstep.views")


def test_naming_the_llm_loads_no_array_library():
    assert not {"torch", "numpy", "transformers"} & loaded("import dlstep; dlstep.LLM; dlstep.Session; dlstep.EngineConfig")


def test_the_help_of_the_command_loads_no_array_library():
    run = "from contextlib import redirect_stdout, suppress; from io import StringIO; from dlstep.cli import main"
    assert loaded(f"{run}\nwith suppress(SystemExit), redirect_stdout(StringIO()): main(['--help'])\nNone") == {"yaml"}


def test_public_names_are_found_and_others_are_not():
    assert {"LLM", "Session", "EngineConfig", "Output", "schedule"} <= set(dir(dlstep))
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        dlstep.nonsense  # noqa: B018


def test_values_are_written_where_only_the_core_is_imported():
    code = "from dlstep.core import Request, trace; print(trace.to_json(Request(0, (1,)))['class'])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == (
        "dlstep.core:Request\n"
    )
