"""Figures that tests report are printed at the end, whoever ran the tests; what is left out is told."""

from types import SimpleNamespace
from typing import Any

import pytest

from ..conftest import FIGURES, pytest_terminal_summary


class Terminal:
    """A terminal reporter that keeps what is written. `reports` are a test's id, its phase and the lines that it reported."""

    def __init__(self, *reports: tuple[str, str, tuple[str, ...]], chosen: str = "") -> None:
        self.written: list[str] = []
        self.config = SimpleNamespace(option=SimpleNamespace(markexpr=chosen))
        self.stats: dict[str, list[Any]] = {"passed": [], "failed": [], "warnings": ["no report"]}
        for number, (test, when, lines) in enumerate(reports):
            report = pytest.TestReport(test, ("", 0, ""), {}, "passed", None, when)  # type: ignore[arg-type]
            report.user_properties = [*((FIGURES, line) for line in lines), ("other", "no figure")]
            self.stats[("passed", "failed")[number % 2]].append(report)

    def section(self, title: str) -> None:
        self.written.append(f"= {title}")

    def write_line(self, line: str) -> None:
        self.written.append(line)


def summary(terminal: Any) -> list[str]:
    """What is printed at the end."""
    pytest_terminal_summary(terminal)
    return terminal.written


def test_figures_are_printed_in_order_of_tests_and_once() -> None:
    measured = [(f"test_it.py::test_measures[{number}]", "call", (f"{number} of four",)) for number in (3, 1, 4, 2)]
    failed = ("test_it.py::test_fails", "call", ("seen before it failed", "and again"))
    ended = ("test_it.py::test_fails", "teardown", ("seen before it failed",))  # its properties come with every phase
    assert summary(Terminal(*measured, failed, ended)) == [
        "= figures",
        *("test_it.py: and again", "test_it.py: seen before it failed"),
        *(f"test_it.py: {number} of four" for number in (1, 2, 3, 4)),
    ]
    assert summary(Terminal(("test_it.py::test_quiet", "call", ()))) == []


def test_a_figure_is_a_property_of_the_test_that_reports_it(report: Any, request: pytest.FixtureRequest) -> None:
    """Properties come from the processes of xdist with the report of the test."""
    report("one")
    assert request.node.user_properties == [(FIGURES, "one")]
    request.node.user_properties.clear()


@pytest.mark.parametrize(
    ("chosen", "left_out"),
    [
        ("not stress and not clients", ["stress", "clients"]),
        ("not clients", ["clients"]),
        ("stress", []),
        ("", []),
    ],
)
def test_tests_that_are_left_out_are_told(chosen: str, left_out: list[str]) -> None:
    told = summary(Terminal(chosen=chosen))
    assert [line.partition("`")[2].partition("`")[0] for line in told] == left_out
    assert all(f"`make {mark}` runs them." in line for mark, line in zip(left_out, told, strict=True))
