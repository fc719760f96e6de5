"""`dlstep doctor`: what this machine and this Python environment can use."""

import os
import platform
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from .. import __version__
from ..core import DlstepError
from ..engine.devices import GIB
from ..extras import EXTRAS, installed
from ..text.words import counted, one_line, printable
from ..views.progress_bars import waiting_line
from .options import Namespace, json_text

NEEDED = ("torch", "transformers", "triton", "tokenizers", "safetensors", "huggingface-hub", "numpy")
PROBLEM = "problem"
Facts = dict[str, str]  # from the name of a package, device or service to what it is
EXAMPLES = "dlstep doctor\ndlstep doctor --json"


@dataclass(frozen=True, kw_only=True)
class DoctorCommand:
    """Check versions, devices, kernels, the model cache, the sandbox for generated programs, and optional packages."""

    json: bool = False
    """Print a JSON object, and nothing else, on stdout."""


COMMAND = DoctorCommand


def run(options: Namespace) -> int:
    """Print the facts. Return 1 if torch or transformers cannot be imported, as then no model can be loaded; else 0."""
    with waiting_line("importing torch and transformers"):
        facts = facts_of()
    if options.json:
        print(json_text(facts))
    else:
        table = Table(box=None, show_header=False, padding=(0, 2, 0, 0), pad_edge=False)
        table.add_column(no_wrap=True)
        table.add_column(overflow="fold")
        for name, text in facts.items():
            table.add_row(Text(name, "bold"), Text(printable(text)))
        Console().print(table)
    return int(PROBLEM in facts)


def facts_of() -> Facts:
    """Return all facts."""
    facts = {"python": platform.python_version(), "dlstep": __version__}
    facts |= {name: installed(name) or "not installed" for name in NEEDED}
    problems = [problem for name in ("torch", "transformers") if (problem := import_problem(name))]
    facts |= {PROBLEM: "; ".join(problems)} if problems else devices_of()
    facts |= hub_facts() | {"sandbox": sandbox_fact()}
    return facts | {f"[{name}]": extra_fact(name, [*packages.values()]) for name, packages in EXTRAS.items()}


def import_problem(name: str) -> str:
    """Return why a package cannot be imported; empty if it can."""
    try:
        import_module(name)
    except Exception as error:  # noqa: BLE001 - a broken installation may raise anything
        return f"{name} cannot be imported: {_one_line(error)}"
    return ""


def devices_of() -> Facts:
    """Return the devices that torch finds, why it cannot use CUDA, and whether Triton kernels run on them."""
    import torch

    from dlstep_kernels import has_kernels

    facts, able = Facts(), list[str]()
    try:
        if torch.version.cuda is None:
            raise RuntimeError("this torch was built without CUDA")
        torch.cuda.init()
        for number in range(torch.cuda.device_count()):
            found, name = torch.cuda.get_device_properties(number), f"cuda:{number}"
            memory, capability = f"{found.total_memory / GIB:.0f} GiB", f"compute capability {found.major}.{found.minor}"
            facts[name] = f"{found.name}, {memory}, {capability}"
            able += [name] if has_kernels(torch.device(name)) else []
    except Exception as error:  # noqa: BLE001 - a broken driver may raise anything
        facts["cuda"] = f"not available: {_one_line(error)}"
    facts["cpu"] = f"{os.cpu_count()} cores, torch uses {torch.get_num_threads()} threads"
    needs = (
        "triton is not installed" if find_spec("triton") is None else "there is no device of compute capability 8.0 or above"
    )
    facts["kernels"] = f"compiled: on {', '.join(able)}" if able else f"none: {needs}; decoding uses PyTorch"
    return facts


def hub_facts() -> Facts:
    """Return the settings of the Hugging Face hub client, and the number of models in its cache."""
    try:
        from huggingface_hub import constants
    except Exception as error:  # noqa: BLE001 - a broken installation may raise anything
        return {"hub": _one_line(error)}
    cache, offline = Path(constants.HF_HUB_CACHE), constants.HF_HUB_OFFLINE
    models = counted(len([*cache.glob("models--*")]), "model")
    contact = "offline (HF_HUB_OFFLINE)" if offline else "not contacted by this command"
    return {"hub": f"{constants.ENDPOINT}, {contact}", "hub cache": f"{cache}, {models}"}


def sandbox_fact() -> str:
    """Return whether the sandbox for programs written by a model is available, and the reason if it is not."""
    from ..evaluate.programs import PROGRAMS

    try:
        PROGRAMS.check()
    except (DlstepError, OSError) as error:
        return f"not available: {_one_line(error)}"
    return "available"


def extra_fact(name: str, packages: list[str]) -> str:
    """Return the installed versions of an extra's packages, the missing packages, and the command that installs them."""
    versions = {package: installed(package) for package in [package.partition(" ")[0] for package in packages]}
    found = [f"{package} {number}" for package, number in versions.items() if number]
    missing = [package for package, number in versions.items() if not number]
    lacking = f"missing {', '.join(missing)}: pip install 'dlstep[{name}]'"
    return "; ".join(filter(None, (", ".join(found), lacking if missing else "")))


def _one_line(error: Exception) -> str:
    return one_line(error) or type(error).__name__
