"""Fits to rows of `dlstep bench serve`: planted costs are found, and predict other rates."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from dlstep import SamplingParams, Trace
from dlstep.cli import main
from dlstep.core import Add, Config, Event, Plan, Prune, Request, Samples, add, commit, init, prune, schedule
from dlstep.simulate import served
from dlstep.simulate.costs import StepCost
from dlstep.simulate.figures import SimulatedReplicas
from dlstep.simulate.work import MeasuredAnswer, SamplesScript, SimulatedRequest, scripted_spec, scripted_strategy
from dlstep.strategies import load

CONFIG = Config(scripted_spec(), page_size=8, num_pages=8192, max_model_len=512, max_num_reqs=128)
STRATEGY = scripted_strategy(load("multi_bd"), {"block_size": 8, "buffer_size": 4})
PLANTED = SimulatedReplicas(CONFIG, STRATEGY, StepCost(0.004, 3e-5), 0.02)
ANSWERS = [(20 + 3 * place, 10 + place, 4 + place % 5) for place in range(30)]


def row(at: float, **changes: Any) -> dict[str, Any]:
    """A row as a server would be measured whose costs are `PLANTED`."""
    load_ = {"seconds": 2.5, "seed": 3, "prompts": 40, "max_tokens": 48, "warm": False}
    numbers = dict.fromkeys(("requests_per_s", "tokens_per_s", "latency_p50", "latency_p95", "token_p50"), 1.0)
    made: dict[str, Any] = {"rate": at, **numbers, "rows_per_forward": 1.0, "busy_ms_per_forward": 1.0}
    made |= {"answers": ANSWERS, "load": load_}
    read = served._measured(made)
    figures = asdict(served.predicted(PLANTED, read, read.answers))
    made |= {name: figures[name] for name in (*numbers, "rows_per_forward")}
    return made | {"busy_ms_per_forward": 4.0 + 0.03 * figures["rows_per_forward"]} | changes


def written(folder: Path, name: str, *rows: dict[str, Any]) -> str:
    path = folder / name
    path.write_text(json.dumps(rows))
    return str(path)


def test_planted_costs_are_found_and_predict_a_third_rate(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = [written(tmp_path, "slow", row(5.0)), written(tmp_path, "fast", row(30.0))]
    middle = written(tmp_path, "middle", row(15.0), row(15.0, latency_p50=1.0), row(15.0))
    picture = tmp_path / "curve.png"
    arguments = [
        "--fit",
        *files,
        "--against",
        middle,
        "--replicas",
        "[1,2]",
        "--rate",
        "60",
        "--fewest",
        "60",
        "--plot",
        str(picture),
    ]
    assert main(["simulate", *arguments, "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["cost"]["forward"] == pytest.approx(0.004) and printed["cost"]["row"] == pytest.approx(3e-5)
    assert printed["delay"] == pytest.approx(0.02)
    assert {each["figure"] for each in printed["against"]} == set(served.COMPARED)
    for each in printed["against"]:
        assert each["predicted"] == pytest.approx(each["measured"]) and each["error"] == pytest.approx(0, abs=1e-6)
    assert [each["replicas"] for each in printed["curve"]] == [1, 2]
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_an_error_is_the_difference_in_parts_of_what_was_measured(tmp_path: Path) -> None:
    path = written(tmp_path, "rows", row(15.0, latency_p50=2 * row(15.0)["latency_p50"]))
    (comparison,) = (
        each for each in served.compared([PLANTED], served.read_rows(Path(path)), served.read_answers(Path(path)))
        if each.figure == "latency_p50"
    )  # fmt: skip
    assert comparison.error == pytest.approx(-0.5)


def test_a_planted_tail_is_found(tmp_path: Path) -> None:
    """The slowest lie twice as far from the median as they would with forwards of equal times, at every rate."""

    def slowed(at: float) -> dict[str, Any]:
        made = row(at)
        return made | {"latency_p95": 2 * made["latency_p95"] - made["latency_p50"]}

    rows = served.read_rows(Path(written(tmp_path, "rows", slowed(5.0), slowed(30.0))))
    (simulated,) = served.fits(rows, CONFIG, STRATEGY)
    assert simulated.tail == pytest.approx(2) and simulated.delay == pytest.approx(0.02)
    for each in served.compared(
        [simulated], served.read_rows(Path(written(tmp_path, "middle", slowed(15.0)))), rows[0].answers
    ):
        assert each.error == pytest.approx(0, abs=1e-6)


def test_each_turn_is_fitted_alone_and_predicts_its_own(tmp_path: Path) -> None:
    """The machine is three times as slow in the second of three turns, whose rates all took so much longer."""

    def slowed(at: float, times: float) -> dict[str, Any]:
        made = row(at)
        return made | {"busy_ms_per_forward": times * made["busy_ms_per_forward"]}

    files = [[slowed(at, times) for times in (1.0, 3.0, 1.2)] for at in (5.0, 30.0)]
    rows = [
        each for name, rows in zip("ab", files, strict=True) for each in served.read_rows(Path(written(tmp_path, name, *rows)))
    ]
    per_turn = served.fits(rows, CONFIG, STRATEGY)
    assert [simulated.cost.forward for simulated in per_turn] == pytest.approx([0.004, 0.012, 0.0048])
    assert served.middle(per_turn).cost.row == pytest.approx(3.6e-5)
    middle = served.read_rows(Path(written(tmp_path, "c", *[row(15.0)] * 3)))
    each = {
        name: [getattr(served.predicted(simulated, middle[0], rows[0].answers), name) for simulated in per_turn]
        for name in served.COMPARED
    }
    for found in served.compared(per_turn, middle, rows[0].answers):
        assert found.predicted == pytest.approx(sorted(each[found.figure])[1])
    assert len(served.fits(rows[1:], CONFIG, STRATEGY)) == 1, "turns that are not whole are fitted together"


def test_warm_replicas_find_their_prompts(tmp_path: Path) -> None:
    cold = row(5.0)
    path = written(tmp_path, "rows", cold, row(5.0, load={**cold["load"], "warm": True}))
    rows = served.read_rows(Path(path))
    first, second = (served.predicted(PLANTED, each, each.answers) for each in rows)
    assert first.requests == second.requests <= 40
    assert first.hit_rate == 0 and second.hit_rate > 0.8
    assert second.rows_per_forward < first.rows_per_forward


def test_answers_of_a_trace_are_its_lengths_and_forwards(tmp_path: Path) -> None:
    requests = [Request(0, (3, 4, 5), SamplingParams(max_tokens=7)), Request(1, (6,), SamplingParams(max_tokens=12))]
    state = init(CONFIG, STRATEGY)
    events: list[Event] = [Add(request) for request in requests]
    for request in requests:
        state = add(state, request)
    first, scripts = (
        init(CONFIG, STRATEGY),
        [SamplesScript(SimulatedRequest(0.0, (3,) * 3, 7, 3, 7), 0), SamplesScript(SimulatedRequest(0.0, (6,), 9, 5, 12), 0)],
    )
    plans: list[Plan] = []
    while not state.done:
        plans.append(plan := schedule(state))
        events.append(samples := Samples(plan, tuple([scripts[span.id].rows(span) for span in plan.spans])))
        state = commit(state, samples)
        if 1 in state.live and 0 in state.finished:
            events.append(Prune())
            state = prune(state)
    path = tmp_path / "decode.trace"
    Trace(first, tuple(events)).save(path)
    assert served.read_answers(path) == tuple(
        MeasuredAnswer(len(each.prompt), tokens, sum(span.id == each.id for plan in plans for span in plan.spans))
        for each, tokens in zip(requests, (7, 9), strict=True)
    )
    Trace(first).save(path)
    with pytest.raises(ValueError, match="no request of this trace has ended"):
        served.read_answers(path)


def test_files_of_something_else_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    good = written(tmp_path, "good", row(5.0))
    incomplete = row(5.0)
    del incomplete["busy_ms_per_forward"]
    for name, rows, message in (
        ("none", [], "holds no row"),
        ("old", [incomplete], "KeyError: 'busy_ms_per_forward'"),
        ("closed", [row(5.0, rate=0.0)], "no arrivals at random"),
        ("one", [row(5.0)], "--fit needs rows of two rates"),
    ):
        assert main(["simulate", "--fit", good, written(tmp_path, name, *rows)]) == 2
        assert message in capsys.readouterr().err
    two = written(tmp_path, "two", row(5.0), row(6.0))
    assert main(["simulate", "--fit", two, "--against", two]) == 2
    assert "--against takes rows of one rate" in capsys.readouterr().err
