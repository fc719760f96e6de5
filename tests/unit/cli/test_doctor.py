"""`dlstep doctor`: what it finds, on a machine and in an environment where things are missing or broken."""

import json
import subprocess
import sys

import numpy
import pytest
import torch
from huggingface_hub import constants

from dlstep import __version__
from dlstep.cli import doctor
from dlstep.extras import EXTRAS


def test_it_prints_a_table_of_80_columns_and_the_same_facts_as_json(printed, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    text, facts = printed("doctor"), json.loads(printed("doctor --json"))
    assert max(map(len, text.splitlines())) <= 80
    assert facts["dlstep"] == __version__ and facts["torch"] == torch.__version__ and "problem" not in facts
    names = [line.split()[0] for line in text.splitlines() if not line.startswith(" ")]
    assert {"python", "dlstep", "torch", "triton", "transformers", "cpu", "kernels", "hub", "sandbox"} <= {*names}


def test_missing_packages_come_with_the_command_that_installs_them():
    assert {f"[{name}]" for name in EXTRAS} <= doctor.facts_of().keys()
    fact = doctor.extra_fact("serve", ["nosuchpackage 4.11", "numpy"])
    assert fact == f"numpy {numpy.__version__}; missing nosuchpackage: pip install 'dlstep[serve]'"
    assert doctor.extra_fact("serve", ["numpy"]) == f"numpy {numpy.__version__}"


def test_a_cuda_that_is_broken_is_a_reason(monkeypatch):
    def init():
        raise RuntimeError("the driver is\nbroken")

    monkeypatch.setattr(torch.version, "cuda", "13.0")
    monkeypatch.setattr(torch.cuda, "init", init)
    facts = doctor.devices_of()
    assert [*facts] == ["cuda", "cpu", "kernels"] and facts["cuda"] == "not available: the driver is broken"
    assert facts["kernels"].startswith("none: ")


@pytest.mark.parametrize("offline", [False, True])
def test_the_hub_is_offline_if_its_client_is(monkeypatch, offline):
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", offline)
    assert ("offline" in doctor.hub_facts()["hub"]) == offline


MISSING = "sys.modules[{!r}] = None"
BROKEN = """
class Broken(Loader):
    def find_spec(self, name, path=None, target=None):
        return spec_from_loader(name, self) if name == {!r} else None
    def exec_module(self, module):
        raise OSError("libbroken.so: cannot open\\nshared object file")
sys.meta_path.insert(0, Broken())
"""


@pytest.mark.full
@pytest.mark.parametrize(
    "fault, name, code, shown",
    [
        (BROKEN, "torch", 1, "torch cannot be imported: libbroken.so: cannot open shared object file"),
        (MISSING, "huggingface_hub", 1, "hub import of huggingface_hub halted"),
        (MISSING, "triton", 0, "kernels none: triton is not installed"),
    ],
)
def test_a_package_that_cannot_be_imported_is_reported(fault, name, code, shown):
    """Without torch or transformers no model can be loaded, which is exit code 1; transformers needs the hub."""
    program = f"""
import sys
from importlib.abc import Loader
from importlib.util import spec_from_loader
{fault.format(name)}
from dlstep.cli import main
raise SystemExit(main(["doctor"]))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert "Traceback" not in done.stderr
    assert done.returncode == code, done.stderr
    assert shown in " ".join(done.stdout.split())
