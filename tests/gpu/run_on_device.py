"""Everything that needs a CUDA device, in one command of less than ten minutes; text and JSON go to a folder.

    PYTHONPATH=src:. python3 tests/gpu/run_on_device.py OUT [--only kernels,cells,decode,tests,serve] [--seconds 580]

Exit code 1 if a test failed, 2 if there is no device. Parts that no time is left for
are named.
"""

# Rows are mappings or dataclasses.
# pyright: reportArgumentType=false, reportCallIssue=false

import argparse
import json
import platform
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable
from dataclasses import asdict, is_dataclass
from datetime import datetime, timezone
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic
from typing import Any

TESTS = Path(__file__).parent
PARTS = ("kernels", "cells", "decode", "tests", "serve")
# Shape, quantization, blocks in flight (None: the shape's), and batches.
LOADS: tuple[tuple[str, str | None, int | None, tuple[int, ...]], ...] = (
    ("sdar-8b", None, None, (1, 8, 32)),
    ("sdar-8b", "fp8", None, (1, 8, 32)),
    ("llada2-mini", None, None, (1, 8, 32)),
    ("llada2-mini", None, 1, (1, 8, 16, 32)),
    ("llada2-mini", "fp8", None, (1, 8, 32)),
    ("llada2-mini", "fp8", 1, (1, 8, 16, 32)),
    ("fast-dllm-v2-1.5b", None, None, (1, 8)),
)
SECONDS = 580.0
SERVE_SECONDS = 200.0  # that the part `serve` takes at most
# What of the output of the tests is repeated.
TOLD = ("FAILED", "ERROR", " passed", " failed", " skipped", "in bf16", "differ by at most")


class Report:
    """Rows, as they come, into `OUT/NAME.json`; lines of text to stdout and `OUT/report.txt`."""

    def __init__(self, out: Path) -> None:
        self.out = out
        self.failed = False
        out.mkdir(parents=True, exist_ok=True)
        self._text = (out / "report.txt").open("w", encoding="utf-8")

    def say(self, line: str) -> None:
        """One line of text."""
        print(line, flush=True)
        print(line, file=self._text, flush=True)

    def rows(self, name: str, measured: Iterable[Any]) -> list[dict[str, Any]]:
        """Write all rows, showing each when it is there."""
        kept: list[dict[str, Any]] = []
        for row in measured:
            kept.append(asdict(row) if is_dataclass(row) and not isinstance(row, type) else dict(row))
            if len(kept) == 1:
                self.say("  ".join(kept[0]))
            self.say("  ".join(map(_shown, kept[-1].values())))
            (self.out / f"{name}.json").write_text(json.dumps(kept, indent=1))
        return kept


def _shown(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def machine() -> dict[str, str]:
    """Device, versions and date."""
    import torch
    import transformers
    import triton

    return {
        "device": torch.cuda.get_device_name(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "triton": triton.__version__,
        "transformers": transformers.__version__,
        "date": datetime.now(timezone.utc).strftime("%Y-%m-%d %H:%M UTC"),  # noqa: UP017
        "command": "PYTHONPATH=src:. python3 " + " ".join(sys.argv),
    }


def parts_of(only: str, known: Iterable[str], parser: argparse.ArgumentParser) -> list[str]:
    """The parts that are asked for; the parser ends the program for one that there is not."""
    parts = only.split(",")
    for part in parts:
        if part not in known:
            parser.error(f"--only: there is no part {part!r}: give some of {','.join(known)}")
    return parts


def run_tests(report: Report, left: Callable[[], float]) -> None:
    """The tests of this folder, each file in a process of its own; all output into tests.txt."""
    options = ["-v", "--tb=short", "-p", "no:cacheprovider", "--durations=5"]
    with TemporaryDirectory() as folder:
        running: list[tuple[Path, subprocess.Popen[bytes]]] = []
        for file in sorted(TESTS.glob("test_*.py")):
            told = Path(folder, f"{file.stem}.txt")
            command = [sys.executable, "-m", "pytest", str(file), *options]
            with told.open("wb") as output:
                running.append((told, subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, cwd=TESTS.parents[1])))
        for told, process in running:
            report.failed |= (
                _finished(process, left, lambda name=told.stem: report.say(f"{name}: stopped, no time is left")) != 0
            )
        texts = {told.stem: told.read_text(encoding="utf-8", errors="replace") for told, _ in running}
    (report.out / "tests.txt").write_text("\n".join(texts.values()))
    for name, text in texts.items():
        report.say(name)
        for line in text.splitlines():
            if any(part in line for part in TOLD):
                report.say(f"  {line}")


def _finished(process: "subprocess.Popen[bytes]", left: Callable[[], float], stopped: Callable[[], None]) -> int:
    """The exit code; a process that takes too long is interrupted, so that it says what it has done."""
    try:
        return process.wait(timeout=max(1.0, left() - 10.0))
    except subprocess.TimeoutExpired:
        stopped()
        process.send_signal(signal.SIGINT)
    try:
        return process.wait(timeout=10.0)
    except subprocess.TimeoutExpired:
        process.kill()
        return process.wait() or 1


def run_kernels(report: Report, ceilings: Any) -> None:
    """Every kernel against the ceilings."""
    from benchmarks.kernels import measure_kernels

    report.rows("kernels", measure_kernels(ceilings=ceilings))


def run_decode(report: Report, ceilings: Any, left: Callable[[], float]) -> None:
    """Decode steps of the shapes, batch by batch as long as there is time."""
    import torch

    from benchmarks.decode import DecodeLoad, measure_shape
    from benchmarks.shapes import SHAPES as KNOWN

    def all_rows() -> Iterable[Any]:
        for name, quantization, buffer_size, batches in LOADS:
            if left() < 30.0:
                report.say(f"{name}: left out, no time is left")
                continue
            loads = [DecodeLoad(batch, buffer_size=buffer_size) for batch in batches]
            device, dtype = torch.device("cuda", 0), torch.bfloat16
            for row in measure_shape(
                KNOWN[name], loads, device=device, dtype=dtype, ceilings=ceilings, quantization=quantization
            ):
                yield row
                if left() < 30.0:
                    report.say(f"{name}: cut short after batch {row['batch']}")
                    break
            torch.cuda.empty_cache()

    report.rows("decode", all_rows())


def run_cells(report: Report, ceilings: Any) -> None:
    """Two networks decoded by their own samples, in bf16 and in FP8, beside the peer's figures."""
    from benchmarks.cells import measure_cells

    report.rows("cells", measure_cells(quantizations=("none", "fp8"), ceilings=ceilings))


def run_serve(report: Report, left: Callable[[], float]) -> None:
    """What clients of `dlstep serve` get, if it has the packages that it needs."""
    try:
        import dlstep.serve.http.server  # noqa: F401  # pyright: ignore[reportUnusedImport]
    except ModuleNotFoundError as error:
        report.say(f"left out: {error}: pip install 'dlstep[serve]'")
        return
    if left() < SERVE_SECONDS:
        report.say("left out, no time is left")
        return
    from benchmarks.serving import measure_serving

    rows = report.rows("serve", measure_serving())
    report.failed |= any(row["failed"] for row in rows)


def main() -> int:
    """Run the parts that are asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path, help="folder for text and JSON")
    parser.add_argument("--only", default=",".join(PARTS), help=f"some of {','.join(PARTS)}")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="what it may take at most")
    options = parser.parse_args()
    parts = parts_of(options.only, PARTS, parser)
    start = monotonic()

    def left() -> float:
        return options.seconds - (monotonic() - start)

    import torch

    if not torch.cuda.is_available():
        print("no CUDA device: torch.cuda.is_available() is false", file=sys.stderr)
        return 2
    from benchmarks.device import measure_ceilings

    report = Report(options.out)
    facts = machine()
    (report.out / "machine.json").write_text(json.dumps(facts, indent=1))
    report.say("\n".join(f"{name}: {value}" for name, value in facts.items()))
    ceilings = measure_ceilings(torch.device("cuda", 0), torch.bfloat16)
    report.say(f"ceilings: copy {ceilings.bytes_per_s / 1e9:.0f} GB/s, bf16 product {ceilings.flops_per_s / 1e12:.0f} TFLOP/s")
    torch.cuda.empty_cache()
    for part, run in (
        ("kernels", lambda: run_kernels(report, ceilings)),
        ("cells", lambda: run_cells(report, ceilings)),
        ("decode", lambda: run_decode(report, ceilings, left)),
        ("tests", lambda: run_tests(report, left)),
        ("serve", lambda: run_serve(report, left)),
    ):
        if part in parts:
            report.say(f"\n## {part}, {left():.0f} s left")
            run()
    report.say(f"\n{'FAILED' if report.failed else 'passed'} after {monotonic() - start:.0f} s")
    return 1 if report.failed else 0


if __name__ == "__main__":
    sys.exit(main())
