"""`examples/rl.py` runs, is short, uses public names only, and makes a model right at a threshold that was too fast for it."""

import re
import subprocess
import sys
from math import hypot

import pytest

from .blocks import ROOT

EXAMPLE = ROOT / "examples" / "rl.py"
ACCURACY = re.compile(r"(?:before|after): accuracy (\S+), standard error (\S+)")


def accuracies(*options):
    """Return accuracy and standard error before and after a training."""
    done = subprocess.run([sys.executable, EXAMPLE, *options], capture_output=True, text=True, check=True)
    return [(float(share), float(error)) for share, error in ACCURACY.findall(done.stdout)]


def test_the_example_is_short_and_public():
    text = EXAMPLE.read_text()
    assert len(text.splitlines()) <= 100
    assert not re.search(r"\b_[a-z]|\.engine\b|dlstep\.\w", text)


@pytest.mark.full
def test_the_example_runs():
    (before, _), (after, _) = accuracies("--updates", "1", "--problems", "20")
    assert 0.2 < before < 0.7 and after > 0.2


@pytest.mark.full
def test_the_accuracy_rises_by_more_than_three_standard_errors():
    (before, error), (after, other) = accuracies()
    assert after - before > 3 * hypot(error, other)
