"""Pinned tokens as a user gives them: to `SamplingParams`, as text, to streams and sessions, and to the command."""

import pytest

from dlstep import LLM, SamplingParams

from ..helpers.refusals import refused

STORY = "Max has 53 shells. Later Max buys 39 more. How many shells does Max have?\n"
WRONG = [
    *(("pinned", given, "invalid_type") for given in (5, {"0": 5}, {0: 1.5}, {True: 5}, [(0, 5, 6)])),
    *(("pinned", given, "out_of_range") for given in ({-1: 5}, {8: 5})),
    *(("canvas", given, "invalid_type") for given in (5, [1.5])),
]


@pytest.fixture(scope="module")
def llm():
    """The embedded model of blocks."""
    return LLM()


@pytest.mark.parametrize("field, given, code", WRONG)
def test_what_is_no_pin_is_refused_by_name(field, given, code):
    with refused(field, code):
        SamplingParams(max_tokens=8, **{field: given})


def test_pins_are_kept_in_order_whatever_they_are_given_as():
    pinned = {4: 7, 2: 9}
    params = SamplingParams(max_tokens=8, pinned=pinned)
    assert params.pinned == ((2, 9), (4, 7)) and hash(params) == hash(SamplingParams(max_tokens=8, pinned=((4, 7), (2, 9))))
    assert params.shortened(4).pinned == ((2, 9),)


@pytest.mark.parametrize("pinned", [{3: 1}, {3: -2}, {3: 9999}, {600: 5}])
@pytest.mark.filterwarnings("ignore:max_tokens. 700")
def test_pins_that_can_be_in_no_answer_are_rejected(llm, pinned):
    params = SamplingParams(max_tokens=700, pinned=pinned)
    (output,) = llm.generate(STORY, params)
    assert output.finish_reason == "rejected" and not output.token_ids
    with pytest.raises(ValueError, match=r"^pinned: "):
        list(llm.stream(STORY, params))


def test_text_takes_as_many_offsets_as_it_has_tokens(llm):
    assert llm.pins({6: 40, 0: "72+"}) == {**dict(enumerate(llm.engine.tokenizer.encode("72+"))), 6: 40}  # pyright: ignore
    wrong = [
        ({0: "72", 1: 5}, "pins", "conflict"),
        ({0: ""}, "pins.0", "invalid_value"),
        ({0: 1.5}, "pins", "invalid_type"),
        ("72", "pins", "invalid_type"),
    ]
    for given, field, code in wrong:
        with refused(field, code):
            llm.pins(given)


def test_a_text_that_the_tokenizer_cannot_encode_is_refused_by_its_offset(llm, monkeypatch):
    def failing(*_, **__):
        raise Exception("no such character")

    monkeypatch.setattr(llm.engine.tokenizer, "encode", failing)
    with refused("pins.2", "invalid_value"):
        llm.pins({2: "72"})


@pytest.mark.parametrize("strategy", ["multi_bd", "d2f", "dmax", "dual_cache", "diffusion_gemma", "multi_bd_edit"])
def test_generate_stream_and_session_hold_the_same_pins(strategy):
    own = (
        LLM(decoding_strategy="multi_bd", sampling_mode="edit")
        if strategy == "multi_bd_edit"
        else LLM(decoding_strategy=strategy)
    )
    pinned = own.pins({0: "7", 3: "+", 5: "2"})
    params = SamplingParams(max_tokens=24, pinned=pinned, seed=3)
    (output,) = own.generate(STORY, params)
    assert output.text[:6:3] == "7+" and output.text[5] == "2"
    assert "".join(own.stream(STORY, params)) == output.text
    session = own.session()
    number = session.submit(STORY, params)
    session.run()
    assert session.output(number).token_ids == output.token_ids
    assert session.trace.replay() == session.state


def test_a_pinned_end_of_sequence_ends_the_answer_there(llm):
    eos = llm.state.config.spec.eos_ids[0]
    pinned = {3: eos, 5: 40}
    (output,) = llm.generate(STORY, SamplingParams(max_tokens=12, pinned=pinned))
    assert len(output.token_ids) == 3 and output.finish_reason == "stop"
    (output,) = llm.generate(STORY, SamplingParams(max_tokens=12, pinned=pinned, ignore_eos=True))
    assert len(output.token_ids) == 12 and output.token_ids[3] == eos and output.token_ids[5] == 40
    pinned = {0: eos}
    (output,) = llm.generate(STORY, SamplingParams(max_tokens=12, pinned=pinned))
    assert (output.token_ids, output.nfe, output.finish_reason) == ((), 0, "stop")


def forked(strategy, temperature, steps, seed):
    """An answer, and that of a fork with another seed after some forwards."""
    session = LLM(decoding_strategy=strategy).session()
    session.submit(STORY, SamplingParams(max_tokens=24, temperature=temperature, seed=1, ignore_eos=True))
    for _ in range(steps):
        session.step()
    branch = session.fork(seed=seed)
    assert branch.state.sequence(0).request.seed == seed
    session.run()
    branch.run()
    assert branch.trace.replay() == branch.state
    return session.output(0).token_ids, branch.output(0).token_ids


@pytest.mark.full
@pytest.mark.parametrize("strategy, steps", [("multi_bd", 0), ("multi_bd", 3), ("dual_cache", 3)])
def test_a_fork_may_draw_other_noise_from_here_on(strategy, steps):
    assert len({*forked(strategy, 0.0, steps, 7)}) == 1, "greedy answers do not depend on seeds"
    assert len({*forked(strategy, 3.0, steps, 1)}) == 1, "the same seed goes on as before"
    assert len({*forked(strategy, 3.0, steps, 7)}) == 2


def test_a_fork_of_a_canvas_begins_it_anew():
    one, other = forked("diffusion_gemma", 0.0, 3, 7)
    assert one != other
    own = LLM(decoding_strategy="diffusion_gemma")
    (fresh,) = own.generate(STORY, SamplingParams(max_tokens=24, seed=7, ignore_eos=True))
    assert other == fresh.token_ids
    session = own.session()
    session.submit(STORY, SamplingParams(max_tokens=24, seed=1, ignore_eos=True))
    waiting = session.fork(seed=7)  # nothing ran yet
    waiting.run()
    assert waiting.output(0).token_ids == fresh.token_ids
    seed = "x"
    with pytest.raises(ValueError, match=r"seed: must be"):
        session.fork(seed=seed)
