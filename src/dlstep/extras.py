"""Packages that only some commands need, and the extra of dlstep that installs them."""

from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec

# For each extra of pyproject.toml: the modules that dlstep imports, and the package of each module. A package is
# followed by a version if only that version works.
EXTRAS = {
    "completion": {"shtab": "shtab"},
    "eval": {
        "antlr4": "antlr4-python3-runtime 4.11",
        "datasets": "datasets",
        "evaluate": "evaluate",
        "lm_eval": "lm-eval",
        "math_verify": "math-verify",
    },
    "laws": {"hypothesis": "hypothesis", "pytest": "pytest", "pytest_timeout": "pytest-timeout"},
    "lora": {"peft": "peft"},
    "notebook": {"matplotlib": "matplotlib"},
    "parquet": {"pyarrow": "pyarrow"},
    "ray": {"pyarrow": "pyarrow", "ray": "ray"},
    "serve": {"fastapi": "fastapi", "openai": "openai", "prometheus_client": "prometheus-client", "uvicorn": "uvicorn"},
    "structured": {"jsonschema": "jsonschema", "referencing": "referencing"},
}


def installed(package: str) -> str:
    """Return the version of a package; empty if it is not installed."""
    try:
        return version(package)
    except PackageNotFoundError:
        return ""


def _found(module: str, package: str) -> bool:
    """Return whether a module can be imported and its package has the required version."""
    name, _, needed = package.partition(" ")
    return find_spec(module) is not None and (not needed or installed(name).startswith(f"{needed}."))


def require(user: str, extra: str) -> None:
    """Raise ValueError if a package of an extra is missing. `user` is the command or option that needs it."""
    if missing := [package for module, package in EXTRAS[extra].items() if not _found(module, package)]:
        raise ValueError(f"{user} needs {' and '.join(missing)}: pip install 'dlstep[{extra}]'")
