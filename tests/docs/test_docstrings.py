"""The public interface documents each of its parameters, and only those."""

import ast
import inspect
from dataclasses import is_dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from types import FunctionType, MethodType

from docstring_parser import parse_from_object

from dlstep import rules, strategies
from dlstep.engine.buffer_policy import BufferPolicy
from dlstep.engine.config import EngineConfig
from dlstep.llm import LLM

PUBLIC = (
    *("dlstep", "dlstep.core", "dlstep.models", "dlstep.rules", "dlstep.strategies", "dlstep.testing", "dlstep.views"),
    *("dlstep.engine.hub", "dlstep.stream", "dlstep_kernels"),
)


def reexported(module):
    """Return the names that the module imports for its users, in the form `x as x`."""
    tree = ast.parse(Path(module.__file__).read_text())
    aliases = [alias for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) for alias in node.names]
    return {alias.name for alias in aliases if alias.asname == alias.name}


def public():
    """Return the public classes and functions by path."""
    found = [BufferPolicy, EngineConfig]
    found += [group.load(name) for group in (strategies.PLUGINS, rules.PLUGINS) for name in group.own()]
    for name in PUBLIC:
        module = import_module(name)
        found += [getattr(module, key) for key in reexported(module)]
        # Bound methods are functions of a module, such as `strategies.load`.
        own = [value for key, value in vars(module).items() if not key.startswith("_")]
        found += [value for value in own if isinstance(value, MethodType) or getattr(value, "__module__", None) == name]
    called = [inspect.unwrap(value) for value in found if callable(value)]  # kernels wrap their twins
    plain = [value.__func__ if isinstance(value, MethodType) else value for value in called]
    return {f"{value.__module__}.{value.__qualname__}": value for value in plain if isinstance(value, type | FunctionType)}


def parameters(value):
    """Return the names of the parameters of a function or of a class's constructor."""
    if isinstance(value, type) and (getattr(value, "_is_protocol", False) or not isinstance(value.__init__, FunctionType)):
        return set()
    names = list(inspect.signature(value).parameters)
    return set(names[names[:1] in (["self"], ["cls"]) :])


@cache
def documented(value):
    """Return the parameters or fields that the docstrings of a function or class describe, with their texts."""
    described = [(param.arg_name.lstrip("*"), param.description) for param in parse_from_object(value).params]
    return {name: " ".join(text.split()) for name, text in described if text}


def faults(path, value):
    """Yield what is wrong with the docstring of a function, or with those of a class and of the methods that it defines."""
    known = parameters(value).union(inspect.get_annotations(value) if isinstance(value, type) else ())
    above = value.__mro__[1:-1] if isinstance(value, type) else ()
    inherited = [name for base in above if is_dataclass(base) for name in documented(base)]
    yield from (f"{path}: {name} is not documented" for name in parameters(value).difference(documented(value), inherited))
    yield from (f"{path}: {name} is documented, but does not exist" for name in documented(value).keys() - known)
    for name, member in vars(value).items() if isinstance(value, type) else ():
        method = member.__func__ if isinstance(member, classmethod | staticmethod) else member
        if isinstance(method, FunctionType) and not name.startswith("_"):
            overridden = [param for base in above if name in vars(base) for param in documented(vars(base)[name])]
            given, described = parameters(method), documented(method).keys()
            yield from (f"{path}.{name}: {param} is not documented" for param in given.difference(described, overridden))
            yield from (f"{path}.{name}: {param} is documented, but does not exist" for param in described - given)


def test_docstrings_document_each_parameter_and_no_other():
    api = public()
    found = {"dlstep.llm.LLM", "dlstep.core.plan.Span", "dlstep.rules.quota.Quota", "dlstep_kernels.sampling.sample"}
    assert len(api) > 150 and found <= api.keys()
    assert not sorted(fault for path, value in api.items() for fault in faults(path, value))


def test_docstring_of_llm_describes_the_fields_of_the_configuration_alike():
    assert documented(LLM).items() >= documented(EngineConfig).items()
