"""Forks in the engine: unchanged they are the original, changed they are what a fork of a session is; and what is kept."""

from dataclasses import replace
from functools import partial

import pytest
from hypothesis import given, strategies as st

from dlstep import LLM, SamplingParams, strategies
from dlstep.core import Config, Refused, Request, init, options_of, rebuild, with_options
from dlstep.core.options import sorted_options
from dlstep.engine.loader import LoadedEngine
from dlstep.rules import with_values
from dlstep.serve.engine_loop import EngineLoop
from dlstep.serve.messages import Cancel, Drop, Origin, Submit
from dlstep.testing.harness import shadow

from ...helpers.recorded import small, spec_for
from ...helpers.serving import shadow_engine

QUICK = ("multi_bd", "dmax", "diffusion_gemma", "self_speculation")
PROMPTS, LONG = ((1, 2, 3), (5, 6, 7, 8, 9), (4,)), tuple(range(5, 25))
OTHERS = (
    {"accept_threshold": 0.2}, {"accept_threshold": 1.0}, {"rule": "quota", "steps_per_block": 2}, {"entropy_bound": 3.0},
    {"edit_threshold": 0.5}, {"semi_complete_threshold": 0.3}, {"rule": "remdm"}, {"rule": "saber"},
)  # fmt: skip


def engine_of(name):
    """A small engine without a network; its probabilities vary, so that options matter."""
    value = small(name)
    config = Config(spec_for(value), 4, 60, 48, 120, 8)
    return LoadedEngine(init(config, value), shadow(config, value), None, name)


def asked(number, prompt, seed, temperature=0.0):
    """A request whose steps are reported and kept."""
    params = SamplingParams(max_tokens=16, seed=seed, temperature=temperature, ignore_eos=True)
    return Submit(Request(number, PROMPTS[prompt], params), steps=True, keeps=True)


def run(loop):
    """The frames of each request until the loop is idle."""
    found = {}
    while not loop.idle:
        for news in loop.step().news:
            found.setdefault(news.id, []).extend(news.frames)
    return found


def tokens_of(frames):
    return [token for frame in frames for token in frame.tokens]


def fit(first, request, changes):
    """Whether a request takes these options of its strategy."""
    try:
        return not with_options(first.strategy, with_values(changes)).refusal(first.config.spec, request)
    except Refused:
        return False


def fork_of(submit, number, seq, **changes):
    """A fork of a kept request."""
    given = {name: changes.pop(name) for name in ("seed", "temperature") if name in changes}
    origin = Origin(submit.id, seq, sorted_options("", with_values(changes)), **given)
    return submit._replace(request=replace(submit.request, id=number), origin=origin)


def by_session(engine, submit, seq, changes, seed):
    """The answer of a session that is forked after its forward pass `seq`, and the number of its settled tokens there."""
    llm = LLM.of(engine)
    session = llm.session()
    session.submit(submit.request.prompt, submit.request.params)
    for _ in range(seq):
        session.step()
    settled = len(session.output(0).token_ids)
    branch = session.fork(seed=seed, **changes)
    # A forked session copies the KV cache; the fork of a request computes it again.
    copies = not branch.state.strategy.exact and not changes
    if copies or branch.state.strategy.carries:
        branch = llm.resume(rebuild(branch.state))
    branch.run()
    found = [*branch.output(0).token_ids], settled
    session.close()
    branch.close()
    return found


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in QUICK else pytest.mark.full) for name in strategies.own()]
)
@given(data=st.data())
def test_a_fork_is_what_the_fork_of_a_session_is(name, data):
    engine, mates = engine_of(name), data.draw(st.integers(0, 2))
    warm = name != "diffusion_gemma" and data.draw(st.booleans())
    submit = asked(0, data.draw(st.integers(0, 2)), data.draw(st.integers(0, 3)), 0.7 if warm else 0.0)
    loop = EngineLoop(engine)
    loop.execute([submit, *(asked(mate, mate, mate) for mate in range(1, 1 + mates))])
    frames = run(loop)[0]
    assert [frame.seq for frame in frames] == [*range(1, len(frames) + 1)], "the HTTP process has the first one"
    seq = data.draw(st.integers(0, len(frames) - 1))
    known = options_of(engine.first.strategy)
    able = [other for other in OTHERS if other.keys() <= {*known, *({"steps_per_block"} if "rule" in known else ())}]
    changes = data.draw(st.sampled_from([{}, *able]).filter(partial(fit, engine.first, submit.request)))
    seed = data.draw(st.none() | st.integers(0, 3))
    loop.execute([fork_of(submit, 9, seq, **changes, **({} if seed is None else {"seed": seed})), asked(7, 1, 5)])
    fork = run(loop)[9]
    assert [frame.seq for frame in fork] == [*range(seq + 1, seq + 1 + len(fork))], "one slider fits both"
    tokens, settled = by_session(engine, submit, seq, changes, seed)
    assert tokens_of(fork) == tokens[settled:]
    if not changes and seed in (None, submit.request.params.seed) and engine.first.strategy.exact:
        assert tokens == tokens_of(frames), "nothing was changed"


@given(cuts=st.lists(st.integers(0, 5), min_size=1, max_size=4))
def test_forks_of_forks_go_on_from_where_their_parents_were(cuts):
    loop, submit = EngineLoop(engine_of("multi_bd")), asked(0, 0, 1)
    loop.execute([submit])
    whole = run(loop)[0]
    answer, begin = tokens_of(whole), 0
    for number, cut in enumerate(cuts, 1):
        begin = min(begin + cut, len(whole) - 1)
        loop.execute([fork_of(submit._replace(request=replace(submit.request, id=number - 1)), number, begin)])
        fork = run(loop)[number]
        settled = 0 if begin == 0 else whole[begin - 1].settled
        assert answer[:settled] + tokens_of(fork) == answer and fork[-1].seq == whole[-1].seq


def test_temperature_and_seed_may_change_and_are_those_of_a_request_that_has_them():
    loop, submit = EngineLoop(engine_of("multi_bd")), asked(0, 0, 1)
    loop.execute([submit])
    cold = tokens_of(run(loop)[0])
    loop.execute([fork_of(submit, 1, 0, temperature=0.9), asked(2, 0, 1, 0.9)])
    loop.execute([fork_of(submit, 3, 0, temperature=0.9, seed=3), asked(4, 0, 3, 0.9)])
    answers = {number: tokens_of(frames) for number, frames in run(loop).items()}
    assert answers[1] == answers[2] != cold and answers[3] == answers[4] != answers[1]


def test_dropped_steps_are_removed_and_their_stream_continues():
    loop, params = EngineLoop(shadow_engine()), SamplingParams(max_tokens=30, ignore_eos=True)
    steps = loop._steps
    loop.execute([Submit(Request(number, LONG, params), steps=True, keeps=number != 2) for number in range(3)])
    assert len(steps._kept) == 2, "one is reported, and not kept"
    before = {news.id: [*news.frames] for news in loop.step().news}
    loop.execute([Drop(1), Drop(77)])
    assert len(steps._kept) == 1
    frames = {number: before.get(number, []) + more for number, more in run(loop).items()}
    assert tokens_of(frames[0]) == tokens_of(frames[1]) == tokens_of(frames[2]), "the stream goes on"
    assert len(steps._kept) == 1 and not steps._frames, "no frame is left after it was sent"
    loop.execute([Drop(0)])
    assert not len(steps._kept)


def test_an_abort_is_a_frame_and_no_step_to_fork_from():
    loop = EngineLoop(shadow_engine())
    submit = Submit(Request(0, LONG, SamplingParams(max_tokens=60, ignore_eos=True)), steps=True, keeps=True)
    loop.execute([submit, Submit(Request(1, (1,), SamplingParams()), steps=True, keeps=True)])  # the mask
    reports = [loop.step(), loop.step()]
    loop.execute([Cancel(0, "enough")])
    news = [each for report in [*reports, loop.step()] for each in report.news]
    frames, (refused,) = ([frame for each in news if each.id == number for frame in each.frames] for number in (0, 1))
    assert [frame.seq for frame in frames] == [1, 2, 3] and frames[-1].fed is None
    assert frames[-1].finish_info.error == "enough"
    assert refused.finish_info.reason == "rejected" and refused.seq == 1
    with pytest.raises(IndexError):
        loop._steps.at(Origin(0, 3), engine_of("multi_bd").first)


def test_a_failed_forward_pass_leaves_no_frame_and_its_requests_end():
    engine = shadow_engine()
    engine.driver.failures = [RuntimeError("broken")] * 2
    loop = EngineLoop(engine)
    loop.execute([Submit(Request(0, LONG, SamplingParams(max_tokens=20)), steps=True, keeps=True)])
    (last,) = run(loop)[0]
    assert (last.finish_info.reason, last.seq, last.fed) == ("error", 1, None)


def test_requests_without_steps_make_no_frames():
    loop = EngineLoop(engine_of("multi_bd"))
    loop.execute([Submit(Request(0, PROMPTS[0], SamplingParams(max_tokens=8)))])
    assert all(not news.frames for news in loop.step().news) and not loop._steps._kept
