"""Comparisons: which rules and strategies, what each is compared over, and rows with the figures of separate runs."""

import numpy as np
import pytest

from dlstep import LLM, SamplingParams, tiny
from dlstep.core import options_of
from dlstep.evaluate import EvalOptions
from dlstep.evaluate.comparing import compared, curves_of, entries, fastest
from dlstep.evaluate.metrics import against_best, aup
from dlstep.rules.ada_block import AdaBlock
from dlstep.rules.early_commit import EarlyCommit
from dlstep.rules.quota import Quota
from dlstep.rules.threshold import Threshold
from training.stories import score
from training.tokenizer import build_tokenizer

from ...helpers.comparisons import row as made_row
from ...helpers.tiny_families import write_checkpoint

TWENTY = tuple(value / 20 for value in range(20))


@pytest.mark.parametrize("count, values", [(8, (0.3, 0.9)), pytest.param(200, TWENTY, marks=pytest.mark.stress)])
def test_a_comparison_gives_the_figures_of_separate_runs(count, values):
    found, left_out = entries(["threshold"], ["multi_bd"], grid={"accept_threshold": list(values)}, model="tiny-bd")
    rows = compared(found, EvalOptions(dataset_limit=count, problem_seed=3, max_tokens=48))
    assert not left_out and [row.options for row in rows] == [{"accept_threshold": value} for value in sorted(values)]
    problems = tiny.problems(count, 3)
    each = []
    for row in rows:
        alone = LLM("tiny-bd", **row.options)
        outputs = alone.generate([one.prompt for one in problems], SamplingParams(max_tokens=48))
        each.append([float(score(one, output.text).answer) for one, output in zip(problems, outputs, strict=True)])
        tokens, forwards = sum(len(one.token_ids) for one in outputs), sum(one.nfe for one in outputs)
        figures = (row.answers, row.accuracy, row.tokens_per_forward, row.forwards_per_answer)
        assert figures == (count, sum(each[-1]) / count, tokens / forwards, forwards / count)
    best = max(map(sum, each)) / count
    assert {row.aup_best for row in rows} == {best}
    assert [row.to_best for row in rows] == pytest.approx([sum(right) / count - best for right in each])
    standings = against_best(np.array(each).T)
    found = [(row.to_best_low, row.to_best_high, row.as_right) for row in rows]
    assert found == [standing[1:] for standing in standings]
    points = [(row.tokens_per_forward, row.accuracy) for row in rows]
    assert rows[0].aup == rows[1].aup == pytest.approx(aup(points, best))


def test_the_fastest_that_is_as_right_as_the_best():
    rows = [
        made_row(value=1, tokens_per_forward=9.0, as_right=False),
        made_row(value=2, tokens_per_forward=3.0),
        made_row(value=3, tokens_per_forward=4.0),
        made_row(value=4, tokens_per_forward=4.0, accuracy=0.4),
    ]
    (curve,) = curves_of(rows)["t"].values()
    assert fastest(curve) is rows[2] and fastest(rows[:1]) is None


def rule_of(entry):
    """The rule of an entry by value."""
    return options_of(entry.engine.first.strategy)["rule"]


def test_a_rule_is_compared_by_value_and_suits_the_embedded_models():
    sentences = tuple(build_tokenizer().encode(end)[0] for end in (". ", "."))
    (quota, on_canvas, ada), (why,) = entries([Quota(3), AdaBlock(look_ahead=0.5)])
    assert (quota.rule, quota.strategy, on_canvas.strategy, ada.rule) == ("quota", "multi_bd", "dual_cache", "ada_block")
    assert rule_of(quota) == Quota(3) and why.startswith("ada_block on multi_bd: rule: MultiBD cannot")
    assert rule_of(ada) == AdaBlock(sentences, look_ahead=0.5) and ada.engine.name == "tiny-llada"
    assert quota.given_options == {} and quota.engine.driver is not ada.engine.driver is on_canvas.engine.driver
    (given, named), _ = entries([AdaBlock((7,)), "quota"], model="tiny-llada")
    assert options_of(given.engine.first.strategy)["delimiters"] == (7,) and named.strategy == "dual_cache"
    assert named.given_options == {"decoding_strategy": None, "model": "tiny-llada", "rule": "quota", "cache": "none"}
    (parts,), _ = entries(["early_commit"])
    decoder = options_of(parts.engine.first.strategy)
    assert decoder["part_size"] == decoder["block_size"] == 8 == parts.given_options["part_size"]
    (parts,), _ = entries([EarlyCommit(part_size=5)])
    assert options_of(parts.engine.first.strategy)["part_size"] == 5
    with pytest.raises(ValueError, match="a rule is given twice"):
        entries(["quota", Quota(2)])


@pytest.mark.parametrize("family", ["wedlm", "efficient_dlm", "stable_diffcoder"])
def test_the_rule_of_a_model_is_compared_with_the_options_that_the_model_has(family, tmp_path):
    write_checkpoint(tmp_path, family)
    (entry,), _ = entries(["threshold"], model=str(tmp_path), max_model_len=64)
    assert rule_of(entry) == options_of(LLM(tmp_path, max_model_len=64).state.strategy)["rule"] != Threshold()
    assert rule_of(entry) == options_of(LLM(**entry.given_options).state.strategy)["rule"] and len(entry.grid) == 5
