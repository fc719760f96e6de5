"""Structured output of every strategy: answers under random schemas and regexes are valid, however short they must be."""

import json
import re
from operator import itemgetter
from random import Random

import pytest
from hypothesis import Phase, given, settings, strategies as st
from jsonschema import Draft202012Validator

from dlstep import SamplingParams
from dlstep.text.constraints import compiled

from ..unit.text.test_dfa import regexes
from ..unit.text.test_json_schema import REFUSED, SCHEMAS, SHARED, with_definitions
from .decoders import DECODERS, first, prompts

BATCH, BATCHES = 10, 5  # of a strategy
NAMES = [name for name in DECODERS if first(name).state.strategy.takes_constraints]
SETTINGS = st.tuples(st.integers(1, 80), st.sampled_from([0.0, 1.0, 3.0]), st.integers(0, 99))
PHASES = (Phase.explicit, Phase.reuse, Phase.generate)  # to shrink a batch would take minutes


REGEXES = regexes([(atom, atom) for atom in ("a", "b", "é", "[a-c]", "[^x]", r"\d", r"\.", ".")]).map(itemgetter(0))


def params_of(name, drawn, **constraint):
    """Parameters with a constraint, and with a temperature where the strategy does not set its own."""
    max_tokens, temperature, seed = drawn
    if name == "diffusion_gemma":
        temperature = 0.0
    return SamplingParams(max_tokens=max_tokens, temperature=temperature, seed=seed, **constraint)


def spelled(name, params):
    """Whether the constraint is accepted, and the tokenizer of the model can spell a text that it allows."""
    assert params.constraint_source is not None
    try:
        compiled(*params.constraint_source, first(name).state.config.spec)
    except ValueError as error:
        assert re.search(f"the tokenizer can spell|allows no text|{REFUSED}", str(error)), error
        return False
    return True


def decoded(name, requests, valid):
    """Decode the requests in one batch, and return how many got an answer.

    Each answer must be valid; requests without one must be rejected because nothing fits, in tokens
    of the vocabulary or within `max_tokens`.
    """
    kept = [(params, is_valid) for params, is_valid in zip(requests, valid, strict=True) if spelled(name, params)]
    texts = Random(0).sample(prompts(16), len(kept))
    outputs = first(name).generate(list(texts), [params for params, _ in kept])
    for output, (params, is_valid) in zip(outputs, kept, strict=True):
        if output.finish_reason == "rejected":
            assert "no text that matches" in str(output.error), output.error
        else:
            assert output.finish_reason in ("stop", "length") and is_valid(output.text), (params, output.text)
    return sum(output.finish_reason != "rejected" for output in outputs)


def of_schema(schema, shared):
    whole = with_definitions(schema, shared)
    validator = Draft202012Validator(whole)
    return {"json_schema": whole}, lambda text: validator.is_valid(json.loads(text))


def of_regex(regex, _):
    return {"regex": regex}, lambda text: re.fullmatch(regex, text) is not None


KINDS = {
    "schemas": (st.tuples(SCHEMAS, SHARED), of_schema),
    "regexes": (st.tuples(REGEXES, st.none()), of_regex),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", NAMES)
def test_answers_are_valid(name, kind, report):
    counts, (constraints, made) = [], KINDS[kind]

    @settings(max_examples=BATCHES, phases=PHASES)
    @given(drawn=st.lists(st.tuples(constraints, SETTINGS), min_size=BATCH, max_size=BATCH))
    def conform(drawn):
        every = [(made(*parts), one) for parts, one in drawn]
        requests = [params_of(name, one, **constraint) for (constraint, _), one in every]
        counts.append(decoded(name, requests, [valid for (_, valid), _ in every]))

    conform()
    report(f"{name}: {sum(counts)} answers to {BATCH * len(counts)} random {kind}, all valid")
