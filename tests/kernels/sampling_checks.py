"""Problems for the sampling kernels, and what it means that an answer equals the twin's."""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import ModuleType

import pytest
import torch
from hypothesis import strategies as st
from torch import Tensor

from dlstep_kernels import Drawn, Penalty, Reading, Settings
from dlstep_kernels.sampling import Noise

STATISTICS = ("entropy", "margin", "noise", "log_sum")
DTYPES = (torch.float32, torch.bfloat16, torch.float16)
TEMPERATURES = (0.0, 0.0, 0.5, 1.0, 3.0, 1e-30, 1e30)
ODD = (math.nan, math.inf, -math.inf)


@dataclass(frozen=True)
class Problem:
    """Rows of logits as multiples of 1/2, what is odd among them, and all that may be asked of them."""

    seed: int
    rows: int
    width: int
    spread: float
    odd: tuple[tuple[int, int, float], ...]
    empty: bool
    layout: str
    dtype: torch.dtype
    vocab_size: int
    mask_id: int | None
    temperatures: tuple[float, ...] | None
    penalised: bool
    reading: Reading


READINGS = st.builds(
    Reading,
    statistics=st.frozensets(st.sampled_from(STATISTICS)),
    ties=st.sampled_from(("highest", "lowest")),
    best=st.sampled_from((0, 0, 1, 3, 8)),
    tempered=st.booleans(),
)


@st.composite
def problems(draw: st.DrawFn, rows: int, width: int, readings: st.SearchStrategy[Reading] = READINGS) -> Problem:
    rows, width = draw(st.integers(1, rows)), draw(st.integers(1, width))
    place = st.tuples(st.integers(0, rows - 1), st.integers(0, width - 1), st.sampled_from(ODD))
    temperatures = st.lists(st.sampled_from(TEMPERATURES), min_size=rows, max_size=rows).map(tuple)
    return Problem(
        seed=draw(st.integers(0, 10**6)),
        rows=rows,
        width=width,
        spread=draw(st.sampled_from((0.0, 2.0, 8.0, 100.0))),
        odd=tuple(draw(st.lists(place, max_size=3))),
        empty=draw(st.booleans()),
        layout=draw(st.sampled_from(("rows", "padded", "every second", "one row"))),
        dtype=draw(st.sampled_from(DTYPES)),
        vocab_size=draw(st.integers(max(1, width - 20), width)),
        mask_id=draw(st.none() | st.integers(0, width - 1)),
        temperatures=draw(st.none() | temperatures),
        penalised=draw(st.booleans()),
        reading=draw(readings),
    )


def generator_of(problem: Problem) -> torch.Generator:
    return torch.Generator().manual_seed(problem.seed)


def logits_of(problem: Problem, device: str) -> Tensor:
    """Logits with the strides of the problem; there are ties whatever the spread."""
    numbers = torch.randn(problem.rows, problem.width, generator=generator_of(problem)) * problem.spread
    numbers = (2 * numbers).round() / 2
    if problem.empty:
        numbers[-1] = -math.inf
    for row, column, value in problem.odd:
        numbers[row, column] = value
    logits = numbers.to(problem.dtype).to(device)
    if problem.layout == "one row":
        return logits[:1].expand(problem.rows, -1)
    if problem.layout == "rows":
        return logits
    room = torch.full((problem.rows, 2 * problem.width + 3), math.nan, dtype=problem.dtype, device=device)
    view = room[:, 1 : 1 + problem.width] if problem.layout == "padded" else room[:, : 2 * problem.width : 2]
    return view.copy_(logits)


def settings_of(problem: Problem, device: str) -> Settings:
    generator, rows = generator_of(problem), problem.rows
    seeds, positions, draws = (torch.randint(-(2**62), 2**62, (rows,), generator=generator) for _ in range(3))
    penalty = None
    if problem.penalised:
        ids = torch.randint(-1, problem.width, (rows,), generator=generator)
        penalty = Penalty(ids.to(device), torch.randint(0, 9, (rows,), generator=generator).div(2).to(device))
    return Settings(
        temperatures=None if problem.temperatures is None else torch.tensor(problem.temperatures, device=device),
        noise=Noise(seeds.to(device), (positions >> 44).abs().to(device), (draws >> 56).abs().to(device)),
        penalty=penalty,
    )


def assert_same(found: Drawn, twin: Drawn, *, tolerance: float = 1e-6) -> None:
    """Ids exactly, probabilities within `tolerance`, sums of many terms within ten times that."""
    assert torch.equal(found.tokens, twin.tokens)
    torch.testing.assert_close(found.probabilities, twin.probabilities, atol=tolerance, rtol=0)
    for name, factor in (("margins", 1), ("entropies", 10), ("log_sums", 10)):
        one, other = getattr(found, name), getattr(twin, name)
        assert (one is None) == (other is None)
        if one is not None:
            torch.testing.assert_close(one, other, atol=factor * tolerance, rtol=10 * tolerance)
    assert (found.noise is None) == (twin.noise is None)
    assert twin.noise is None or torch.equal(found.noise, twin.noise)
    assert (found.best_ids is None) == (twin.best_ids is None)
    if twin.best_ids is not None:
        torch.testing.assert_close(found.best_probabilities, twin.best_probabilities, atol=tolerance, rtol=0)
        counted = (twin.best_probabilities > 1e-30) | (twin.tokens < 0)[:, None]
        assert torch.equal(found.best_ids[counted], twin.best_ids[counted])


@contextmanager
def launched(*modules: ModuleType, **chosen: int) -> Iterator[None]:
    """Kernels of `modules` start with these launch parameters instead of the table's."""
    with pytest.MonkeyPatch.context() as patch:
        for module in modules:
            table = module.parameters
            patch.setattr(module, "parameters", lambda *names, table=table: {**table(*names), **chosen})
        yield
