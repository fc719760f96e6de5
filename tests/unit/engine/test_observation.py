"""Observations: they equal what the pass computed, and change neither an answer nor a page."""

import pickle
from functools import partial
from math import log

import pytest
import torch

from dlstep import LLM, SamplingParams, Trace
from dlstep.models.compiled import compile_layers
from dlstep.models.layers import stacked_experts
from dlstep.processors.repetition_penalty import RepetitionPenalty
from dlstep.strategies import own

from ...helpers.any_strategy import model_of
from ...helpers.tiny_configs import FACTS
from ...helpers.tiny_families import write_checkpoint

QUESTION = "Max has {} shells. Later Max buys 39 more. How many shells does Max have?\n"
LAYERS = dict.fromkeys(("hidden_states", "lens", "attentions", "experts"), "all")
EVERYTHING = LAYERS | {"best": 200, "logits": True}


def loaded(strategy, **options):
    limits = {"max_num_batched_tokens": 64, "num_pages": 200, "max_model_len": 96} | options
    return LLM(model_of(strategy), decoding_strategy=strategy, dtype="float32", **limits)


def asked(llm, count):
    """A session with greedy requests and requests that draw, in turn, and every third with a processor."""
    session = llm.session()
    for number in range(count):
        processors = (RepetitionPenalty(1.5),) if number % 3 == 2 else ()
        params = SamplingParams(max_tokens=20, temperature=0.8 * (number % 2), seed=number, processors=processors)
        session.submit(QUESTION.format(10 + number), params)
    return session


def pages(llm):
    """Everything that the device keeps for later passes, but for the slots that belong to no page."""
    caches = [(cache.digest, cache.last, vars(cache.tables), cache.memory) for cache in llm.engine.driver._caches]
    parts = [[*memory.key_pages, *memory.value_pages, memory.carried] for *_, memory in caches]
    contents = [[(part[1:] if part is own[-1] else part[:-1]).float().numpy() for part in own] for own in parts]
    return pickle.dumps(([cache[:-1] for cache in caches], contents))


def tensors_of(observation):
    found = []
    for span in observation.spans:
        every = span.candidates.values()
        found += [part for own in every for part in (own.ids, own.log_probabilities, own.entropies)]
        found += [span.logits] if span.logits is not None else []
        found += [*span.hidden_states.values(), *span.attentions.values()]
        found += [part for own in span.experts.values() for part in own]
    return found


def assert_equal(one, other):
    assert one.samples == other.samples and one.rows() == other.rows()
    pairs = zip(tensors_of(one), tensors_of(other), strict=True)
    assert all(torch.equal(left, right) for left, right in pairs)


def assert_sound(observation):
    """The candidates are those of the samples, and the parts have the shapes that are documented."""
    assert [span.id for span in observation.spans] == [span.who.id for span in observation.samples.plan.spans]
    for planned, span, drawn in zip(observation.samples.plan.spans, observation.spans, observation.samples.spans, strict=True):
        assert (span.positions, span.sampled) == (
            planned.rows.positions or range(planned.rows.start, planned.rows.stop),
            planned.wanted.sampled,
        )
        assert len(span.sources) == planned.rows.end
        for weights in span.attentions.values():
            assert weights.shape[1:] == (len(span.positions), len(span.sources))
            assert torch.allclose(weights.sum(-1), torch.ones(weights.shape[:2]))
        for hidden in span.hidden_states.values():
            assert len(hidden) == len(span.positions)
        if span.sampled:
            assert_sound_candidates(span, drawn, planned.who.params)


def assert_sound_candidates(span, drawn, params):
    """All candidates are listed: probabilities and entropy are those of the distribution from which the pass sampled."""
    found = span.candidates[max(span.candidates)]
    likely = found.log_probabilities.exp()
    assert torch.allclose(torch.special.entr(likely).sum(-1), found.entropies, atol=1e-4)
    for place, (token, probability) in enumerate(zip(drawn.tokens, drawn.probabilities, strict=True)):
        ids, logs = found.ids[place].tolist(), found.log_probabilities[place].exp().tolist()
        if not params.temperature:  # some strategies report probabilities before temperature and filters
            assert logs[ids.index(token)] == pytest.approx(probability, rel=1e-6)
        if not params.processors:
            listed = likely[place] > 0.0
            scaled = span.logits[place, found.ids[place][listed]] / (params.temperature or 1.0)
            assert torch.allclose(scaled.softmax(-1), likely[place][listed], atol=1e-5)


def assert_law(llm, count):
    """Observing shows what the pass computes, also from the trace, and changes nothing."""
    expected = asked(llm, count).run().finished
    session, live = asked(llm, count), []
    while not session.state.done:
        before = pages(llm)
        observation = session.observe(**EVERYTHING)
        assert pages(llm) == before
        session.step()
        assert observation.samples == session.samples
        assert_sound(observation)
        live.append(observation)
    assert session.state.finished == expected
    trace = session.trace
    del session
    for step in (0, len(live) // 2, len(live) - 1):
        assert_equal(llm.observe(trace, step, **EVERYTHING), live[step])


@pytest.mark.parametrize(
    "strategy", [pytest.param(each, marks=[] if each == "causal_blocks" else pytest.mark.full) for each in own()]
)
def test_observing_shows_what_a_pass_computes_and_changes_nothing(strategy):
    assert_law(loaded(strategy), 6)


@pytest.mark.full
@pytest.mark.parametrize("kind", ["fused head", "compiled layers", "FP8"])
def test_networks_that_run_otherwise_are_observed_too(kind):
    quantized = kind == "FP8"
    llm = loaded("multi_bd", **dict.fromkeys(("quantization", "kv_cache_dtype"), "fp8" if quantized else None))
    network = llm.engine.driver.network
    if kind == "fused head":
        network._linear = network._head  # as with kernels in 16 bits: the pass returns samples instead of logits
    elif not quantized:
        compile_layers(network.model, backend="eager")
    assert_law(llm, 2)


def visible(span):
    """Additive mask of the rows of a span that feeds every position, worked out position by position."""
    grid, places = span.rows.grid, range(span.rows.end)
    groups = [max((place - grid.origin) // grid.size, -1) for place in places]
    seen = [[groups[key] <= groups[query] for key in places] for query in places]
    return torch.where(torch.tensor(seen), 0.0, float("-inf"))[None, None]


@pytest.mark.parametrize("family", [name for name in FACTS if name not in ("diffusion_gemma", "sdlm")])
def test_hidden_states_and_attention_equal_those_of_transformers(family, tmp_path):
    """Left out are the families of which no sampling pass feeds every position."""
    theirs, _ = write_checkpoint(tmp_path, family, max_position_embeddings=1024)
    llm = LLM(tmp_path, dtype="float32")
    session = asked(llm, 1)
    while not session.plan.spans[0].wanted.sampled:
        session.step()
    observation = session.observe(**EVERYTHING)
    (planned,), (span,) = observation.samples.plan.spans, observation.spans
    assert len(span.tokens) == len(span.sources) == planned.rows.end
    ids, mask, sampled = torch.tensor([span.tokens]), visible(planned), list(span.rows_of_sampled)
    given, mixed = seen_by_transformers(theirs, input_ids=ids, attention_mask=mask, use_cache=False)
    assert_as_given(span, given, mixed)
    torch.testing.assert_close(span.logits, given.logits[0, sampled], atol=1e-5, rtol=1e-5)
    first = theirs.lm_head(theirs.model.norm(given.hidden_states[1][0, sampled]))
    spec = llm.state.config.spec
    first[:, spec.mask_id] = first[:, spec.vocab_size :] = float("-inf")
    assert torch.equal(span.candidates[1].ids[:, 0], first.argmax(-1))


def test_hidden_states_and_attention_of_a_canvas_equal_those_of_transformers(tmp_path):
    theirs, _ = write_checkpoint(tmp_path, "diffusion_gemma", max_position_embeddings=1024)
    session = asked(LLM(tmp_path, dtype="float32"), 1)
    encoded = session.observe(**EVERYTHING)[0]
    session.step()
    span = session.observe(**EVERYTHING)[0]
    assert (set(encoded.sources), set(span.sources)) == ({"final"}, {"stored", "window"})
    prompt, canvas = torch.tensor([encoded.tokens]), torch.tensor([span.tokens])
    assert_as_given(encoded, *seen_by_transformers(theirs.model.encoder.language_model, input_ids=prompt))
    given, mixed = seen_by_transformers(theirs, input_ids=prompt, decoder_input_ids=canvas)
    assert_as_given(span, given, {layer: chosen[-len(span.tokens) :] for layer, chosen in mixed.items()})
    torch.testing.assert_close(span.logits, given.logits[0], atol=1e-5, rtol=1e-5)


def seen_by_transformers(theirs, **inputs):
    """The output of transformers' own network, and the experts that its layers chose last."""
    theirs.set_attn_implementation("eager")
    mixed = {}

    def keep(number, _, given):
        mixed[number] = given[1]

    for layer in theirs.modules():
        number = getattr(getattr(layer, "self_attn", None), "layer_idx", -1)
        for experts in stacked_experts(layer) if number >= 0 else ():
            experts.register_forward_pre_hook(partial(keep, number))
    with torch.no_grad():
        return theirs(**inputs, output_hidden_states=True, output_attentions=True), mixed


def assert_as_given(span, given, mixed):
    for ours, theirs in ((span.hidden_states, given.hidden_states), (span.attentions, given.attentions)):
        assert [*ours] == [*range(len(theirs))]
        for mine, its in zip(ours.values(), theirs, strict=True):
            kept = mine[..., -its.shape[-1] :]  # a sliding window leaves out the keys that no row sees
            torch.testing.assert_close(kept, its[0], atol=1e-5, rtol=1e-5)
            assert not mine[..., : -its.shape[-1]].any()
    assert {layer: ids.tolist() for layer, (ids, _) in span.experts.items()} == {
        layer: ids.tolist() for layer, ids in mixed.items()
    }


@pytest.fixture(scope="module")
def bd():
    return loaded("multi_bd")


def test_forks_and_saved_traces_are_observed_like_the_live_decode(bd, tmp_path):
    session = asked(bd, 2)
    for _ in range(3):
        session.step()
    live = session.observe(**EVERYTHING)
    session.trace.save(tmp_path / "trace.jsonl")
    trace = Trace.load(tmp_path / "trace.jsonl")
    fork = session.fork()
    session.run()
    fork.close()  # so its cache must be rebuilt, in which a pass feeds other rows
    assert_equal(bd.observe(trace, **EVERYTHING), live)
    assert_equal(bd.resume(trace).observe(**EVERYTHING), live)
    assert_equal(session.observe(3, **EVERYTHING), live)
    for rebuilt in (fork.observe(best=EVERYTHING["best"]), bd.observe(fork.state, best=EVERYTHING["best"])):
        assert [span.sampled for span in rebuilt.spans] == [span.sampled for span in live.spans]
        for one, other in zip(rebuilt.spans, live.spans, strict=True):
            last = max(one.candidates)
            torch.testing.assert_close(
                one.candidates[last].log_probabilities, other.candidates[last].log_probabilities, atol=1e-3, rtol=1e-4
            )


def test_rows_name_the_candidates_of_each_layer(bd):
    session = asked(bd, 1)
    observation = session.observe(best=2, lens=(0,))
    (span,), rows = observation.spans, observation.rows()
    assert len(rows) == 2 * 2 * len(span.sampled) and {row["layer"] for row in rows} == {0, 4}
    found = [row for row in rows if row["layer"] == 4 and row["rank"] == 1]
    drawn = observation.samples.spans[0]
    assert [row["offset"] for row in found] == [position - span.start for position in span.sampled]
    assert [row["token_id"] for row in found] == list(drawn.tokens) and {row["sampled"] for row in found} == {1}
    assert [float(row["log_probability"] or 0) for row in found] == pytest.approx([log(each) for each in drawn.probabilities])
    assert all(0 <= float(row["entropy"] or 0) < log(144) and row["step"] == row["request"] == 0 for row in rows)
    assert observation[0] is span
    every, one = session.observe(attentions=(1, 2))[0], session.observe(attentions=(2,), heads=(3, 1))[0]
    assert [*one.attentions] == [2] and torch.equal(one.attentions[2], every.attentions[2][[3, 1]])


@pytest.mark.parametrize(
    "step, chosen, message",
    [
        (None, {"best": 0}, "best: must be at least 1, got 0"),
        (None, {"attentions": (4,)}, r"attentions=\(4,\) must be 'all' or a list of numbers; this network has 0 to 3"),
        (None, {"hidden_states": "last"}, "hidden_states='last' must be 'all' or a list of numbers; this network has 0 to 4"),
        (None, {"experts": [0]}, r"experts=\[0\] must be 'all' or a list of numbers; this network has none"),
        (7, {}, "step=7 is not in this decode, which has steps 0 to 1; None is the next one"),
    ],
)
def test_what_does_not_exist_is_refused(bd, step, chosen, message):
    session = asked(bd, 1)
    session.step()
    session.step()
    with pytest.raises(ValueError, match=message):
        session.observe(step, **chosen)


def test_a_decode_without_a_next_step_and_other_drivers_are_refused(bd, llm):
    with pytest.raises(ValueError, match="no request waits or runs, so there is no next step"):
        bd.session().observe()
    with pytest.raises(ValueError, match=r"a ShadowDriver cannot be observed: .* with tensor_parallel_size=1"):
        asked(llm, 1).observe()
    with pytest.raises(ValueError, match="made by another configuration"):
        bd.observe(llm.state)
