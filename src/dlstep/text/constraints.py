"""Compile the regexes, choices, grammars and JSON schemas of sampling parameters to automata over token ids."""

from collections import OrderedDict
from hashlib import blake2b
from pkgutil import resolve_name
from threading import Event, Lock

from ..core import Add, Refused, Spec, Trace, short
from ..core.automaton import Automaton, Edges
from ..extras import require
from .limited_worker import LimitedWorker, LimitError, NotDoneError

MOST_KEPT = 256  # cached results
MOST_BYTES = 1 << 25  # of the automata among them
Marks = tuple[str, str] | None

_worker = LimitedWorker()
_results: OrderedDict[tuple[str, bytes, Spec, Marks], Automaton | str] = OrderedDict()  # or the reason of a refusal
_lock = Lock()


def recompiled(trace: Trace) -> Trace:
    """Return the trace after compiling the constraints of its requests, because traces do not store their tables.

    Raises ValueError if a constraint cannot be compiled.
    """
    first = trace.first
    requests = [sequence.request for sequence in (*first.running, *first.waiting)]
    requests += [event.request for event in trace.events if isinstance(event, Add)]
    for request in requests:
        if (source := request.params.constraint_source) is not None:
            compiled(*source, first.config.spec)
    return trace


def compiled(kind: str, text: str, spec: Spec, stopped: Event | None = None, marks: Marks = None) -> Automaton:
    """Return the automaton of a constraint, which is compiled with limited time and memory.

    Args:
        kind: The parameter of `SamplingParams`: "regex", "choice", "grammar" or "json_schema".
        text: The value of the parameter; choices as a JSON list.
        spec: Facts of the model, with the bytes of each token id.
        stopped: Identifies the compilation for `stop`.
        marks: Marks around free text before the constrained text, such as reasoning. The first may be empty.

    Raises:
        Refused: `text` is invalid, too large, or matches nothing that the tokenizer can spell. The error is cached.
        NotDoneError: The process that compiles it was killed or failed, or the compilation was stopped.
    """
    result = known(kind, text, spec, marks)
    if result is None:
        kept = _compiled(kind, text, spec, stopped, marks)
        with _lock:
            _results[_key(kind, text, spec, marks)] = kept
            sizes = [len(result.tables) for result in _results.values() if isinstance(result, Automaton)]
            while len(_results) > MOST_KEPT or sum(sizes) > MOST_BYTES:
                _, dropped = _results.popitem(last=False)
                sizes = sizes[isinstance(dropped, Automaton) :]
        result = _checked(kind, kept)
    return result


def known(kind: str, text: str, spec: Spec, marks: Marks = None) -> Automaton | None:
    """Return what `compiled` returned for these arguments, or raise its error; None if it must be compiled."""
    if not spec.pieces:
        raise Refused(kind, "unsupported", "it needs a tokenizer, which this model does not have")
    key = _key(kind, text, spec, marks)
    with _lock:
        if key not in _results:
            return None
        _results.move_to_end(key)
        return _checked(kind, _results[key])


def _key(kind: str, text: str, spec: Spec, marks: Marks) -> tuple[str, bytes, Spec, Marks]:
    """Return the key of a result in the cache, with a hash instead of the text."""
    return kind, blake2b(text.encode(errors="surrogatepass")).digest(), spec, marks


def _checked(kind: str, result: Automaton | str) -> Automaton:
    if isinstance(result, str):
        raise Refused(kind, "invalid_value", result)
    return result


def array_edges(automaton: Automaton, gap: int) -> Edges:
    """Return the edges of an automaton as arrays. The import by name keeps NumPy out of processes that read no constraint."""
    edges: Edges = resolve_name("dlstep.text.edges:ArrayEdges")(automaton, gap)
    return edges


def stop(compilation: Event) -> None:
    """Stop a compilation: `compiled` raises NotDoneError."""
    _worker.stop(compilation)


def _compiled(kind: str, text: str, spec: Spec, stopped: Event | None, marks: Marks) -> Automaton | str:
    """Return the automaton of a constraint, or the reason why there is none."""
    source = f"{kind}={short(text)}"
    if kind == "json_schema":
        require(kind, "structured")
    forbidden = (*spec.eos_ids, *(() if spec.mask_id is None else (spec.mask_id,)))
    try:
        job = ("dlstep.text.compilation:tables", kind, text, spec.pieces[: spec.vocab_size], forbidden, marks)
        return Automaton.of(source, _worker.ask(*job, stopped=stopped), array_edges)
    except NotDoneError as error:
        raise NotDoneError(f"{source} was not compiled: {error}") from error
    except LimitError as error:
        return f"{source} cannot be compiled: {error}"
    except ValueError as error:
        return str(error)
