"""`dlstep compare`: one's own rule beside those of the package, from one file."""

import json
from dataclasses import fields

import pytest

from dlstep.evaluate import read
from dlstep.evaluate.comparing import ComparisonRow


def test_the_command_compares_a_file_of_ones_own(own, tmp_path, printed, monkeypatch):
    out, rule = tmp_path / "out", own / "best_of_own.py"
    line = f"compare --rules [quota,{rule}] --strategies null --problems 3 --out {out}"
    plotting = f"{line} --plot {tmp_path}/rules.png"
    monkeypatch.setattr("sys.argv", ["/bin/dlstep", *plotting.split()[1:]])
    text = printed(plotting)
    assert max(map(len, text.splitlines())) <= 80
    assert "\nshells: the AUP, y_max 100.0 %, and the fastest as right as the best\n" in text
    assert "multi_bd, best_of_own, tiny-bd: count" in text and "Rankings on tiny models do not carry over" in " ".join(
        text.split()
    )
    rows = json.loads((out / "rows.json").read_text())
    assert len(rows) == 2 * (5 + 4) and set(rows[0]) == {field.name for field in fields(ComparisonRow)}
    assert {(row["strategy"], row["model"]) for row in rows} == {("multi_bd", "tiny-bd"), ("dual_cache", "tiny-llada")}
    best = [row for row in rows if row["rule"] == str(rule) and row["strategy"] == "multi_bd"]
    assert [row["options"] for row in best] == [{"count": count} for count in (1, 2, 4, 8)]
    assert best[0]["forwards_per_answer"] > best[1]["forwards_per_answer"] > best[2]["forwards_per_answer"]
    assert (tmp_path / "rules.png").read_bytes()[:4] == b"\x89PNG"
    # What it has answered it does not answer again, and its answers are runs like any other.
    before = {path: path.read_bytes() for path in out.glob("runs/*/answers.jsonl")}
    assert len(before) == 4 and len(read(out / "runs" / "multi_bd-quota").rows) == 15
    assert json.loads(printed(f"{line} --json")) == rows
    assert {path: path.read_bytes() for path in before} == before
    shown = printed(f"report {out}/runs/multi_bd-quota --show shells/0/5")
    assert "shows the trace in a browser" in " ".join(shown.split())


@pytest.mark.parametrize(
    "options, message",
    [
        ("--problems 0", "error: --problems: "),
        ("--rules [quota,quota]", "a rule is given twice in ['quota', 'quota']"),
        ("--strategies [d2f,d2f]", "a strategy is given twice in"),
        (
            "--rules quota --strategies dmax",
            "rule 'quota' fits none of the strategies: those that fit the model accept no rule",
        ),
        ("--rules ada_block --strategies multi_bd", "nothing is left to compare: ada_block on multi_bd: rule: MultiBD"),
        ("--strategies [multi_bd,dual_cach]", "decoding strategy 'dual_cach' is unknown: did you mean dual_cache?"),
        (
            "--strategies all --model tiny-llada --grid '{nonsense: [1]}'",
            "nothing is left to compare: threshold on dual_cache: ",
        ),
        ("--model /nonsense", "--model: no checkpoint folder at '/nonsense'"),
        ("--strategies all --max_model_len 0", "--max_model_len: must be at least 2, got 0"),
        (
            "--grid '{nonsense: [1]}'",
            "nothing is left to compare: threshold on dual_cache: nonsense: DualCache has no option 'nonsense'",
        ),
        ("--strategies all --grid '{nonsense: [1]}'", "nothing is left to compare: self_speculation: nonsense: "),
        ("--questions /nonsense", "there is no file of problems at '/nonsense'"),
        ("--tasks questions", "task questions reads a file: give --questions FILE"),
        ("--tasks shells --questions x", "--questions 'x' is for the task questions"),
        ("--plot x.doc", "--plot 'x.doc' cannot be written: Format 'doc' is not supported (supported formats: "),
        ("--plot /nonsense/x.png", "--plot '/nonsense/x.png' cannot be written: [Errno 2] No such file"),
        (f"--out {__file__}", "is a file, and must be a folder: --json prints the rows"),
    ],
)
def test_a_wrong_comparison_is_one_line(options, message, failure):
    assert message in failure(f"compare {options}")
