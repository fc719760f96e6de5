"""`dlstep tune` from options to a file that other commands use; wrong options give one line."""

import json
import re
import shlex
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest
import yaml

from benchmarks.tuner import ACCURACY, SPEED, decoded, point, simulated
from dlstep import LLM, SamplingParams
from dlstep.cli import main
from dlstep.cli.main import parsed
from dlstep.cli.serve import _policy
from dlstep.evaluate.answerer_pool import Answering
from dlstep.evaluate.checkpoint import read
from dlstep.evaluate.documents import documents_of
from dlstep.evaluate.metrics import hypervolume
from dlstep.evaluate.options import EvalOptions
from dlstep.evaluate.space import TuneOptions
from dlstep.evaluate.tuning import tune
from dlstep.tiny import problems, score
from dlstep.views.progress_bars import tuning_bar

ROOT = Path(__file__).parents[3]
Captured = pytest.CaptureFixture[str]
QUESTION = "Max has 53 shells. Later Max buys 39 more. How many shells does Max have?"
ARGUMENTS = ["tune", "--over", "accept_threshold=0.3,0.9", "add_block_threshold=0.1,0.9", "--problems", "12", "--held_out", "8"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A search, with everything that the command writes beside it."""
    folder = tmp_path_factory.mktemp("tune")
    files = [part for name in ("best.yml", "frontier.png", "study.db") for part in (WRITES[name], str(folder / name))]
    assert main([*ARGUMENTS, "--buffer_size", "2", "--share", "1", "--out", str(folder / "out"), *files, "--json"]) == 0
    return folder


WRITES = {"best.yml": "--write", "frontier.png": "--plot", "study.db": "--study"}


def again(folder: Path, *more: str) -> list[str]:
    """The arguments of the same search."""
    return [*ARGUMENTS, "--buffer_size", "2", "--share", "1", "--out", str(folder / "out"), "--resume", *more]


def test_what_was_found_is_told_in_80_columns(folder: Path, capsys: Captured) -> None:
    assert main(again(folder)) == 0
    text = capsys.readouterr().out
    assert max(map(len, text.splitlines())) <= 80 and "\N{HORIZONTAL ELLIPSIS}" not in text
    assert text.count("chosen") == 2 and "chosen, the knee: accept_threshold=" in text
    assert main(again(folder, "--json", "--at_least", "0.99")) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["tried"] == found["sets"] == 4 and found["chosen"]["accept_threshold"] == 0.9
    (row,) = [row for row in found["frontier"] if row["chosen"]]
    llm = LLM("tiny-bd", buffer_size=2, **found["chosen"])
    held = problems(20)[12:]
    outputs = llm.generate([each.prompt for each in held], SamplingParams(max_tokens=64), progress=False)
    right = [score(each, output.text).answer for each, output in zip(held, outputs, strict=True)]
    assert row["held_out_accuracy"] == sum(right) / 8 and row["held_out_problems"] == 8


def test_what_was_chosen_is_used_by_other_commands_at_once(folder: Path, tmp_path: Path, capsys: Captured) -> None:
    best = str(folder / "best.yml")
    engine = yaml.safe_load((folder / "best.yml").read_text())["engine"]
    assert engine["buffer_size"] == 2 and {"accept_threshold", "add_block_threshold"} < engine.keys()
    for command in (["generate", QUESTION], ["serve"], ["eval"], ["tune"]):
        options = parsed([*command, "--config", best])[0]
        assert {name: options[name] for name in engine} == engine
    assert main(["eval", "--config", best, "--dataset_limit", "3", "--out", str(tmp_path / "run")]) == 0
    assert f"accept_threshold={engine['accept_threshold']}" in read(tmp_path / "run").settings["key"]["engine"]["strategy"]
    assert main(["generate", QUESTION, "--config", best]) == 0
    assert "92 shells" in capsys.readouterr().out
    assert (folder / "frontier.png").stat().st_size > 1000 and (folder / "study.db").stat().st_size > 1000


def test_files_for_eval_and_tune_are_read_for_their_engine(tmp_path: Path) -> None:
    path = tmp_path / "all.yml"
    path.write_text(
        "engine: {accept-threshold: 0.7}\neval: {dataset_limit: 30}\ntune: {held-out: 5, over: ['buffer_size=1,2']}\n"
    )
    for command in (["generate", QUESTION], ["serve"]):
        assert parsed([*command, f"--config={path}"])[0].accept_threshold == 0.7
    options = parsed(["tune", "--config", str(path)])[0]
    assert (options.accept_threshold, options.dataset_limit, options.held_out, options.over) == (
        0.7,
        30,
        5,
        ["buffer_size=1,2"],
    )


def test_loads_give_a_table_that_an_llm_and_a_server_read(tmp_path: Path, capsys: Captured) -> None:
    path, out = tmp_path / "policy.yml", str(tmp_path / "load")
    arguments = ["tune", "--throughput", "--over", "buffer_size=1,2", "--problems", "6", "--batch_sizes", "[3]"]
    assert main([*arguments, "--repeats", "2", "--write", str(path), "--out", out]) == 0
    text = capsys.readouterr().out
    assert max(map(len, text.splitlines())) <= 80 and "median of 2 measurements" in text
    rows = yaml.safe_load(path.read_text())
    assert "with tiny-bd on cpu" in path.read_text() and rows == _policy(str(path))
    answer = LLM("tiny-bd", buffer_policy=rows).generate([QUESTION], SamplingParams(max_tokens=32), progress=False)[0]
    assert answer.finish_reason == "stop"
    assert main([*arguments, "--out", out]) == 2
    assert "add --resume to continue a search" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--over", "accept_treshold=0.5,0.9"], "did you mean accept_threshold?"),
        (["--problems", "600"], "are more than the 500 problems of the tasks"),
        (["--problems", "0"], "--problems must be at least 1, got 0"),
        (["--share", "0"], "--share must be more than 0"),
        (["--at_least", "1.5"], "--at_least must be at most 1"),
        (["--dataset_limit", "1"], "the tasks have 1 problem, but tuning needs some"),
        (["--write", "/nonsense/best.yml"], "--write '/nonsense/best.yml' is no file in a folder that there is"),
        (["--plot", "."], "--plot '.' is no file"),
        (["--throughput", "--plot", "a.png"], "--plot has no effect with --throughput"),
        (["--throughput", "--batch_sizes", "0"], "--batch_sizes must be whole numbers above 0"),
        (["--throughput", "--repeats", "1"], "--repeats must be at least 2, to tell the noise"),
        (["--throughput", "--buffer_size", "1"], "varies buffer_size, which is 1 here: say what to vary by --over"),
        (["--throughput", "--over", "accept_threshold=0.1:0.9:65"], "measures at most 64: give fewer"),
        (["--grid", "{}"], "unrecognized arguments: --grid"),
        (["--helt_out", "5"], "did you mean --held_out?"),
        (["--tasks", "nonsense"], "--tasks: 'nonsense' is unknown"),
        (["--config", "eval: {held_out: 5}"], "held_out is in section `eval:`, it belongs to `tune:`"),
        (["--config", "accept_threshold: 0.5"], "outside of a section: put it below `engine:`"),
        (["--config", "over: [a=1]"], "'over' outside of a section: put it below `tune:`"),
        (["--over", "buffer_size=1,\x1b[31m2"], "--over buffer_size"),
    ],
)
def test_a_wrong_option_is_one_line(arguments: list[str], message: str, tmp_path: Path, capsys: Captured) -> None:
    assert main(["tune", *arguments, "--out", str(tmp_path / "out")]) == 2
    printed = capsys.readouterr().err
    assert message in printed and printed.count("\n") == 1 and "\x1b" not in printed
    assert not (tmp_path / "out" / "answers.jsonl").exists()


def test_a_module_that_was_given_is_not_written(folder: Path, tmp_path: Path, capsys: Captured) -> None:
    path = str(tmp_path / "best.yml")
    arguments = ["tune", "--over", "accept_threshold=0.3,0.9", "--problems", "2", "--held_out", "2"]
    arguments += ["--decoding_strategy", "dlstep.strategies.multi_bd", "--out", str(tmp_path / "out")]
    assert main([*arguments, "--write", path]) == 0
    out, err = capsys.readouterr()
    assert "leaves out --decoding_strategy dlstep.strategies.multi_bd: a file may not import" in err
    line = re.search("`dlstep (eval --config .*)`", out)
    assert line is not None and "--decoding_strategy dlstep.strategies.multi_bd" in line[1]
    parsed(shlex.split(line[1]))  # the command that is recommended can be given
    assert list(yaml.safe_load(Path(path).read_text())["engine"]) == ["accept_threshold"]


def test_the_bench_simulates_what_the_command_finds(tmp_path: Path) -> None:
    engine = LLM("tiny-bd").engine
    with tuning_bar(enabled=False) as show:
        space, table = decoded(engine, ["accept_threshold=0.3:0.9:5"], 30, tmp_path / "grid", show)
    asked = {"problems": 10, "held_out": 8, "orders": 2, "share": 0.6}
    rows = list(simulated("five", space, table, **asked))
    assert [row.method for row in rows][:4] == ["dlstep tune", "all problems", "TPE", "NSGA-II"]
    areas: list[float] = []
    for seed in range(2):
        order = Random(seed).sample(range(30), 18)
        documents = documents_of("shells", None, 30)
        chosen = {"shells": [replace(documents[each], number=place) for place, each in enumerate(order)]}
        tuning = TuneOptions(over=("accept_threshold=0.3:0.9:5",), problems=10, held_out=8, share=0.6)
        tuned = tune(Answering(engine), EvalOptions(dataset_limit=30, out=str(tmp_path / str(seed))), tuning, chosen)
        best = hypervolume([point(table, options, order[10:]) for options in table], speed=SPEED, accuracy=ACCURACY)
        areas.append(hypervolume(tuned.held, speed=SPEED, accuracy=ACCURACY) / best)
    assert (rows[0].area, rows[0].worst_area) == (pytest.approx(sum(areas) / 2), pytest.approx(min(areas)))
    assert all(row.forwards < 0.75 and row.worst_area <= row.area <= 1 + 1e-9 for row in rows)


@pytest.mark.stress
def test_no_sampler_finds_more_than_the_tuner() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.tuner", "--json"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    rows = [row for row in json.loads(done.stdout) if row["method"] == "dlstep tune"]
    assert len(rows) == 4 and all(row["area"] >= 0.93 and row["worst_area"] >= 0.88 for row in rows)
