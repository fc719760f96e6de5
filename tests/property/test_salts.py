"""Prefix pages are shared among requests of one salt, and a salt changes nothing else."""

from dataclasses import replace

from hypothesis import given, strategies as st

from dlstep.core import Config, Request, SamplingParams, Spec
from dlstep.strategies import load
from dlstep.testing.generators import EOS, MASK, MAX_MODEL_LEN, PIECES, VOCABULARY, batches, specs
from dlstep.testing.harness import Case, run_case

STRATEGIES = ("multi_bd", "d2f", "dual_cache")


@given(st.data())
def test_a_page_is_shared_only_by_requests_of_one_salt(data):
    strategy = load(data.draw(st.sampled_from(STRATEGIES)))(block_size=data.draw(st.sampled_from([1, 2, 4])))
    spec = data.draw(specs(strategy))
    drawn = data.draw(batches(strategy))
    prompt = max((request.prompt for request in drawn), key=len)
    asked = [
        *drawn,
        *(replace(drawn[0], id=len(drawn) + n, prompt=prompt, salt=salt) for n, salt in enumerate((b"", b"x", b""))),
    ]
    config = Config(spec, 2, 400, MAX_MODEL_LEN, 64, 2)
    run = run_case(Case(config, strategy, tuple(asked), (0,) * len(asked)))
    salts = {}  # of pages, by who wrote them last
    by_arrival = {}
    for step in run.steps:
        by_arrival |= {each.request.seq_id: each.request.salt for each, _ in step.before.sequences()}
        for grant in step.plan.grants:
            salts |= dict.fromkeys(grant.pages, by_arrival[grant.seq_id])
        for admission in step.plan.admissions:
            assert {salts[page] for page in admission.shared} <= {by_arrival[admission.seq_id]}
    plain = run_case(Case(config, strategy, tuple(replace(each, salt=b"") for each in asked), (0,) * len(asked)))
    for request in asked:
        ours, theirs = run.state.finished[request.id], plain.state.finished[request.id]
        assert (ours.answer, ours.finish, ours.steps) == (theirs.answer, theirs.finish, theirs.steps) or not strategy.exact


def test_each_salt_finds_its_own_pages_and_no_others():
    strategy = load("multi_bd")(block_size=2)
    config = Config(Spec(MASK, (EOS,), VOCABULARY, pieces=PIECES), 2, 400, MAX_MODEL_LEN, 64, 2)
    salts = (b"", b"first", b"", b"first", b"second")
    asked = tuple(Request(n, (1, 2, 3, 4), SamplingParams(max_tokens=4), salt=salt) for n, salt in enumerate(salts))
    run = run_case(Case(config, strategy, asked, tuple(40 * n for n in range(len(asked)))))
    found = {admission.seq_id: len(admission.shared) for step in run.steps for admission in step.plan.admissions}
    assert [found[seq_id] > 0 for seq_id in sorted(found)] == [False, False, True, True, False]
