"""`Session`: forward passes one at a time, undone, forked, saved and resumed."""

# Sessions have samples after a step; the driver is a `ShadowDriver`.
# pyright: reportAttributeAccessIssue=false

from dataclasses import replace

import pytest
from hypothesis import given, strategies as st

from dlstep import SamplingParams, Trace
from dlstep.core import Grow, Rebuild, Samples

from ..helpers.shadow_llm import make_llm

PROMPT = "Max has 53 shells. Later Max buys 39 more."
PARAMS = SamplingParams(max_tokens=40, ignore_eos=True)


@pytest.fixture
def session(llm):
    """A session with one prompt submitted."""
    session = llm.session()
    session.submit(PROMPT, PARAMS)
    return session


def test_a_running_output_grows_to_the_answer_of_generate(llm, session):
    assert session.samples is None
    seen = ()
    while not session.state.done:
        plan = session.plan
        session.step()
        assert session.samples.plan == plan
        tokens = session.output(0).token_ids
        assert tokens[: len(seen)] == seen
        seen = tokens
    assert session.output(0) == llm.generate(PROMPT, PARAMS)[0]
    with pytest.raises(ValueError, match="submit a prompt first"):
        session.step()
    with pytest.raises(ValueError, match="request 3 was never submitted"):
        session.output(3)


def test_a_resumed_trace_goes_back_through_its_steps(llm, session):
    session.step()
    session.submit("other", PARAMS)
    session.run()
    while len(session.trace.events) > 2:
        before = session.trace
        for steps in (1, 3):
            resumed = llm.resume(before)
            passes = [number for number, event in enumerate(before.events) if isinstance(event, Samples)]
            if steps > len(passes):
                with pytest.raises(
                    ValueError, match=f"can go back {'1 to ' if passes else ''}{len(passes)} steps, got {steps}"
                ):
                    resumed.back(steps)
                continue
            end = passes[-steps]
            assert resumed.back(steps) == Trace(before.first, before.events[:end]).state
            assert resumed.trace == Trace(before.first, before.events[:end])
            resumed.step()
            assert resumed.back(1) == Trace(before.first, before.events[:end]).state
            assert resumed.run().finished[0].answer == llm.resume(before).run().finished[0].answer
        session.back()


def test_going_back_gives_the_state_and_samples_of_then(session):
    seen = [(session.state, session.samples)]
    while not session.state.done:
        session.step()
        seen.append((session.state, session.samples))
    ended = seen[-1][0]
    while len(seen) > 1:
        steps = min(2, len(seen) - 1)
        del seen[-steps:]
        assert (session.back(steps), session.samples) == seen[-1]
    with pytest.raises(ValueError, match="can go back 0 steps, got 1"):
        session.back()
    assert session.run() == ended == session.trace.replay()


def test_going_back_undoes_what_was_submitted_since(session):
    session.step()
    session.step()
    other = session.submit("other", PARAMS)
    session.step()
    session.back(1)
    assert session.state.find(other) is not None
    session.back(1)
    assert session.state.find(other) is None
    assert session.submit("another", PARAMS) == other
    session.run()
    assert session.output(other).prompt == "another"


def test_a_fork_goes_its_own_way(session):
    session.step()
    session.step()
    eager, same = session.fork(accept_threshold=0.1), session.fork()
    for branch in (eager, session, same):  # in turns, on one device
        branch.step()
    for branch in (eager, session, same):
        branch.run()
        branch.trace.replay()
    assert same.output(0).token_ids == session.output(0).token_ids
    assert eager.output(0).nfe < session.output(0).nfe
    assert eager.output(0).prompt == PROMPT


def test_a_fork_and_a_trace_keep_the_most_probable_ids(llm, tmp_path):
    session = llm.session()
    session.submit(PROMPT, SamplingParams(max_tokens=40, ignore_eos=True, top_logprobs=3))
    while not session.output(0).token_ids:
        session.step()
    known = session.output(0).top_probabilities
    session.trace.save(tmp_path / "trace.jsonl")
    assert Trace.load(tmp_path / "trace.jsonl").replay() == session.state
    fork = session.fork(rule="quota")
    while not fork.state.done:
        fork.step()
    output = fork.output(0)
    assert known and output.top_probabilities[: len(known)] == known
    assert [len(top) for top in output.top_probabilities] == [3] * len(output.token_ids)
    cells = zip(output.token_ids, output.probabilities, strict=True)
    assert all(cell in top for cell, top in zip(cells, output.top_probabilities, strict=True))


@pytest.mark.parametrize(
    "changes, message",
    [
        (
            {"rule": "quota", "accept_threshold": 0.5},
            "it is an option of rule credit or hierarchy or local_leap or threshold",
        ),
        ({"block_size": 16}, "block_size: it would move the blocks of an unfinished request"),
        ({"buffer_size": 1000}, "less than the 8000 rows"),
    ],
)
def test_a_fork_that_cannot_go_on_is_an_error(session, changes, message):
    session.step()
    with pytest.raises(ValueError, match=message):
        session.fork(**changes)


def test_two_sessions_take_turns_on_one_device(llm):
    expected = [llm.generate(text, PARAMS)[0].token_ids for text in (PROMPT, "other")]
    sessions = [llm.session(), llm.session()]
    for session, text in zip(sessions, (PROMPT, "other"), strict=True):
        session.submit(text, PARAMS)
    while not all(session.state.done for session in sessions):
        for session in sessions:
            if not session.state.done:
                session.step()
    assert [session.output(0).token_ids for session in sessions] == expected
    assert not any(isinstance(event, Rebuild) for session in sessions for event in session.trace.events), "a place was lost"


def test_an_aborted_request_holds_nothing(session):
    session.step()
    session.abort(0)
    session.abort(0)
    assert session.state.done
    assert session.output(0).finish_reason == "abort"
    assert not session.state.cache.owners
    session.trace.replay()


LONGEST = 16  # pages of a request of `max_model_len`


@given(
    lengths=st.lists(st.tuples(st.integers(1, 60), st.integers(1, 60)), min_size=1, max_size=20),
    num_pages=st.sampled_from([LONGEST, LONGEST + 9, 300]),
    seats=st.sampled_from([4, 64]),
    at_once=st.booleans(),
)
def test_a_session_takes_the_pages_that_its_requests_need(lengths, num_pages, seats, at_once):
    llm = make_llm(num_pages=num_pages, max_num_reqs=seats)
    asked = [((number + 4,) * length, most) for number, (length, most) in enumerate(lengths)]
    params = [SamplingParams(max_tokens=most, ignore_eos=True) for _, most in asked]
    outputs = llm.generate([prompt for prompt, _ in asked], params)
    session = llm.session()
    for (prompt, _), own in zip(asked, params, strict=True):
        session.submit(prompt, own)
        if not at_once:
            session.step()
    state = session.run()
    assert [session.output(number) for number in range(len(asked))] == [
        replace(output, nfe=session.output(number).nfe) for number, output in enumerate(outputs)
    ]
    needed = sum(-(-(len(prompt) + most + 8) // 8) for prompt, most in asked)  # with the whole last block
    assert state.config.num_pages <= max(LONGEST, min(2 * needed, num_pages)) + 1
    if at_once and num_pages == 300:
        assert state.step <= llm.state.step, "requests have waited for pages"
    session.trace.replay()
    assert llm.resume(session.trace).state == state
    assert not any(isinstance(event, Rebuild) for event in session.trace.events)


def test_a_session_grows_no_further_than_memory():
    llm = make_llm(num_pages=300)
    llm.engine.driver.room = lambda: 40  # free pages of a GPU
    session = llm.session()
    numbers = [session.submit(PROMPT, PARAMS) for _ in range(12)]
    assert session.run().config.num_pages == 40
    assert all(session.output(number).finish_reason == "length" for number in numbers)


def test_going_back_before_a_submission_takes_its_pages_back(session):
    session.step()
    before = session.state.config.num_pages
    session.step()
    for _ in range(5):
        session.submit(PROMPT, PARAMS)
    grown = session.step().config.num_pages
    assert grown > before and any(isinstance(event, Grow) for event in session.trace.events)
    assert session.back(2).config.num_pages == before
    answer = session.run().finished[0].answer
    assert session.submit(PROMPT, PARAMS) == 1
    assert session.run().finished[1].answer == answer
