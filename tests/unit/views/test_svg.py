"""The order of filling: what is drawn is what the states of the decode hold."""

from xml.etree import ElementTree

import pytest

from dlstep import SamplingParams, Trace
from dlstep.views import filling_svg, stays

from ...helpers.shadow_llm import make_llm

SVG = "{http://www.w3.org/2000/svg}"
RULES: tuple[dict[str, object], ...] = (
    {},
    {"rule": "quota", "steps_per_block": 2},
    {"rule": "remdm"},
    {"rule": "running_confidence"},
)


def decoded(options: dict[str, object]) -> Trace:
    """The trace of an answer."""
    session = make_llm().session()
    session.submit("a prompt", SamplingParams(max_tokens=20, ignore_eos=True, strategy_options=options))
    session.run()
    return session.trace


def masked(sequence: object) -> set[int]:
    """The masked positions of the window."""
    return {position for block in sequence.progress.window for position in block.masked}  # pyright: ignore


@pytest.mark.parametrize("options", RULES, ids=lambda options: options.get("rule", "threshold"))
def test_a_stay_covers_exactly_the_states_between_its_forward_passes(options: dict[str, object]) -> None:
    trace = decoded(options)
    found = stays(trace)
    seen: set[int] = set()
    for state in trace.states():
        sequence = state.find(0)
        if sequence is None or sequence.steps in seen:
            continue
        seen.add(sequence.steps)
        start, step = len(sequence.request.prompt), sequence.steps
        blocks = [*sequence.progress.past, *sequence.progress.window]
        held = {
            p: t for block in blocks for p, t in enumerate(block.tokens, block.start) if start <= p < sequence.request.limit
        }
        expected = {p - start: t for p, t in held.items() if p not in masked(sequence)}
        assert {s.offset: s.token for s in found if s.since <= step and (s.until is None or step < s.until)} == expected
    assert {stay.offset for stay in found if stay.until is None} == set(range(20))
    remasks = options.get("rule") in ("remdm", "running_confidence")
    assert any(stay.until for stay in found) == remasks


def test_the_picture_has_a_mark_for_everything_that_happened() -> None:
    trace = decoded({"rule": "remdm"})
    found = stays(trace)
    picture = filling_svg([("<one> & more", trace), ("two", trace)])
    root = ElementTree.fromstring(picture)
    paths = {
        kind: [e.get("d") or "" for e in root.iter(f"{SVG}path") if e.get("class") == kind] for kind in ("decided", "back")
    }
    # Two panels, and the legend.
    assert sum(path.count("z") for path in paths["decided"]) == 2 * len(found) + 1
    assert sum(path.count("m") for path in paths["back"]) == 2 * sum(stay.until is not None for stay in found) + 1
    texts = [e.text for e in root.iter(f"{SVG}text")]
    assert "<one> & more" in texts and "remasked" in texts
    assert "remasked" not in filling_svg([("one", decoded({}))])
    assert all(line.count("url(") == line.count("http") - line.count("xmlns") == 0 for line in picture.splitlines())
