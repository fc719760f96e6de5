"""Everything that needs two CUDA devices of one host, in one command of less than 500 seconds; text and JSON go to a folder.

    PYTHONPATH=src python3 -m tests.gpu.run_on_devices OUT [--only sums,heads,dense,experts,tokens] [--seconds 480]

`sums`: sums over two ranks by themselves, and one whose other rank is gone. `heads`: sampling by two ranks. `dense` and
`experts`: decode steps of sdar-8b and llada2-mini at `tensor_parallel_size` 1 and 2, and two engines at a time beside one.
`tokens`: two ranks answer crowds of requests as one process does, in fp32. Exit code 1 if tokens differ or a part fails, 2
without two devices. With `--cpu` shapes are shrunk, ranks talk through gloo, and `sums` is left out, to try this file.
"""

import argparse
import json
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic
from typing import Any

from dlstep.distributed.ranks import Ranks

from ..helpers.crowds import EMBEDDED, Answers, Case, crowds, flips
from ..helpers.ranks_running import run_apart, run_on_devices
from . import ranks_add_up, ranks_head
from .run_on_device import Report, machine, parts_of

PARTS = ("sums", "heads", "dense", "experts", "tokens")
SECONDS = 480.0
LOADS = {"sdar-8b": (1, 8, 32), "llada2-mini": (1, 8, 32)}
AIMS = {"sdar-8b": {1: 1.3, 8: 1.6, 32: 1.7}, "llada2-mini": {32: 1.5}}  # how many times faster two ranks should be
DENSE, EXPERTS, REPLICA_BATCH, REPLICA_AIM = *LOADS, 8, 1.95
REQUESTS = 40
# A random DiffusionGemma is left out: it multiplies roundings, and is compared in float64 on a CPU.
FAMILIES = ("sdar", "dream", "llada2_mini_dmax", "fast_dllm_v2", "llada2dot1_mini", "idlm", "nemotron_labs_diffusion")


def run_sums(report: Report, left: Callable[[], float]) -> None:
    """Bits and microseconds of sums; then one whose other rank is gone."""
    found = run_on_devices(2, ranks_add_up.sums, seconds=left())[0]
    report.rows("sums", found.pop("rows"))
    report.say(json.dumps(found))
    report.failed |= not (all(found.pop("eager").values()) and found.pop("wrong_in_replays") == 0 and all(found.values()))
    with TemporaryDirectory() as folder:
        file = Path(folder) / "lost"
        try:
            run_on_devices(2, ranks_add_up.lost, file, True, seconds=min(30.0, left()))
        except AssertionError as error:  # rank 1 has no answer
            report.say(str(error))
        waited, ended = file.read_text().split() if file.exists() else ("False", "inf")
    report.say(f"sums without rank 1: waited {waited}, ended {float(ended):.4f} s after they were given up")
    report.failed |= waited != "True" or float(ended) > ranks_add_up.SOON


def run_heads(report: Report, device: str, left: Callable[[], float]) -> None:
    """Answers of two ranks that sample from hidden states, against those of one."""
    for rank, found in enumerate(run_on_devices(2, ranks_head.heads, device, seconds=left() - 10.0)):
        wrong = [case for case, right in found.items() if not right]
        report.say(f"heads, rank {rank}: {len(found) - len(wrong)} of {len(found)} right {' | '.join(wrong)}")
        report.failed |= bool(wrong)


def cases(folder: Path, device: str) -> list[Case]:
    """Strategies with embedded models, and random networks. The first case compiles layers and captures its graphs at the
    start; the others capture what they meet twice.
    """
    from ..helpers.tiny_families import write_checkpoint

    plain: dict[str, Any] = {"device": device, "dtype": "float32", "compile_layers": False, "capture_graphs": "lazy"}
    whole = plain | ({"capture_graphs": "start", "compile_layers": True} if device == "cuda" else {})
    found = [Case("multi_bd", None, whole), *(Case(strategy, None, plain) for strategy in EMBEDDED)]
    for family in FAMILIES:
        write_checkpoint(folder / family, family, heads=(4, 2))
        found.append(Case(None, str(folder / family), plain))
    return found


def run_tokens(report: Report, device: str, left: Callable[[], float]) -> None:
    """Equal tokens of one process and of two ranks, case by case."""
    with TemporaryDirectory() as made:
        todo = cases(Path(made), device)
        with ThreadPoolExecutor(2) as threads:
            one = threads.submit(run_apart, [(crowds, (todo, REQUESTS))], left() - 10.0)
            two = threads.submit(run_on_devices, 2, crowds, todo, REQUESTS, seconds=left() - 10.0)
            alone, found = one.result()[0], two.result()[0]
    report.rows("tokens", [_compared(report, case, *pair) for case, *pair in zip(todo, alone, found, strict=True)])


def _compared(report: Report, case: Case, whole: Answers, found: Answers) -> dict[str, Any]:
    """One row; what was told otherwise is told."""
    flipped: list[str] = []
    try:
        flipped = flips(case.name, whole, found, exact=case.exact)
    except AssertionError as error:
        report.failed = True
        report.say(f"DIFFERENT {error}")
    for line in flipped:
        report.say(line)
    return {
        "case": case.name,
        "requests": len(whole.tokens),
        "steps": len(whole.cache_digests),
        "gave_way": whole.preempted,
        "equal": whole.tokens == found.tokens,
        "lines_equal": whole.cache_digests == found.cache_digests,
        "flipped": len(flipped),
    }


def shape_named(name: str, device: str) -> Any:
    """A published shape; a shrunk one on a CPU."""
    if device == "cpu":
        from ..helpers.shapes import shrunk

        return shrunk(name)
    from benchmarks.shapes import SHAPES

    return SHAPES[name]


def loads_for(batches: tuple[int, ...], device: str) -> list[Any]:
    """The loads to measure; short ones on a CPU."""
    from benchmarks.decode import DecodeLoad

    return [DecodeLoad(batch) for batch in batches] if device == "cuda" else [DecodeLoad(1, context=64, steps=2)]


def measured(ranks: Ranks, name: str, device: str, number: int, file: Path, gate: Any) -> tuple[float, float]:
    """Rows of a shape into a file, as they come; `number` is the first device. With a `gate` also tokens a second of this
    engine while the other one rests (of number 0 only), and while both work.
    """
    import torch

    from benchmarks.decode import WARM, measure_loads, scripted_decoding
    from benchmarks.device import Ceilings, measure_ceilings
    from benchmarks.shapes import random_checkpoint
    from dlstep.models.compiled import compile_layers

    torch.manual_seed(0)
    place = torch.device(device, number + ranks.rank) if device == "cuda" else torch.device("cpu")
    dtype = torch.bfloat16 if device == "cuda" else torch.float32
    if device == "cuda":
        torch.cuda.set_device(place)
    ceilings = measure_ceilings(place, dtype) if device == "cuda" else Ceilings(1e10, 1e11)
    start, shape = monotonic(), shape_named(name, device)
    checkpoint = random_checkpoint(shape, place, dtype, ranks)
    if device == "cuda":
        compile_layers(checkpoint.network)
    for row in measure_loads(checkpoint, shape, loads_for(LOADS[name], device), ceilings=ceilings, captures=False):
        if not ranks.rank:
            with file.open("a", encoding="utf-8") as opened:
                seen = {"shape": name, "tp": ranks.size, "since_start_s": monotonic() - start}
                opened.write(json.dumps(row | seen) + "\n")
    if gate is None:
        return 0.0, 0.0
    (load,) = loads_for((REPLICA_BATCH,), device)
    decode = scripted_decoding(checkpoint, shape.strategy(load.tokens_per_forward), load, captures=False)
    decode.prefill()
    for _ in range((WARM - 1) * load.steps):
        decode.step()

    def pace() -> float:
        before = decode.unmasked()
        seconds = sum(decode.step().seconds for _ in range(load.steps))
        return (decode.unmasked() - before) / seconds

    gate.wait()
    alone = pace() if number == 0 else 0.0
    gate.wait()
    return alone, pace()


def rows_in(file: Path) -> list[dict[str, Any]]:
    """The rows that are there."""
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def run_dense(report: Report, device: str, left: Callable[[], float]) -> None:
    """sdar-8b by two ranks; then by one process on each device, and by both at the same time."""
    _tried(report, lambda: two_ranks(report, DENSE, device, left))
    show_steps(report, DENSE)
    gate = get_context("spawn").Barrier(2)
    files = [file_of(report, DENSE, 1), report.out / "steps-other.jsonl"]
    given = [(DENSE, device, number, file, gate) for number, file in enumerate(files)]
    try:
        (alone, first), (_, second) = run_apart([(measured, each) for each in given], left() - 10.0)
    finally:
        show_steps(report, DENSE)
    times = (first + second) / alone
    row = {"shape": DENSE, "batch": REPLICA_BATCH, "one_tokens_per_s": alone, "two_tokens_per_s": first + second}
    report.rows("replicas", [row | {"times": times}])
    report.say(f"two replicas: {times:.2f}x, aim {REPLICA_AIM}x {'reached' if times >= REPLICA_AIM else 'MISSED'}")


def run_experts(report: Report, device: str, left: Callable[[], float]) -> None:
    """llada2-mini by two ranks, then by one process."""
    _tried(report, lambda: two_ranks(report, EXPERTS, device, left))
    show_steps(report, EXPERTS)
    run_apart([(measured, (EXPERTS, device, 0, file_of(report, EXPERTS, 1), None))], left() - 10.0)
    show_steps(report, EXPERTS)


def two_ranks(report: Report, name: str, device: str, left: Callable[[], float]) -> None:
    """Rows of a shape by two ranks."""
    run_on_devices(2, measured, name, device, 0, file_of(report, name, 2), None, seconds=left() - 10.0)


def file_of(report: Report, name: str, size: int) -> Path:
    """Where rows of a shape go."""
    return report.out / f"steps-{name}-{size}.jsonl"


def show_steps(report: Report, name: str) -> None:
    """The rows of a shape that are there, and how much faster two ranks are."""
    one = {row["batch"]: row for row in rows_in(file_of(report, name, 1))}
    two = [
        row | {"faster": one[row["batch"]]["step_us"] / row["step_us"] if row["batch"] in one else None}
        for row in rows_in(file_of(report, name, 2))
    ]
    for row in report.rows("steps", [*(row | {"faster": None} for row in one.values()), *two]):
        aim = AIMS.get(name, {}).get(row["batch"])
        if aim is not None and row["faster"] is not None:
            word = "reached" if row["faster"] >= aim else "MISSED"
            report.say(f"{name} at batch {row['batch']}: {row['faster']:.2f}x by two ranks, aim {aim}x {word}")


def _tried(report: Report, run: Callable[[], object]) -> None:
    """Run a part; one that fails is told, and the next one goes on."""
    try:
        run()
    except (AssertionError, OSError, RuntimeError) as error:
        report.failed = True
        report.say(f"FAILED: {error}")


def main() -> int:
    """Run the parts that are asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path, help="folder for text and JSON")
    parser.add_argument("--only", default=",".join(PARTS), help=f"some of {','.join(PARTS)}")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="what it may take at most")
    parser.add_argument("--cpu", action="store_true", help="without devices, in small")
    options = parser.parse_args()
    parts = parts_of(options.only, PARTS, parser)
    device, start = "cpu" if options.cpu else "cuda", monotonic()

    def left() -> float:
        return options.seconds - (monotonic() - start)

    import torch

    if device == "cuda" and torch.cuda.device_count() < 2:
        print(f"two CUDA devices are needed, torch finds {torch.cuda.device_count()}", file=sys.stderr)
        return 2
    report = Report(options.out)
    for file in report.out.glob("steps-*.jsonl"):
        file.unlink()
    facts = machine() if device == "cuda" else {"device": "cpu"}
    (options.out / "machine.json").write_text(json.dumps(facts, indent=1))
    report.say("\n".join(f"{name}: {value}" for name, value in facts.items()))
    if "sums" in parts and device == "cuda":
        report.say(f"\n## sums, {left():.0f} s left")
        _tried(report, lambda: run_sums(report, left))
    for part, run in (("heads", run_heads), ("dense", run_dense), ("experts", run_experts), ("tokens", run_tokens)):
        if part in parts:
            report.say(f"\n## {part}, {left():.0f} s left")
            _tried(report, lambda run=run: run(report, device, left))
    report.say(f"\n{'FAILED' if report.failed else 'passed'} after {monotonic() - start:.0f} s")
    return 1 if report.failed else 0


if __name__ == "__main__":
    sys.exit(main())
