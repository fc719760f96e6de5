"""Regexes, choices and JSON schemas: what they compile to, and why they are refused."""

import json
import re
import tracemalloc
from contextlib import closing
from threading import Event, Timer
from time import monotonic

import pytest
from hypothesis import example, given, strategies as st

from dlstep.core import Refused, Request, SamplingParams, Spec, Trace
from dlstep.core.automaton import Automaton
from dlstep.engine.decode import constrained
from dlstep.text import compilation, constraints, limited_worker
from dlstep.text.constraints import compiled
from dlstep.text.dfa import TooManyStates
from dlstep.text.limited_worker import LimitedWorker, NotDoneError
from dlstep.text.token_automaton import token_automaton

from ...helpers.compiler import suspend_compiler
from ...helpers.serving import tiny_llm

# Bytes, and ids of several bytes that cross the borders of JSON's parts; the last two are mask and end.
LONGER = (b'{"', b'":', b'", "', b'"}', b"},", b"ab", b"\xc3\xa9", b'\xa9"', b"true", b"null", b"12", b"  ", b"\n")
PIECES = (*[bytes([byte]) for byte in range(256)], *LONGER, b"", b"")
SPEC = Spec(len(PIECES) - 2, (len(PIECES) - 1,), len(PIECES), pieces=PIECES)


def accepts(kind, source, text):
    """Whether the automaton accepts a text, spelled in ids of one byte."""
    return compiled(kind, source, SPEC).accepts(tuple(text.encode()))


REGEXES = ["ab|xc", r"[0-9]{2,4}", r"(a|bc)*d?", r"é+", r"[^x]{1,3}", r"\d+[+-]\d+=\d+ shells\."]


@pytest.mark.parametrize("regex", REGEXES)
@given(data=st.data())
def test_a_regex_accepts_what_it_matches(regex, data):
    plain = re.compile(regex, re.ASCII)
    text = data.draw(st.from_regex(plain, fullmatch=True) | st.text(alphabet="abcdx0123é+= shel.", max_size=6))
    assert accepts("regex", regex, text) == bool(plain.fullmatch(text))


@given(choices=st.lists(st.text(min_size=1, max_size=5), min_size=1, max_size=6, unique=True), other=st.text(max_size=5))
def test_choices_accept_themselves_only(choices, other):
    params = SamplingParams(choice=tuple(choices))
    assert params.constraint_source is not None
    for text in (*choices, other):
        assert accepts(*params.constraint_source, text) == (text in choices)


CLOSED = st.text(alphabet="a</think>\n", max_size=8) | st.sampled_from(
    ["</think>", "</think", "<</think>\n", "é</thin</think>"]
)


@pytest.mark.parametrize("opening", ["", "<think>"])
@given(before=CLOSED, newlines=st.integers(0, 3), text=st.sampled_from(["ab", "xc", "\n", "b", "{}"]), begun=st.booleans())
@example(before="", newlines=2, text="b", begun=True)
def test_a_constraint_may_follow_a_text_between_marks(opening, before, newlines, text, begun):
    reasoning, _, answer = f"{before}</think>{newlines * chr(10)}{text}".partition("</think>")
    given_text = f"{opening if begun else '<thunk>'}{reasoning}</think>{answer}"
    for kind, source in (("regex", r"ab|\nb"), ("choice", '["xc"]'), ("json_schema", '{"type": "object"}')):
        texts = {answer.removeprefix("\n" * count) for count in range(3) if answer.startswith("\n" * count)}
        wanted = (begun or not opening) and any(accepts(kind, source, each) for each in texts)
        made = compiled(kind, source, SPEC, marks=(opening, "</think>"))
        assert made.accepts(tuple(given_text.encode())) == wanted
        assert not made.accepts(tuple(text.encode()))


PERSON = {"type": "object", "properties": {"name": {"type": "string"}, "age": {"type": "integer"}}, "required": ["name", "age"]}


@given(
    name=st.text(st.characters(min_codepoint=32, exclude_categories=["Cc", "Cs"]), max_size=4),
    age=st.integers(-(10**15), 10**15),
    spaced=st.booleans(),
)
def test_instances_are_texts_of_the_schema(name, age, spaced):
    text = json.dumps({"name": name, "age": age}, ensure_ascii=False, separators=(", ", ": ") if spaced else (",", ":"))
    assert accepts("json_schema", json.dumps(PERSON), text)


@pytest.mark.parametrize(
    "params, field, message",
    [
        ({"regex": "("}, "regex", r"regex='\(' cannot be compiled: it is not a regular expression: missing \)"),
        ({"regex": "a" * (1 << 21)}, "regex", "regex has 2097152 characters, and at most 1048576 are compiled"),
        ({"choice": ("\udc80",)}, "choice", ""),
        ({"json_schema": 3}, "json_schema", ""),
        ({"json_schema": "{"}, "json_schema", ""),
        ({"regex": "a", "choice": ("b",)}, "choice", ""),
    ],
)
def test_what_cannot_be_compiled_is_refused_by_name(params, field, message):
    with pytest.raises(Refused, match=f"^{field}: .*{message}"):
        constrained(Request(0, (1,), SamplingParams(**params)), SPEC)


LIMITED = [
    ("regex", "(a?){4000}"),
    ("json_schema", json.dumps({"type": "string", "pattern": "^(a?){4000}$"})),
]


@pytest.mark.parametrize("kind, source", LIMITED)
def test_one_limit_of_time_and_memory_holds_for_all_of_a_compilation(kind, source, monkeypatch):
    monkeypatch.setattr(constraints, "_worker", worker := LimitedWorker(seconds=1.0))
    message = r" cannot be compiled: it takes (more than 1 seconds|too much memory)"
    for _ in range(2):
        with pytest.raises(ValueError, match=message):
            compiled(kind, source, SPEC)
        monkeypatch.setattr(worker, "ask", None)  # the second time, the refusal is cached
    worker.close()
    constraints._results.clear()  # what is refused within a second may compile within ten


def test_a_failure_that_does_not_follow_from_the_constraint_is_not_remembered():
    suspend_compiler()
    with pytest.raises(NotDoneError, match=r"regex=.* was not compiled: the process that compiles it was killed: try again"):
        compiled("regex", "[d-f]+", SPEC)
    assert accepts("regex", "[d-f]+", "def")
    constraints._results.clear()


def test_an_error_of_the_compiler_itself_is_not_remembered(monkeypatch):
    """Anything but a ValueError is not the constraint's fault, so the next request compiles it again."""
    with monkeypatch.context() as patch:
        ask = constraints._worker.ask
        patch.setattr(constraints._worker, "ask", lambda *job, stopped: ask("operator:getitem", {}, "x", stopped=stopped))
        with pytest.raises(NotDoneError, match=r"regex=.* was not compiled: KeyError"):
            compiled("regex", "[g-i]+", SPEC)
    assert accepts("regex", "[g-i]+", "ghi")


def test_a_schema_that_takes_too_much_memory_is_compiled_with_smaller_limits(monkeypatch):
    states = []

    def limited(source, automaton, *rest):
        states.append(len(automaton.rows))
        if len(states) == 1:
            raise MemoryError
        return token_automaton(source, automaton, *rest)

    monkeypatch.setattr(compilation, "token_automaton", limited)
    assert compilation.tables("json_schema", '{"type": "string", "maxLength": 600}', SPEC.pieces, ())
    assert states[0] > states[1]


def test_a_schema_whose_automaton_over_ids_is_too_large_is_refused_with_its_largest_part(monkeypatch):
    def refused(*_):
        raise TooManyStates("its automaton has more than 1 moves: give a simpler pattern")

    monkeypatch.setattr(compilation, "token_automaton", refused)
    schema = {"properties": {"a": {"type": "null"}, "b": {"type": "string", "maxLength": 90}}, "type": "object"}
    with pytest.raises(ValueError, match=r"simpler pattern \(json_schema.properties.b takes most of them\)"):
        compilation.tables("json_schema", json.dumps(schema | {"additionalProperties": False}), SPEC.pieces, ())


ARRAY = json.dumps({"type": "array", "items": {"type": "string", "maxLength": 500}, "maxItems": 2})
JOBS = [
    ("dlstep.text.compilation:tables", kind, text, PIECES, ()) for kind, text in (("json_schema", ARRAY), ("regex", "[^é]{99}"))
]


@pytest.mark.full
def test_the_order_of_constraints_does_not_decide_what_they_compile_to(monkeypatch):
    """The schema takes most of the memory: it does not fit next to what the other jobs keep."""
    monkeypatch.setattr(limited_worker, "MEMORY", 6 << 23)
    jobs, results = [*JOBS, *[("tests.helpers.compiler:hoarded", 1 << 24)] * 2], []
    for order in (0, 1, 2, 3), (2, 3, 0, 1), (1, 2, 0, 3):
        with closing(LimitedWorker()) as worker:
            results.append({place: worker.ask(*jobs[place]) for place in order})
    assert results[0] == results[1] == results[2]


@pytest.mark.parametrize("texts", [["x" * 500_000, "y" * 500_000], [f"{number:030}"[::-1] for number in range(30_000)]])
def test_choices_of_a_megabyte_are_refused_without_using_memory_here(texts):
    source = json.dumps(texts)
    tracemalloc.start()
    with pytest.raises(ValueError, match="cannot be compiled: it"):
        compiled("choice", source, SPEC)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 10 * len(source)


def test_automata_are_kept_within_a_number_of_bytes(monkeypatch):
    sizes = [len(compiled("regex", f"a{{{count}}}", SPEC).tables) for count in (1, 2, 3)]
    monkeypatch.setattr(constraints, "MOST_BYTES", sizes[1] + sizes[2])
    compiled("regex", "b", SPEC)
    assert sum(len(kept.tables) for kept in constraints._results.values() if isinstance(kept, Automaton)) <= sum(sizes[1:])
    assert compiled("regex", "b", SPEC) is compiled("regex", "b", SPEC)


def test_a_compilation_is_stopped_and_can_be_repeated(monkeypatch):
    monkeypatch.setattr(constraints, "_worker", LimitedWorker())
    for delay in (0.0, 1.0):  # before the process has started, and while it works
        compilation = Event()
        timer = Timer(delay, constraints.stop, [compilation])
        timer.start()
        begun = monotonic()
        with pytest.raises(NotDoneError, match="was killed"):
            compiled(*LIMITED[1], SPEC, compilation)
        assert monotonic() - begun < 8
        timer.join()
    assert accepts("regex", "[a-c]+", "abc")
    constraints._worker.close()


@pytest.mark.parametrize(
    "regex, reason",
    [
        ("a^b", "matches no text that the tokenizer can spell"),
        (r"a\b", "cannot be compiled: a word boundary is not supported: leave it out"),
        (r"(a)\1", "cannot be compiled: a back-reference is not supported"),
        ("(?>a)", "cannot be compiled: an atomic group is not supported"),
        ("a++", "cannot be compiled: a possessive repetition is not supported"),
        ("(" * 3000 + "a" + ")" * 3000, "cannot be compiled: it is not a regular expression"),
    ],
)
def test_what_no_automaton_has_is_refused_by_name(regex, reason):
    with pytest.raises(ValueError, match=f"regex=.* {reason}"):
        compiled("regex", regex, SPEC)


def test_resume_compiles_the_constraint_of_a_trace_again(tmp_path):
    session = tiny_llm().session()
    session.submit("Max has 53 shells.", SamplingParams(max_tokens=24, regex="[0-9]{3}( shells)?"))
    session.step()
    texts = set()
    for trace in (session.trace, Trace(session.trace.state)):  # the request is in an event or in the first state
        trace.save(tmp_path / "trace.jsonl")
        constraints._results.clear()
        resumed = tiny_llm().resume(Trace.load(tmp_path / "trace.jsonl"))
        resumed.run()
        texts.add(resumed.output(0).text)
    (text,) = texts
    assert re.fullmatch("[0-9]{3}( shells)?", text)


@pytest.mark.parametrize("length", [20, 200])
def test_a_text_of_bounded_length_has_as_many_states_as_bytes(length):
    """Escaped quotes must not multiply them, as they do in a search for the string anywhere in a text."""
    schema = json.dumps({"type": "string", "maxLength": length})
    automaton = compiled("json_schema", schema, SPEC)
    assert automaton.state_count < 15 * length
    escaped = '\\"' * length
    assert automaton.accepts(tuple(f'"{escaped}"'.encode())) and not automaton.accepts(tuple(f'"{escaped}a"'.encode()))
