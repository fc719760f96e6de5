"""The law of strategies that guarantee the answers of autoregressive decoding."""

from collections import Counter
from dataclasses import replace

from hypothesis.strategies import DataObject, sampled_from

from ..core import Config, Strategy
from .generators import Case, Kind, ample, cases
from .harness import CaseRun, alone, run_case
from .shadow import ShadowDriver

# Fractions of positions whose samples do not depend on earlier tokens. At other positions, nearly all proposals are wrong.
ALIKE = sampled_from([0.0, 0.5, 0.8, 0.9, 1.0])


def lossless(kind: Kind, data: DataObject) -> None:
    """Check that a strategy gives the answers of its `autoregressive` strategy, token for token.

    The `autoregressive` strategy settles one token in each sampling pass, with draw number 0. Tokens,
    probabilities and finish reason are equal even if the request is preempted or runs with others,
    and at every step the settled tokens are the beginning of that answer. The strategy needs at most
    as many passes that settle tokens. Every other sampling pass is a draft, which a later pass verifies.
    """
    case = _without_nfe_limit(data.draw(cases(kind)))
    plain, share = case.strategy.autoregressive, data.draw(ALIKE)
    if plain is None:
        return
    run = run_case(case, _device(case.config, case.strategy, share))
    settling, drafts = _passes(run)
    answers: dict[int, tuple[int, ...]] = {}
    for request in case.requests:
        ours = run.state.finished[request.id]
        if ours.finish == "rejected":
            continue
        config = ample(case.config.spec)
        one = alone(config, plain, request, _device(config, plain, share))
        _check_one_by_one(one)
        theirs = one.state.finished[request.id]
        answers[request.id] = theirs.answer
        assert ours.answer == theirs.answer[: len(ours.answer)], "autoregressive decoding gives another answer"
        assert ours.probabilities == theirs.probabilities[: len(ours.answer)], "the probabilities differ"
        assert settling[request.id] <= theirs.steps, "autoregressive decoding takes fewer passes"
        assert drafts[request.id] <= settling[request.id] - (ours.finish != "abort"), "a draft was not verified"
        assert ours.finish == "abort" or (ours.answer, ours.finish) == (theirs.answer, theirs.finish), "the finish differs"
    for step in run.steps:
        for sequence in step.after.running:
            answer = sequence.answer
            assert answer == answers[sequence.id][: len(answer)], "a settled token is not the one of the answer"


def _without_nfe_limit(case: Case) -> Case:
    """Return the case without `max_nfe`, because the strategies need different numbers of passes."""
    return replace(case, requests=tuple(replace(r, params=replace(r.params, max_nfe=None)) for r in case.requests))


def _device(config: Config, strategy: Strategy, share: float) -> ShadowDriver:
    """Return a shadow device on which the samples of this fraction of positions do not depend on earlier tokens."""
    return ShadowDriver(config.page_size, config.num_pages, config.spec, exact=strategy.exact, blind=share)


def _passes(run: CaseRun) -> tuple[Counter[int], Counter[int]]:
    """Return, by request, the number of sampling passes that settled tokens and of those that settled none."""
    settling, drafts = Counter[int](), Counter[int]()
    for step in run.steps:
        for span in step.plan.spans:
            before, after = step.before.find(span.id), step.after.find(span.id)
            assert before is not None and after is not None
            if span.sampled and before.finish_info is None:
                (settling if after.settled > before.settled else drafts)[span.id] += 1
    return settling, drafts


def _check_one_by_one(run: CaseRun) -> None:
    """Check that each sampling pass samples the next position of the answer, with draw 0."""
    for step in run.steps:
        for span in step.plan.spans:
            before, after = step.before.find(span.id), step.after.find(span.id)
            assert before is not None and after is not None
            if span.sampled:
                assert (span.sampled, span.draws) == ((before.settled,), (0,)), "it samples more than the next position"
                assert after.settled == before.settled + 1, "it does not settle a token"
