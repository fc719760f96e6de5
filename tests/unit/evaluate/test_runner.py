"""Whenever a run is broken off, it goes on to the same answers, byte for byte; and whoever decodes them."""

import json
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from dlstep.engine.config import EngineConfig
from dlstep.evaluate.answerer_pool import Answering, Processes
from dlstep.evaluate.checkpoint import AHEAD, ANSWERS, BESIDE, RUN, read
from dlstep.evaluate.items import Item
from dlstep.evaluate.options import EvalOptions, grid_of

from .running import answers, engine, killed, run

GRID = grid_of({"accept_threshold": [0.3, 0.9]})


@pytest.fixture(scope="module")
def options(tmp_path_factory: pytest.TempPathFactory) -> EvalOptions:
    """A run with two sets of options; sampled, so that seeds count."""
    out = str(tmp_path_factory.mktemp("unbroken") / "run")
    return EvalOptions(out=out, dataset_limit=40, grid=GRID, temperature=0.7)


@pytest.fixture(scope="module")
def unbroken(options: EvalOptions) -> bytes:
    """The answers of a run that nothing broke off."""
    return answers(run(options))


def test_answers_are_in_order_and_keyed(options: EvalOptions, unbroken: bytes) -> None:
    rows = [json.loads(line) for line in unbroken.splitlines()]
    keys = [(row["task"], row["document"], row["options"]["accept_threshold"]) for row in rows]
    assert keys == [("shells", number, threshold) for threshold in (0.3, 0.9) for number in range(40)]
    assert len({row["seed"] for row in rows}) == 40, "sets of options share their noise"
    ended = [json.loads(line) for line in (Path(options.out) / BESIDE).read_text().splitlines()]
    order = [(row["options"]["accept_threshold"], row["document"]) for row in ended if "work" not in row]
    assert sorted(order) != order, "they did not end in this order"
    assert not (Path(options.out) / AHEAD).exists()


@pytest.mark.parametrize("seed", [pytest.param(0), *[pytest.param(seed, marks=pytest.mark.stress) for seed in range(1, 5)]])
@pytest.mark.parametrize("kills", [3, pytest.param(10, marks=pytest.mark.stress)])
def test_killed_at_random_moments_the_answers_are_the_same(
    options: EvalOptions, unbroken: bytes, tmp_path: Path, kills: int, seed: int, report: Callable[[str], None]
) -> None:
    broken, random = replace(options, out=str(tmp_path / "run")), Random(seed)
    grown = [killed(broken, random.randrange(1, 2 * len(unbroken) // (kills + 1))) for _ in range(kills)]
    assert answers(run(broken)) == unbroken
    assert read(Path(broken.out)).beside.keys() == read(Path(options.out)).beside.keys()
    report(f"killed {kills} times, after {', '.join(map(str, grown))} bytes of {len(unbroken)}")


def test_answers_that_wait_are_not_decoded_again(options: EvalOptions, unbroken: bytes, tmp_path: Path) -> None:
    class Counting(Answering):
        def add(self, place: int, item: Item) -> None:
            added.append(place)
            super().add(place, item)

    added: list[int] = []
    lines = unbroken.splitlines(keepends=True)
    (tmp_path / RUN).write_bytes((Path(options.out) / RUN).read_bytes())
    (tmp_path / BESIDE).write_bytes((Path(options.out) / BESIDE).read_bytes())
    (tmp_path / ANSWERS).write_bytes(b"".join(lines[:3]))
    (tmp_path / AHEAD).write_bytes(b"".join([lines[7], lines[4], lines[79]]))
    assert answers(run(replace(options, out=str(tmp_path)), Counting(engine()))) == unbroken
    assert sorted(added) == sorted({*range(3, 80)} - {4, 7, 79}) and not (tmp_path / AHEAD).exists()


@pytest.mark.parametrize("cut", [1, 100, 5000])
def test_a_line_that_is_not_whole_is_written_again(options: EvalOptions, unbroken: bytes, tmp_path: Path, cut: int) -> None:
    broken = replace(options, out=str(tmp_path))
    (tmp_path / RUN).write_bytes((Path(options.out) / RUN).read_bytes())
    (tmp_path / ANSWERS).write_bytes(unbroken[:-cut])
    (tmp_path / BESIDE).write_bytes((Path(options.out) / BESIDE).read_bytes() + b'{"task": "sh')
    assert answers(run(broken)) == unbroken
    assert read(tmp_path).expected == len(read(tmp_path).rows) == 80


def test_a_whole_run_is_left_as_it_is(options: EvalOptions, unbroken: bytes) -> None:
    before = {path.name: path.read_bytes() for path in Path(options.out).iterdir()}
    run(options)
    assert {path.name: path.read_bytes() for path in Path(options.out).iterdir()} == before


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"temperature": 0.5}, "eval.temperature 0.7, and now it is 0.5"),
        ({"dataset_limit": 3}, "problems.shells.count 40, and now it is 3"),
        ({"problem_seed": 1}, "problems.shells.digest"),
        ({"grid": grid_of({"accept_threshold": 0.3})}, "eval.grid"),
    ],
)
@pytest.mark.usefixtures("unbroken")
def test_another_run_does_not_go_on_there(options: EvalOptions, change: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=f"holds a run with {message}.*give another folder"):
        run(replace(options, **change))  # pyright: ignore[reportArgumentType]


def test_answers_of_another_run_are_refused(options: EvalOptions, unbroken: bytes, tmp_path: Path) -> None:
    (tmp_path / RUN).write_bytes((Path(options.out) / RUN).read_bytes())
    first, second = unbroken.splitlines(keepends=True)[:2]
    (tmp_path / ANSWERS).write_bytes(second + first)
    with pytest.raises(ValueError, match="line 2 is not an answer of this run"):
        run(replace(options, out=str(tmp_path)))
    (tmp_path / ANSWERS).write_bytes(b"[1]\n")
    with pytest.raises(ValueError, match="line 1 is not a line of a run"):
        run(replace(options, out=str(tmp_path)))
    (tmp_path / RUN).unlink()
    with pytest.raises(ValueError, match=r"holds answers without run\.json"):
        run(replace(options, out=str(tmp_path)))


@pytest.mark.stress
def test_two_workers_write_the_same_file(options: EvalOptions, unbroken: bytes, tmp_path: Path) -> None:
    config = EngineConfig(model="tiny-bd", max_num_reqs=6)
    broken = replace(options, out=str(tmp_path / "run"), workers=2)
    for _ in range(3):
        killed(broken, len(unbroken) // 5)  # alone, and then two go on
    with closing(Processes(config, 2)) as pool:
        assert answers(run(broken, pool)) == unbroken
        assert pool.live == 0
