"""Hypothesis profiles, figures that tests report, and one thread for each worker."""

import gc
import os
import signal
from collections.abc import Callable
from functools import partial
from pathlib import Path

# Before anything imports transformers, which draws bars while it loads weights.
os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
# Before torch loads: on a busy machine, threads that wait for one another make small matrices many times slower.
os.environ.setdefault("OMP_NUM_THREADS", "1")
# Before anything loads triton: where there is no NVIDIA device, its interpreter runs the kernels.
if not any(map(Path.exists, (Path("/dev/nvidiactl"), Path("/dev/dxg")))):
    os.environ.setdefault("TRITON_INTERPRET", "1")

# A shell without job control, such as the one of a script, starts commands in the background with SIGINT ignored, and child
# processes inherit that: then no test of Ctrl-C could pass. Workers of pytest-xdist import this file, too.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.internal.conjecture import engine
from hypothesis.internal.conjecture.providers import HypothesisProvider
from hypothesis.internal.constants_ast import Constants

# No deadline: a busy machine is no error. `dev` tries the same examples in every run, so that a failure belongs to the change
# that is tested; `seeds`, with which `make full` runs the laws, tries new ones.
shared = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("dev", shared, max_examples=8, derandomize=True)
# No shrinking and no shared examples: a mutant is caught or not, how small the example is does not matter.
settings.register_profile(
    "mutants", shared, max_examples=80, derandomize=True, database=None, phases=(Phase.explicit, Phase.generate)
)
settings.register_profile("seeds", shared, max_examples=60, database=None, print_blob=True)
# Hypothesis also tries constants of the modules that are loaded, which are others when other tests ran before.
HypothesisProvider._local_constants = Constants()  # pyright: ignore[reportPrivateUsage, reportAttributeAccessIssue]
# A law whose examples are slow would shrink a failing one for five minutes without a word.
engine.MAX_SHRINKING_SECONDS = 20
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "dev"))

FIGURES = "figures"
LEFT_OUT = {
    "full": "they take too long for `make test`",
    "stress": "they take minutes each",
    "clients": "they install other programs",
}


def pytest_collection_finish() -> None:
    """Keep the garbage collector from rescanning all modules: `tests/property/test_laws.py` takes 6 % less time."""
    gc.collect()
    gc.freeze()


@pytest.fixture
def report(record_property) -> Callable[[str], None]:
    """A function that notes a line with what a test measured; all lines are printed at the end, whoever ran the test."""
    return partial(record_property, FIGURES)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print what tests reported, and which tests were left out."""
    called = [report for reports in terminalreporter.stats.values() for report in reports if _is_call(report)]
    lines = [(report.nodeid, line) for report in called for name, line in report.user_properties if name == FIGURES]
    if lines:
        terminalreporter.section("figures")
    for nodeid, line in sorted(lines):
        terminalreporter.write_line(f"{nodeid.partition('::')[0]}: {line}")
    for mark, why in LEFT_OUT.items():
        if f"not {mark}" in terminalreporter.config.option.markexpr:
            terminalreporter.write_line(f"Tests marked `{mark}` are left out: {why}. `make {mark}` runs them.")


def _is_call(report: object) -> bool:
    return isinstance(report, pytest.TestReport) and report.when == "call"
