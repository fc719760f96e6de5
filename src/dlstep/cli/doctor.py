"""`dlstep doctor`: what this machine and this Python environment can use."""

import os
import platform
from collections.abc import Iterator
from dataclasses import KW_ONLY, dataclass
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from .. import __version__
from ..core import DlstepError
from ..engine.devices import GIB
from ..extras import EXTRAS
from ..text.words import counted, printable
from ..views.progress_bars import waiting_line
from .json_text import json_text
from .options import command_parser
from .parser import ArgumentParser, Namespace

NEEDED = ("torch", "transformers", "triton", "tokenizers", "safetensors", "huggingface-hub", "numpy")
Facts = dict[str, Any]
EXAMPLES = "dlstep doctor\ndlstep doctor --json"


@dataclass(frozen=True)
class DoctorOptions:
    """Check versions, devices, kernels, the model cache, the jail for generated programs, and optional packages."""

    _: KW_ONLY
    json: bool = False
    """Print a JSON object, and nothing else, on stdout."""


def parser() -> ArgumentParser:
    """Return the parser of `dlstep doctor`."""
    return command_parser("doctor", DoctorOptions, EXAMPLES)


def run(options: Namespace) -> int:
    """Print the facts. Return 1 if torch or transformers cannot be imported, as then no model can be loaded; else 0."""
    with waiting_line("importing torch and transformers"):
        facts = facts_of()
    if options.json:
        print(json_text(facts))
    else:
        print_table(facts)
    return int(bool(facts["problems"]))


def facts_of() -> Facts:
    """Return all facts as JSON data."""
    problems = [reason for name in ("torch", "transformers") if (reason := import_problem(name)) is not None]
    devices, cuda_problem = devices_of() if not problems else ([], None)
    return {
        "versions": {"python": platform.python_version(), "dlstep": __version__, **{name: version_of(name) for name in NEEDED}},
        "problems": problems,
        "devices": devices,
        "cuda_problem": cuda_problem,
        "kernels": kernels_of(devices),
        "hub": hub_facts(),
        "jail": jail_facts(),
        "extras": [extra_facts(name, [*packages.values()]) for name, packages in EXTRAS.items()],
    }


def version_of(name: str) -> str | None:
    """Return the version of an installed package; None if it is not installed."""
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def import_problem(name: str) -> str | None:
    """Return why a package cannot be imported; None if it can."""
    try:
        import_module(name)
    except Exception as error:  # noqa: BLE001 - a broken installation may raise anything
        return f"{name} cannot be imported: {_one_line(error)}"
    return None


def devices_of() -> tuple[list[Facts], str | None]:
    """Return the devices that torch finds, and the reason why it cannot use CUDA (None if it can)."""
    import torch

    cpu = {"name": "cpu", "description": f"{os.cpu_count()} cores, torch uses {torch.get_num_threads()} threads"}
    try:
        if torch.version.cuda is None:
            return [cpu], "this torch was built without CUDA"
        torch.cuda.init()
        found = [_cuda_device(number) for number in range(torch.cuda.device_count())]
    except Exception as error:  # noqa: BLE001 - a broken driver may raise anything
        return [cpu], _one_line(error)
    return [*found, cpu], None if found else "torch finds no CUDA device"


def _cuda_device(number: int) -> Facts:
    import torch

    from dlstep_kernels.choice import has_kernels

    properties = torch.cuda.get_device_properties(number)
    capability = f"{properties.major}.{properties.minor}"
    return {
        "name": f"cuda:{number}",
        "description": f"{properties.name}, {properties.total_memory / GIB:.0f} GiB, compute capability {capability}",
        "kernels": has_kernels(torch.device("cuda", number)),
    }


def kernels_of(devices: list[Facts]) -> Facts:
    """Return how Triton kernels run here: compiled, in Triton's interpreter (tests only) or not at all, and why."""
    able = [device["name"] for device in devices if device.get("kernels")]
    if able:
        return {"kind": "compiled", "reason": f"on {', '.join(able)}"}
    if find_spec("triton") is None:
        return {"kind": "none", "reason": "triton is not installed; decoding uses PyTorch"}
    if any(device["name"] != "cpu" for device in devices):
        return {"kind": "none", "reason": "they need compute capability 8.0 or above; decoding uses PyTorch"}
    if os.environ.get("TRITON_INTERPRET") == "1":
        return {"kind": "interpreter", "reason": "TRITON_INTERPRET=1, for tests; decoding uses PyTorch"}
    return {"kind": "none", "reason": "there is no CUDA device; decoding uses PyTorch"}


def hub_facts() -> Facts:
    """Return the settings of the Hugging Face hub client, and the names of the models in its cache."""
    try:
        from huggingface_hub import constants
    except Exception as error:  # noqa: BLE001 - a broken installation may raise anything
        return {"problem": _one_line(error)}
    cache = Path(constants.HF_HUB_CACHE)
    models = [path.name.removeprefix("models--").replace("--", "/") for path in sorted(cache.glob("models--*"))]
    return {"endpoint": constants.ENDPOINT, "cache": str(cache), "models": models, "offline": constants.HF_HUB_OFFLINE}


def jail_facts() -> Facts:
    """Return whether the jail for programs written by a model is available, and the reason if it is not."""
    from ..evaluate.jail import find_jail

    try:
        find_jail()
    except (DlstepError, ValueError, OSError) as error:
        return {"available": False, "reason": _one_line(error)}
    return {"available": True, "reason": ""}


def extra_facts(name: str, packages: list[str]) -> Facts:
    """Return the installed versions of an extra's packages, the missing packages, and the command that installs them."""
    versions = {name: version_of(name) for name in [package.partition(" ")[0] for package in packages]}
    missing = [package for package, found in versions.items() if found is None]
    install = f"pip install 'dlstep[{name}]'" if missing else None
    return {"name": name, "versions": versions, "missing": missing, "install": install}


def print_table(facts: Facts) -> None:
    """Print the facts as a table, one line per fact."""
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0), pad_edge=False)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for name, text in lines(facts):
        table.add_row(Text(name, "bold"), Text(printable(text)))
    Console().print(table)


def lines(facts: Facts) -> Iterator[tuple[str, str]]:
    """Yield the name and the text of each line of the table."""
    for name, found in facts["versions"].items():
        yield name, found or "not installed"
    for problem in facts["problems"]:
        yield "problem", problem
    for device in facts["devices"]:
        yield device["name"], device["description"]
    if facts["cuda_problem"]:
        yield "cuda", f"not available: {facts['cuda_problem']}"
    yield "kernels", f"{facts['kernels']['kind']}: {facts['kernels']['reason']}"
    hub = facts["hub"]
    if "problem" in hub:
        yield "hub", hub["problem"]
    else:
        yield "hub", f"{hub['endpoint']}, {'offline (HF_HUB_OFFLINE)' if hub['offline'] else 'not contacted by this command'}"
        yield "hub cache", f"{hub['cache']}, {counted(len(hub['models']), 'model')}"
    jail = facts["jail"]
    yield "jail", "available" if jail["available"] else f"not available: {jail['reason']}"
    for extra in facts["extras"]:
        found = ", ".join(f"{name} {number}" for name, number in extra["versions"].items() if number)
        lacking = f"missing {', '.join(extra['missing'])}: {extra['install']}" if extra["missing"] else ""
        yield f"[{extra['name']}]", "; ".join(filter(None, (found, lacking)))


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__
