"""`dlstep compare` and `dlstep laws`: one's own rule beside those of the package, from one file."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from dlstep import LLM, SamplingParams
from dlstep.bench.compare import Point, Question, entries, entry_of, measured, read_questions, story_questions, sweep_of
from dlstep.bench.plot import points_figure
from dlstep.cli import main
from dlstep.core import options_of
from dlstep.rules.ada_block import AdaBlock
from dlstep.rules.early_commit import EarlyCommit
from dlstep.rules.quota import Quota
from dlstep.rules.threshold import Threshold
from dlstep.tiny.tokenizer import build_tokenizer

Captured = pytest.CaptureFixture[str]

OWN_RULE = '''"""Takes the `count` most probable positions."""

from dataclasses import dataclass
from typing import Annotated

from annotated_types import Gt

from dlstep.core import Choice, check_ranges


@dataclass(frozen=True, slots=True)
class Best(Choice):
    """As the module says."""

    count: Annotated[int, Gt(0)] = 2
    """Positions that a forward takes."""

    def __post_init__(self):
        check_ranges(self)

    def chosen(self, sequence, block, rows, begin, must):
        """The best rows."""
        own = range(begin, begin + len(block.undecided))
        return sorted(sorted(own, key=lambda row: -rows.probabilities[row])[: self.count])


RULE = Best
'''
LAWLESS = (
    OWN_RULE.replace("RULE = Best", "RULE = Nothing")
    .replace("class Best", "class Nothing")
    .replace("return sorted(sorted(own, key=lambda row: -rows.probabilities[row])[: self.count])", "return []")
)


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("rules")
    (folder / "best_of_own.py").write_text(OWN_RULE)
    (folder / "lawless.py").write_text(LAWLESS)
    return folder


TWENTY = tuple(value / 20 for value in range(20))


@pytest.mark.parametrize(("count", "values"), [(8, (0.3, 0.9)), pytest.param(200, TWENTY, marks=pytest.mark.stress)])
def test_a_grid_of_options_gives_the_figures_of_separate_runs(count: int, values: tuple[float, ...]) -> None:
    llm = LLM("tiny-bd")
    entry = replace(entry_of("threshold", llm.state.strategy), values=values)
    questions = story_questions(count, 3)
    for point in measured(llm, entry, questions, 48):
        alone = LLM("tiny-bd", accept_threshold=point.value)
        outputs = alone.generate([each.prompt for each in questions], SamplingParams(max_tokens=48), progress=False)
        right = sum(each.is_right(output.text) for each, output in zip(questions, outputs, strict=True))
        tokens, forwards = sum(len(each.token_ids) for each in outputs), sum(each.nfe for each in outputs)
        assert (point.right, point.tokens_per_forward, point.forwards) == (right / count, tokens / forwards, forwards / count)


def test_the_command_compares_a_file_of_ones_own(own: Path, tmp_path: Path, capsys: Captured) -> None:
    rules = f"[quota,{own / 'best_of_own.py'}]"
    arguments = ["compare", "--rules", rules, "--problems", "3", "--out", str(tmp_path / "rows.json")]
    assert main([*arguments, "--plot", str(tmp_path / "rules.png")]) == 0
    text = capsys.readouterr().out
    assert max(map(len, text.splitlines())) <= 80
    assert [line.count("@") for line in text.splitlines() if line.split()[:1] == ["quota"]] == [5, 5]
    assert "best_of_own: count 1, 2, 4, 8" in text and "Rankings on tiny models do not carry over" in " ".join(text.split())
    rows = json.loads((tmp_path / "rows.json").read_text())
    assert {(row["strategy"], row["model"]) for row in rows} == {("multi_bd", "tiny-bd"), ("dual_cache", "tiny-llada")}
    best = [row for row in rows if row["rule"].endswith("best_of_own.py") and row["strategy"] == "multi_bd"]
    assert [row["value"] for row in best] == [1, 2, 4, 8]
    assert best[0]["forwards"] > best[1]["forwards"] > best[2]["forwards"]
    assert (tmp_path / "rules.png").read_bytes()[:4] == b"\x89PNG"


def test_questions_of_a_file(tmp_path: Path, capsys: Captured) -> None:
    path = tmp_path / "problems.jsonl"
    path.write_text(
        '{"question": "How many?", "answer": "so 3 and 4 make\\n#### 1,007"}\n{"prompt": "Who?", "answer": "Ida"}\n'
    )
    assert read_questions(path) == [Question("How many?", "1,007"), Question("Who?", "Ida")]
    one, two = read_questions(path)
    assert one.is_right("3 and 4 are 1007.") and not one.is_right("1007, or 8") and not one.is_right("")
    assert two.is_right("It is Ida.") and not two.is_right("Ida is it")
    for wrong, said in (
        ("", "holds no problem"),
        ("{", "holds no JSON"),
        ("[1]", "entry 1: needs a text"),
        ('{"prompt": "a", "answer": ""}', "entry 1"),
    ):
        path.write_text(wrong)
        assert main(["compare", "--questions", str(path)]) == 2
        assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--problems", "0"], "--problems must be at least 1, got 0"),
        (["--rules", "nonsense"], "rule 'nonsense' is unknown: choose from"),
        (["--strategies", "[dmax]"], "strategy dmax holds no rule to be compared: choose from multi_bd, dual_cache, d2f"),
        (["--questions", "/nonsense"], "no file of problems at '/nonsense'"),
    ],
)
def test_a_wrong_comparison_is_one_line(arguments: list[str], said: str, capsys: Captured) -> None:
    assert main(["compare", *arguments]) == 2
    assert said in capsys.readouterr().err


def test_a_rule_is_compared_by_value_and_suits_the_embedded_models() -> None:
    sentences = tuple(build_tokenizer().encode(end)[0] for end in (". ", "."))
    (_, quota), (_, on_canvas), (llm, ada) = entries([Quota(3), AdaBlock(look_ahead=0.5)])
    assert (quota.rule, quota.strategy, on_canvas.strategy, ada.rule) == ("quota", "multi_bd", "dual_cache", "ada_block")
    assert options_of(quota.value)["rule"] == Quota(3)
    assert options_of(ada.value)["rule"] == AdaBlock(sentences, look_ahead=0.5) and llm.engine.name == "tiny-llada"
    (_, given), (_, named) = entries([AdaBlock((7,)), "quota"], model="tiny-llada")
    assert options_of(given.value)["delimiters"] == (7,) and named.strategy == "dual_cache"
    ((_, parts),) = entries(["early_commit"])
    assert options_of(parts.value)["part_size"] == options_of(parts.value)["block_size"] == 8
    ((_, parts),) = entries([EarlyCommit(part_size=5)])
    assert options_of(parts.value)["part_size"] == 5
    with pytest.raises(ValueError, match="rule 'quota' is given twice"):
        entries(["quota", Quota(2)])


def test_the_picture_has_a_frame_for_each_rule_with_its_option_and_values() -> None:
    def line(rule: str, strategy: str) -> list[Point]:
        return [Point(rule, strategy, "m", "count", v, 9, 1 / v, float(v), 3.0) for v in (1, 2, 4)]

    points = [
        *line("a", "grid"),
        *line("a", "canvas"),
        *line("b.py", "grid"),
        Point("c", "canvas", "m", "", None, 9, 1.0, 2.0, 3.0),
    ]
    frames = points_figure(points).axes
    assert [axes.get_title().strip() for axes in frames if axes.get_visible()] == ["a", "b", "c"]
    texts = [sorted(text.get_text() for text in axes.texts if text.get_text()) for axes in frames]
    assert texts == [["count 1, 2, 4"], ["count 1, 2, 4"], []]
    assert [len(axes.lines) for axes in frames] == [6, 5, 5], "each line in each frame, and the first points"
    assert list(frames[1].lines[-2].get_xdata()) == [1.0, 2.0, 4.0] and list(frames[1].lines[-1].get_xdata()) == [1.0]


def test_a_rule_is_compared_over_its_first_number() -> None:
    assert sweep_of(Threshold()) == ("accept_threshold", (0.5, 0.7, 0.8, 0.9, 0.95))
    assert sweep_of(Quota())[0] == "steps_per_block"


def test_laws_hold_for_a_rule_of_ones_own(own: Path, capsys: Captured) -> None:
    assert main(["laws", str(own / "best_of_own.py"), "--only", "[transparency,progress]", "--examples", "10"]) == 0
    said = capsys.readouterr().out
    assert said.count("holds") == 4 and "on multi_bd" in said and "on dual_cache" in said


@pytest.mark.stress  # to make a failing case small takes most of a minute
def test_a_law_that_is_broken_is_named_with_a_case(own: Path, capsys: Captured) -> None:
    assert main(["laws", str(own / "lawless.py"), "--only", "[progress]", "--examples", "10", "--json"]) == 1
    rows = json.loads(capsys.readouterr().out)
    broken = [row for row in rows if row["failure"]]
    assert [row["law"] for row in rows] == ["progress"] * 2 and "the measure did not fall" in broken[0]["failure"]
    assert "Draw 1" in broken[0]["failure"], "the case is shown"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["nonsense"], "no strategy, rule, .py file or module is called 'nonsense': strategies are d2f"),
        (["nowhere.py"], "no strategy, rule, .py file or module is called 'nowhere.py'"),
        (["quota", "--only", "[gravity]"], "law 'gravity' is unknown: choose from progress, functions"),
        (["quota", "--only", "gravity"], "law 'gravity' is unknown: choose from progress, functions"),
        (["quota", "--examples", "0"], "--examples must be at least 1, got 0"),
    ],
)
def test_a_wrong_trial_is_one_line(arguments: list[str], said: str, capsys: Captured) -> None:
    assert main(["laws", *arguments]) == 2
    assert said in capsys.readouterr().err
