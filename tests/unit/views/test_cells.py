"""Cells of positions, pages and events."""

from typing import get_args

from dlstep import Config, Request, SamplingParams, Session, Spec, Trace, add, init, views
from dlstep.core import Abort, Add, Adopt, Fail, Prune, Rebuild, Span, SpanSamples
from dlstep.strategies import load
from dlstep.testing.generators import Case, ample
from dlstep.testing.harness import run_case
from dlstep.testing.scripted import ScriptedDriver
from dlstep.views.cells import Phase, cells, event_rows, fill_order, page_cells


def test_cells_cover_every_position_once(session: Session) -> None:
    while not session.state.done:
        for sequence in session.state.running:
            shown = cells(sequence, session.state.config.spec)
            assert [cell.position for cell in shown] == list(range(len(shown)))
            assert {cell.phase for cell in shown} <= set(get_args(Phase))
            tokens = tuple(cell.token for cell in shown)
            assert tokens[: len(sequence.request.prompt)] == sequence.request.prompt
            for cell in shown:
                assert (cell.token is None) == (cell.phase in ("masked", "void"))
                assert 0.0 <= cell.probability <= 1.0
            answer = tokens[len(sequence.request.prompt) :][: len(sequence.answer)]
            assert answer == sequence.answer
        session.step()
    for sequence in session.state.finished.values():
        assert (
            tuple(cell.token for cell in cells(sequence, session.state.config.spec))
            == sequence.request.prompt + sequence.answer
        )


def test_a_canvas_shows_what_is_fed() -> None:
    spec = Spec(mask_id=None, eos_ids=(1,), vocab_size=9)
    state = init(Config(spec, max_model_len=64, num_pages=4), load("diffusion_gemma")(canvas_length=4))
    state = add(state, Request(0, (7, 8), SamplingParams(max_tokens=3)))
    (sequence,) = state.waiting
    shown = cells(sequence, spec)
    assert [cell.phase for cell in shown] == ["prompt"] * 2 + ["draft"] * 3 + ["void"]
    assert tuple(cell.token for cell in shown[2:5]) == sequence.tokens(2, 5)
    assert "draft, fed as token" in views.sequence_html(sequence, state)


def test_the_fill_order_of_a_canvas_counts_the_tokens_that_it_feeds() -> None:
    """Two positions are accepted in the first pass and one more in each later one; the others get noise until then."""

    def rows(span: Span) -> SpanSamples:
        count, draw = len(span.wanted.sampled), span.wanted.draws[0]
        entropies = tuple(0.0 if place <= draw else 9.0 for place in range(count))
        ones = (1.0,) * count
        return SpanSamples((5,) * count, ones, entropies, (), (5,) * count, ones, (20 + draw,) * count)

    request = Request(0, (7, 8), SamplingParams(max_tokens=4, ignore_eos=True))
    case = Case(ample(Spec(None, (1,), 50)), load("diffusion_gemma")(canvas_length=4), (request,), (0,))
    order = fill_order(run_case(case, ScriptedDriver(rows)).trace)
    assert order == (1, 1, 2, 3)


def test_page_cells_agree_with_the_cache(session: Session) -> None:
    while not session.state.done:
        shown = page_cells(session.state)
        assert sum(bool(cell.holders) for cell in shown) == len(session.state.cache.owners)
        for cell in shown:
            assert len(cell.holders) == session.state.cache.owners.get(cell.page, 0)
        session.step()
    assert {cell.use for cell in page_cells(session.state)} <= {"cached", "free"}


def test_every_kind_of_event_has_a_row() -> None:
    config = Config(Spec(mask_id=0, eos_ids=(1,), vocab_size=9), max_model_len=64, num_pages=4)
    trace = Trace(init(config, load("multi_bd")(block_size=4)))
    (waiting,) = add(trace.first, Request(7, (3, 4))).waiting
    for event in (Add(Request(0, (7, 8))), Adopt(waiting, 2), Rebuild(), Fail(0, "gone"), Abort(2), Prune()):
        trace = trace.extended(event)
    rows = [(row.kind, row.requests) for row in event_rows(trace)]
    assert rows == [("add", (0,)), ("adopt", (2,)), ("rebuild", ()), ("fail", (0,)), ("abort", (2,)), ("prune", ())]
