"""dlstep decodes diffusion language models step by step.

Importing it needs no array library; `LLM`, `Session` and `EngineConfig` load on first use.
"""

import sys
import warnings
from importlib import import_module
from typing import TYPE_CHECKING, Any

from .core import (
    CacheMismatch as CacheMismatch,
    Config as Config,
    DlstepError as DlstepError,
    Plan as Plan,
    ReplayDiverged as ReplayDiverged,
    Request as Request,
    Samples as Samples,
    SamplingParams as SamplingParams,
    Span as Span,
    SpanSamples as SpanSamples,
    Spec as Spec,
    State as State,
    StepMap as StepMap,
    Strategy as Strategy,
    TokenChange as TokenChange,
    Trace as Trace,
    TrainingExample as TrainingExample,
    abort as abort,
    add as add,
    commit as commit,
    examples as examples,
    init as init,
    prune as prune,
    rebuild as rebuild,
    schedule as schedule,
)
from .text.words import print_pretty as _pretty

if TYPE_CHECKING:
    from .engine.config import EngineConfig as EngineConfig
    from .llm import LLM as LLM, Draft as Draft
    from .parquet import write_parquet as write_parquet
    from .session import Session as Session
    from .text.output import LogLikelihood as LogLikelihood, Output as Output, ReadOutput as ReadOutput

__version__ = "0.1.0"

_LATER = {
    "EngineConfig": "engine.config",
    "LLM": "llm",
    "Draft": "llm",
    "LogLikelihood": "text.output",
    "Output": "text.output",
    "ReadOutput": "text.output",
    "Session": "session",
    "write_parquet": "parquet",
}


def __getattr__(name: str) -> object:
    """Import a public name that is heavier than the core on first use."""
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return vars(import_module(f".{_LATER[name]}", __name__))[name]


def __dir__() -> list[str]:
    return sorted({*globals(), *_LATER})


def _text(self: Any) -> str:
    """Return the `str` of a core value. `views`, which writes it, loads on first use."""
    return import_module(".views.texts", __name__).text_of(self)


def _html(self: State) -> str:
    """Return a state as HTML, which notebooks show."""
    return import_module(".views.notebook", __name__).state_html(self)


for _kind in (State, Plan, Samples, Trace):
    for _name, _method in (("__str__", _text), ("_repr_pretty_", _pretty)):
        setattr(_kind, _name, _method)
State._repr_html_ = _html  # pyright: ignore[reportAttributeAccessIssue]

if "IPython" in sys.modules:  # tqdm, which transformers imports, warns about missing widgets, which dlstep does not need
    warnings.filterwarnings("ignore", message="IProgress not found")
