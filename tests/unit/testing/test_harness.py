"""The harness calls the watcher, which checks invariants of a run, after every step."""

from hypothesis import given, strategies as st

from dlstep.strategies.multi_bd import MultiBD
from dlstep.testing.generators import cases
from dlstep.testing.harness import run_case


@given(st.data())
def test_every_step_is_watched_once(data):
    case, watched = data.draw(cases(MultiBD)), []

    def watch(run):
        watched.append((len(run.steps), run.state.step))

    run = run_case(case, watch=watch)
    assert watched == [(number, step.after.step) for number, step in enumerate(run.steps, start=1)]
