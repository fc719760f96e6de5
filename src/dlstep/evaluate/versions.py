"""The facts that answers and scores depend on: the engine, the versions of code and libraries, and the machine."""

import platform
import sys
from collections.abc import Iterable
from contextlib import suppress
from functools import cache
from hashlib import blake2b
from importlib.metadata import PackageNotFoundError, version
from inspect import getsource, isfunction
from pathlib import Path
from typing import Any, NamedTuple

from .. import __version__
from ..core import Config, Options, Strategy, options_of
from ..driver import TorchDriver
from ..engine.loader import Engine

FOLDER = Path(__file__).parent
PACKAGE = FOLDER.parent
LIBRARIES = ("torch", "transformers", "math-verify", "sympy", "antlr4-python3-runtime")
# Every other file of this folder counts for the scores, so that a new file is included by default.
DECIDES_NOTHING = {
    "__init__.py", "checkpoint.py", "comparing.py", "comparison_html.py", "entries.py",
    "harness.py", "intervals.py", "likelihood.py", "load.py", "metrics.py",
    "pictures.py", "report.py", "report_html.py", "space.py",
    "table.py", "tuning.py", "versions.py",
}  # fmt: skip
PROMPTS = ("documents.py", "forms.yaml", "items.py", "options.py", "prompts.py", "worked.json")
PARTS = {
    "decoding": [PACKAGE / name for name in ("core", "distributed", "driver", "models", "rules", "strategies", "tiny")]
    + [PACKAGE.parent / "dlstep_kernels"],
    "prompts": [*(FOLDER / name for name in PROMPTS), *(PACKAGE / "text").glob("*.py")],
    "scorers": [path for path in FOLDER.glob("*.*") if path.is_file() and path.name not in (*DECIDES_NOTHING, *PROMPTS)],
}


class About(NamedTuple):
    """The engine of a crew: the facts that its answers depend on, and how many requests it decodes at once (`seats`).

    `versions` and `environment` are part of the key of a run; `machine` is recorded in its folder only.
    """

    facts: dict[str, Any]
    seats: int
    config: Config
    strategy: Strategy
    versions: dict[str, str]
    environment: dict[str, str]
    machine: dict[str, str]


def about(engine: Engine) -> About:
    """Return the facts of an engine."""
    config = engine.first.config
    facts = {
        "model": engine.name,
        "fingerprint": config.spec.fingerprint,
        "strategy": repr(engine.first.strategy),
        "max_model_len": config.max_model_len,
        "seed": config.seed,
    }
    code = versions(engine), environment(engine), machine(engine)
    return About(facts, config.max_num_reqs, config, engine.first.strategy, *code)


def digest_of(files: Iterable[tuple[str, bytes]]) -> str:
    """Return a digest of files, given by name and content, in any order."""
    each = sorted((name, blake2b(content).hexdigest()) for name, content in files)
    return blake2b(repr(each).encode(), digest_size=8).hexdigest()


def sources(part: str) -> list[Path]:
    """Return the source files of a part of `PARTS`."""
    return [file for path in PARTS[part] for file in (path.rglob("*.py") if path.is_dir() else [path])]


@cache
def source_digest(part: str) -> str:
    """Return the digest of the source files of a part."""
    return digest_of((file.relative_to(PACKAGE.parent).as_posix(), file.read_bytes()) for file in sources(part))


def versions(engine: Engine) -> dict[str, str]:
    """Return the version of the package, and digests of the sources that determine tokens, prompts and scores.

    The source of a strategy or a rule outside the package is part of `decoding`.
    """
    found = {"dlstep": __version__} | {part: source_digest(part) for part in PARTS}
    strategy = engine.first.strategy
    kinds = {type(value) for value in (strategy, *options_of(strategy).values()) if isinstance(value, Options)}
    if own := dict(own_source(kind) for kind in kinds if not kind.__module__.startswith("dlstep.")):
        found["decoding"] += f" {digest_of(own.items())}"
    return found


def own_source(kind: type) -> tuple[str, bytes]:
    """Return the name and the content of the file that defines a class; in a notebook, which has none, its functions."""
    file = getattr(sys.modules[kind.__module__], "__file__", None)
    if file is not None:
        return Path(file).name, Path(file).read_bytes()
    parts = [kind.__qualname__]
    for member in vars(kind).values():
        function = member.fget if isinstance(member, property) else member
        if isfunction(function):
            with suppress(OSError):  # made by `dataclass`, or typed where nothing keeps the source
                parts.append(getsource(function))
    return kind.__qualname__, "\n".join(parts).encode()


def environment(engine: Engine) -> dict[str, str]:
    """Return the versions of Python and libraries, the kind of device and the dtype: each may change an answer or a score."""
    found = {"python": ".".join(platform.python_version_tuple()[:2])} | {name: installed(name) for name in LIBRARIES}
    if isinstance(engine.driver, TorchDriver):
        model = engine.driver.network.model
        found |= {"device": model.device.type, "dtype": str(model.dtype).removeprefix("torch.")}
    return found


def machine(engine: Engine) -> dict[str, str]:
    """Return facts that may change when a run resumes: the exact Python version, the system and the name of the device."""
    device = "cpu"
    if isinstance(engine.driver, TorchDriver) and engine.driver.network.model.device.type == "cuda":
        import torch

        device = torch.cuda.get_device_name(engine.driver.network.model.device)
    return {"python": platform.python_version(), "system": platform.platform(), "device": device}


def installed(name: str) -> str:
    """Return the version of a distribution, empty if it is not installed."""
    try:
        return version(name)
    except PackageNotFoundError:
        return ""
