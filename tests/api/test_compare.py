"""`dlstep compare` and `dlstep laws`: one's own rule beside those of the package, from one file."""

import csv
import json
import re
from dataclasses import fields, replace
from html.parser import HTMLParser
from io import StringIO
from pathlib import Path

import numpy as np
import pytest

from dlstep import LLM, SamplingParams, tiny
from dlstep.cli import main
from dlstep.core import options_of
from dlstep.evaluate import EvalOptions, read
from dlstep.evaluate.comparing import Row, compared, curves_of
from dlstep.evaluate.comparison_html import comparison_html
from dlstep.evaluate.entries import Entry, entries, sweep_of
from dlstep.evaluate.intervals import against_best
from dlstep.evaluate.metrics import Answers, Point, aup, wilson
from dlstep.evaluate.pictures import rules_figure, tasks_figure
from dlstep.evaluate.table import as_csv
from dlstep.rules.ada_block import AdaBlock
from dlstep.rules.early_commit import EarlyCommit
from dlstep.rules.quota import Quota
from dlstep.rules.threshold import Threshold
from dlstep.strategies.diffusion_gemma import DiffusionGemma
from dlstep.strategies.dmax import DMax
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
def test_a_comparison_gives_the_figures_of_separate_runs(count: int, values: tuple[float, ...]) -> None:
    found, left_out = entries(["threshold"], ["multi_bd"], grid={"accept_threshold": list(values)}, model="tiny-bd")
    rows = compared(found, EvalOptions(dataset_limit=count, problem_seed=3, max_tokens=48))
    assert not left_out and [row.options for row in rows] == [{"accept_threshold": value} for value in sorted(values)]
    problems = tiny.problems(count, 3)
    each: list[list[float]] = []
    for row in rows:
        alone = LLM("tiny-bd", **row.options)
        outputs = alone.generate([one.prompt for one in problems], SamplingParams(max_tokens=48), progress=False)
        each.append([float(tiny.score(one, output.text).answer) for one, output in zip(problems, outputs, strict=True)])
        tokens, forwards = sum(len(one.token_ids) for one in outputs), sum(one.nfe for one in outputs)
        figures = (row.problems, row.accuracy, row.tokens_per_forward, row.forwards_per_answer)
        assert figures == (count, sum(each[-1]) / count, tokens / forwards, forwards / count)
    best = max(map(sum, each)) / count
    assert {row.aup_best for row in rows} == {best}
    assert [row.to_best for row in rows] == pytest.approx([sum(right) / count - best for right in each])
    standings = against_best(np.array(each).T)
    found = [(row.to_best_low, row.to_best_high, row.as_right) for row in rows]
    assert found == [(standing.low, standing.high, standing.best) for standing in standings]
    assert [(row.accuracy_low, row.accuracy_high) for row in rows] == [wilson(sum(right), count) for right in each]
    shares = [row.seconds / row.forwards_per_answer for row in rows]
    assert shares == pytest.approx(shares[:1] * len(rows)) and shares[0] > 0, "wall time goes by forward passes"
    points = [Point((), Answers(1, 0, row.accuracy, 1, 0, 0)) for row in rows]
    points = [
        Point((), replace(point.sums, tokens=round(row.tokens_per_forward * 10**9), forwards=10**9))
        for point, row in zip(points, rows, strict=True)
    ]
    assert rows[0].aup == rows[1].aup == pytest.approx(aup(points, best))


def test_the_command_compares_a_file_of_ones_own(own: Path, tmp_path: Path, capsys: Captured) -> None:
    out, rule = tmp_path / "out", own / "best_of_own.py"
    arguments = ["compare", "--rules", f"[quota,{rule}]", "--problems", "3", "--out", str(out)]
    assert main([*arguments, "--plot", str(tmp_path / "rules.png")]) == 0
    text = capsys.readouterr().out
    assert max(map(len, text.splitlines())) <= 80
    assert "\nshells: the AUP, y_max 100.0 %, and the fastest as right as the best\n" in text
    assert "multi_bd, best_of_own, tiny-bd: count" in text and "Rankings on tiny models do not carry over" in " ".join(
        text.split()
    )
    rows = json.loads((out / "rows.json").read_text())
    assert len(rows) == 2 * (5 + 4) and set(rows[0]) == {field.name for field in fields(Row)}
    assert {(row["strategy"], row["model"]) for row in rows} == {("multi_bd", "tiny-bd"), ("dual_cache", "tiny-llada")}
    best = [row for row in rows if row["rule"] == str(rule) and row["strategy"] == "multi_bd"]
    assert [row["options"] for row in best] == [{"count": count} for count in (1, 2, 4, 8)]
    assert best[0]["forwards_per_answer"] > best[1]["forwards_per_answer"] > best[2]["forwards_per_answer"]
    assert all((path).read_bytes()[:4] == b"\x89PNG" for path in (tmp_path / "rules.png", out / "frontier.png"))
    with (out / "rows.csv").open(newline="") as file:
        lines = list(csv.DictReader(file))
    assert [float(line["accuracy"]) for line in lines] == [row["accuracy"] for row in rows]
    page = (out / "report.html").read_text()
    assert f"dlstep compare --rules &#39;[&#34;quota&#34;, &#34;{rule}&#34;]&#39; --problems 3 --plot " in page
    assert f"--out {out}</pre>" in page
    # What it has answered it does not answer again, and its answers are runs like any other.
    before = {path: path.read_bytes() for path in out.glob("runs/*/answers.jsonl")}
    assert len(before) == 4 and len(read(out / "runs" / "multi_bd-quota").rows) == 15
    assert main([*arguments, "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == rows
    assert {path: path.read_bytes() for path in before} == before
    wrong = next(row for row in read(out / "runs" / "multi_bd-quota").rows.values() if row["score"] < 1)
    number = [1, 2, 3, 4, 8].index(wrong["options"]["steps_per_block"]) + 1
    assert main(["report", str(out / "runs" / "multi_bd-quota"), "--show", f"shells/{wrong['document']}/{number}"]) == 0
    assert "the trace is in" in " ".join(capsys.readouterr().out.split())


def test_strategies_without_rules_are_compared_as_they_are_and_several_tasks_beside_one_another(
    tmp_path: Path, capsys: Captured
) -> None:
    (tmp_path / "mine.jsonl").write_text('{"question": "How many?", "answer": "so 3 and 4 make\\n#### 1,007"}\n')
    arguments = ["compare", "--strategies", "[dmax,multi_bd]", "--rules", "threshold", "--problems", "2", "--json"]
    grid = ["--grid", '{"accept_threshold": [0.5, 0.9]}']
    tasks = ["--tasks", "[shells,questions]", "--questions", str(tmp_path / "mine.jsonl")]
    assert main([*arguments, *grid, *tasks]) == 0
    rows = json.loads(capsys.readouterr().out)
    curves = [(row["task"], row["strategy"], row["rule"]) for row in rows[::2]]
    assert curves == [
        ("shells", "dmax", ""),
        ("shells", "multi_bd", "threshold"),
        ("questions", "dmax", ""),
        ("questions", "multi_bd", "threshold"),
    ]
    one = [row for row in rows if row["task"] == "questions"]
    assert all(row["problems"] == 1 and row["accuracy"] == row["aup"] == row["to_best"] == 0 for row in one), "all wrong"
    unknown = ("tokens_per_forward_error", "forwards_per_answer_error")
    assert all(row[name] is None for row in one for name in unknown), "one problem tells nothing of others"
    assert all(row["as_right"] and row["to_best_low"] <= -0.9 and row["accuracy_high"] > 0.7 for row in one)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--problems", "0"], "--problems must be at least 1, got 0"),
        (["--rules", "nonsense"], "rule 'nonsense' is unknown: choose from"),
        (["--rules", "[quota,quota]"], "a rule is given twice in ['quota', 'quota']"),
        (["--strategies", "[d2f,d2f]"], "a strategy is given twice in"),
        (["--rules", "quota", "--strategies", "dmax"], "rule 'quota' goes with none of the strategies: they hold none"),
        (
            ["--rules", "ada_block", "--strategies", "multi_bd"],
            "goes with none of the strategies: ada_block on multi_bd: MultiBD",
        ),
        (
            ["--grid", '{"nonsense": [1]}'],
            "nothing is left to compare: threshold on dual_cache: DualCache has no option 'nonsense'",
        ),
        (["--grid", "[1]"], "--grid takes options with lists of values"),
        (["--questions", "/nonsense"], "there is no file of problems at '/nonsense'"),
        (["--tasks", "questions"], "task questions reads a file: give --questions FILE"),
        (["--tasks", "shells", "--questions", "x"], "--questions 'x' is for the task questions"),
        (["--tasks", "gsm8k"], "task gsm8k reads GSM8K.json: give --data, the folder with it"),
        (["--plot", "x.doc"], "--plot 'x.doc' names no kind of picture: end it with one of"),
        (["--plot", "/nonsense/x.png"], "--plot '/nonsense/x.png' is in no folder that exists"),
        (["--out", __file__], "is a file, and must be a folder: --json prints the rows"),
        (["--accept_threshold", "0.5"], "unrecognized arguments"),
    ],
)
def test_a_wrong_comparison_is_one_line(arguments: list[str], said: str, capsys: Captured) -> None:
    assert main(["compare", *arguments]) == 2
    told = capsys.readouterr().err
    assert said in told and told.count("\n") == 1


def test_another_comparison_in_a_folder_is_refused(tmp_path: Path, capsys: Captured) -> None:
    arguments = ["compare", "--strategies", "dmax", "--grid", '{"accept_threshold": 0.5}', "--out", str(tmp_path), "--json"]
    assert main([*arguments, "--problems", "2"]) == 0
    assert main([*arguments, "--problems", "3"]) == 2
    assert "holds a run with" in capsys.readouterr().err


def test_an_answer_that_fails_counts_as_wrong_and_is_told(tmp_path: Path, capsys: Captured) -> None:
    (tmp_path / "mine.jsonl").write_text(json.dumps({"prompt": "How many? " * 500, "answer": 1}))
    arguments = ["--questions", str(tmp_path / "mine.jsonl"), "--strategies", "dmax", "--grid", '{"accept_threshold": 0.5}']
    assert main(["compare", *arguments, "--json"]) == 1
    said = capsys.readouterr()
    (row,) = json.loads(said.out)
    assert (row["failed"], row["accuracy"], row["tokens_per_forward"], row["aup"]) == (1, 0, 0, 0)
    assert "1 answer failed, the first because" in said.err and "tokens" in row["error"]


def rule_of(entry: Entry) -> object:
    """The rule of an entry by value."""
    return options_of(entry.engine.first.strategy)["rule"]


def test_a_rule_is_compared_by_value_and_suits_the_embedded_models() -> None:
    sentences = tuple(build_tokenizer().encode(end)[0] for end in (". ", "."))
    (quota, on_canvas, ada), (why,) = entries([Quota(3), AdaBlock(look_ahead=0.5)])
    assert (quota.rule, quota.strategy, on_canvas.strategy, ada.rule) == ("quota", "multi_bd", "dual_cache", "ada_block")
    assert rule_of(quota) == Quota(3) and why.startswith("ada_block on multi_bd: MultiBD cannot decode this model")
    assert rule_of(ada) == AdaBlock(sentences, look_ahead=0.5) and ada.engine.name == "tiny-llada"
    assert quota.told == {} and quota.engine.driver is not ada.engine.driver is on_canvas.engine.driver
    (given, named), _ = entries([AdaBlock((7,)), "quota"], model="tiny-llada")
    assert options_of(given.engine.first.strategy)["delimiters"] == (7,) and named.strategy == "dual_cache"
    assert named.told == {"decoding_strategy": None, "model": "tiny-llada", "rule": "quota", "cache": "none"}
    (parts,), _ = entries(["early_commit"])
    decoder = options_of(parts.engine.first.strategy)
    assert decoder["part_size"] == decoder["block_size"] == 8 == parts.told["part_size"]
    (parts,), _ = entries([EarlyCommit(part_size=5)])
    assert options_of(parts.engine.first.strategy)["part_size"] == 5
    with pytest.raises(ValueError, match="a rule is given twice"):
        entries(["quota", Quota(2)])
    with pytest.raises(ValueError, match="two strategies are called 'multi_bd': give the class of one another name"):
        entries(["quota"], ["multi_bd", "dlstep.strategies.multi_bd"])


def row(task: str = "t", strategy: str = "s", rule: str = "r", value: object = 1, **more: object) -> Row:
    """A row of hand-made figures."""
    given = {"options": {} if value is None else {"count": value}, "on_frontier": False, "as_right": True, "aup": 3.0, **more}
    usual = (9, 0, 0.5, 0.3, 0.7, 2.0, 0.2, 3.0, 0.3, 1.0, False, 0.0, 0.0, 0.0, True, 0.0, 1.0, "")
    return replace(Row(task, strategy, rule, "m", {}, *usual), **given)  # type: ignore[arg-type]


def test_the_picture_has_a_frame_for_each_task_with_errors_and_a_frontier_in_steps() -> None:
    places = [(2.0, 0.9, True), (4.0, 0.5, True), (3.0, 0.4, False)]
    rows = [
        row(task, strategy, value=n, tokens_per_forward=speed, accuracy=right, on_frontier=best and strategy == "one")
        for task in ("a", "b")
        for strategy in ("one", "$two$", *(f"other {n}" for n in range(9)))
        for n, (speed, right, best) in enumerate(places)
    ]
    figure = tasks_figure(rows)
    assert [axes.get_title() for axes in figure.axes] == ["a, 9 problems", "b, 9 problems"]
    first = figure.axes[0]
    assert len(first.containers) == 11 and all(container.has_xerr and container.has_yerr for container in first.containers)
    (best,) = (line for line in first.lines if line.get_drawstyle() == "steps-pre")
    assert list(zip(*best.get_data(), strict=True)) == [(2.0, 90.0), (4.0, 50.0)]
    names = [text.get_text() for text in figure.legends[0].get_texts()]
    assert names == ["one, r", "frontier", "others"], "of many, those on the frontier have a name"
    few = tasks_figure(rows[: 2 * len(places)])
    assert [text.get_text() for text in few.legends[0].get_texts()] == ["one, r", r"\$two\$, r", "frontier"]
    few.canvas.draw()


def test_the_other_picture_has_a_frame_for_each_rule_with_its_option_and_values() -> None:
    rows = [row("t", strategy, "a", v, tokens_per_forward=float(v)) for strategy in ("grid", "canvas") for v in (1, 2, 4)]
    rows += [row("t", "grid", "b.py", v, tokens_per_forward=float(v)) for v in (1, 2, 4)]
    rows += [row("t", "alone", "", None)]
    frames = rules_figure(rows).axes
    assert [axes.get_title().strip() for axes in frames if axes.get_visible()] == ["a", "b", "alone"]
    texts = [sorted(text.get_text() for text in axes.texts if text.get_text()) for axes in frames]
    assert texts == [["count 1, 2, 4"], ["count 1, 2, 4"], []]
    assert [len(axes.containers) for axes in frames] == [2, 1, 1], "a line with errors for each strategy of the rule"
    assert list(frames[1].lines[-1].get_xdata()) == [1.0], "the first point is drawn once more, hollow"
    both = rules_figure([*rows, row("u", "grid", "a", 1)]).axes
    assert [axes.get_title().strip() for axes in both if axes.get_visible()] == ["t, a", "t, b", "t, alone", "u, a"]


class Tags(HTMLParser):
    """The tags and texts of a page."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data


HOSTILE = '=HYPERLINK("http://x")</style><script>alert(1)</script><img src=http://x onerror=alert(1)>'


def test_the_page_stands_alone_and_hostile_names_are_text() -> None:
    rows = [row(task=HOSTILE, strategy=HOSTILE, rule=HOSTILE, value=HOSTILE, error=HOSTILE, model=HOSTILE)]
    page = Tags(comparison_html(rows, command=HOSTILE, left_out=[HOSTILE], notes=[HOSTILE]))
    known = "html head body main div meta title style h1 h2 p picture source img table thead tr td th ul li pre em"
    assert {tag for tag, _ in page.tags} <= {*known.split()}
    outside = [value for _, attributes in page.tags for name, value in attributes.items() if name in ("src", "srcset", "href")]
    assert len(outside) == 2 and all(str(value).startswith("data:image/svg+xml;base64,") for value in outside)
    assert not [name for _, attributes in page.tags for name in attributes if name.startswith("on")]
    assert page.text.count(HOSTILE) >= 6, "told as they are"
    assert "arXiv 2601.07568" in page.text and "W(y) = min(exp(-3 (1 - y / y_max)), 1)" in page.text
    assert "y_max of the AUP is 100.0 %" in page.text and re.search(r"dlstep \S+, torch \S+, Python \S+", page.text)


def test_no_cell_of_the_csv_is_a_formula() -> None:
    names = ["=1+1", "+1", "-1", "@SUM(A1)", '=1,"2"', "plain"]
    rows = [row(rule=name, strategy=f"a\r\n{name}", to_best=-0.5) for name in names]
    lines = list(csv.DictReader(StringIO(as_csv(rows, Row), newline="")))
    assert [line["rule"] for line in lines] == [*(f"'{name}" for name in names[:-1]), "plain"]
    assert all(line["strategy"].isprintable() for line in lines), "a cell is one line"
    assert {line["to_best"] for line in lines} == {"-0.5"} and lines[0]["options"] == '{"count": 1}'


def test_the_fastest_that_is_as_right_as_the_best() -> None:
    rows = [
        row(value=1, tokens_per_forward=9.0, as_right=False),
        row(value=2, tokens_per_forward=3.0),
        row(value=3, tokens_per_forward=4.0),
        row(value=4, tokens_per_forward=4.0, accuracy=0.4),
    ]
    (curve,) = curves_of(rows)["t"]
    assert curve.fastest is rows[2]
    (none,) = curves_of(rows[:1])["t"]
    assert none.fastest is None


def test_what_a_rule_or_a_strategy_is_compared_over() -> None:
    shares = (0.5, 0.7, 0.8, 0.9, 0.95)
    assert sweep_of(Threshold()) == {"accept_threshold": shares}
    assert list(sweep_of(Quota())) == ["steps_per_block"]
    assert sweep_of(DMax()) == {"accept_threshold": shares}, "and not the first number of its fields"
    assert list(sweep_of(DiffusionGemma())) == ["entropy_bound"]


def test_laws_hold_for_a_rule_of_ones_own(own: Path, capsys: Captured) -> None:
    assert main(["laws", str(own / "best_of_own.py"), "--only", "[transparency,progress]", "--examples", "10"]) == 0
    said = capsys.readouterr().out
    assert said.count("holds") == 4 and "on multi_bd" in said and "on dual_cache" in said


@pytest.mark.stress  # to make a failing case small takes some seconds
def test_a_law_that_is_broken_is_named_with_a_case(own: Path, capsys: Captured) -> None:
    assert main(["laws", str(own / "lawless.py"), "--only", "[progress]", "--examples", "10", "--json"]) == 1
    rows = json.loads(capsys.readouterr().out)
    broken = [row for row in rows if row["failure"]]
    assert [row["law"] for row in rows] == ["progress"] * 2 and "returned no row although must is true" in broken[0]["failure"]
    assert "strategy=MultiBD(" in broken[0]["failure"], "the case is shown"


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
