"""Problems for the sampling kernels, and what it means that an answer equals the twin's."""

# Optional results are present if the twin returns them.
# pyright: reportArgumentType=false, reportOptionalOperand=false, reportOptionalSubscript=false, reportOptionalMemberAccess=false

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import strategies as st
from torch import Tensor

from dlstep_kernels import Drawn, Penalty, SamplerConfig, Settings, SoftRows
from dlstep_kernels.draws import draw_keys, uniform
from dlstep_kernels.sampling import Noise, TokenMasks

STATISTICS = ("entropy", "margin", "noise")
DTYPES = (torch.float32, torch.bfloat16, torch.float16)
TEMPERATURES = (0.0, 0.0, 0.5, 1.0, 3.0, 300.0, 1e-30, 1e30)
ODD = (math.nan, math.inf, -math.inf)
EDGES = (0, 31, 32, 33, 63, 64)  # ids at the ends of words
LAYOUTS = ("rows", "padded", "every second", "one row")
MASKS = ("all", "most", "half", "few", "one", "edges", "none")
ROUNDING = 2.0**-24  # of one operation in fp32, relative to its result


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
    sampler: SamplerConfig
    named: int = 0
    masks: tuple[str, ...] | None = None  # which ids each row may hold


SAMPLERS = st.builds(
    SamplerConfig,
    statistics=st.frozensets(st.sampled_from(STATISTICS)),
    ties=st.sampled_from(("highest", "lowest")),
    best=st.sampled_from((0, 0, 1, 3, 8)),
    tempered=st.booleans(),
)


@st.composite
def problems(draw: st.DrawFn, rows: int, width: int, samplers: st.SearchStrategy[SamplerConfig] = SAMPLERS) -> Problem:
    rows, width = draw(st.integers(1, rows)), draw(st.integers(1, width))
    place = st.tuples(st.integers(0, rows - 1), st.integers(0, width - 1), st.sampled_from(ODD))
    temperatures, masks = (
        st.lists(st.sampled_from(each), min_size=rows, max_size=rows).map(tuple) for each in (TEMPERATURES, MASKS)
    )
    return Problem(
        seed=draw(st.integers(0, 10**6)),
        rows=rows,
        width=width,
        spread=draw(st.sampled_from((0.0, 2.0, 8.0, 100.0, 1000.0))),
        odd=tuple(draw(st.lists(place, max_size=3))),
        empty=draw(st.booleans()),
        layout=draw(st.sampled_from(LAYOUTS)),
        dtype=draw(st.sampled_from(DTYPES)),
        vocab_size=draw(st.integers(max(1, width - 20), width)),
        mask_id=draw(st.none() | st.integers(0, width - 1)),
        temperatures=draw(st.none() | temperatures),
        penalised=draw(st.booleans()),
        sampler=draw(samplers),
        named=draw(st.sampled_from((0, 1, 3))),
        masks=draw(st.none() | masks),
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
    return laid_out(numbers.to(problem.dtype).to(device), problem.layout)


def laid_out(rows: Tensor, layout: str) -> Tensor:
    """The rows, or the first one again and again, with other strides; between them are no numbers."""
    if layout in ("rows", "one row"):
        return rows if layout == "rows" else rows[:1].expand(len(rows), -1)
    width = rows.shape[1]
    room = torch.full((len(rows), 2 * width + 3), math.nan, dtype=rows.dtype, device=rows.device)
    return (room[:, 1 : 1 + width] if layout == "padded" else room[:, : 2 * width : 2]).copy_(rows)


def settings_of(problem: Problem, device: str) -> Settings:
    generator, rows = generator_of(problem), problem.rows
    seeds, positions, draws = (torch.randint(-(2**62), 2**62, (rows,), generator=generator) for _ in range(3))
    penalty = ids = None
    if problem.penalised:
        ids = torch.randint(-1, problem.width, (rows,), generator=generator)
        penalty = Penalty(ids.to(device), torch.randint(0, 9, (rows,), generator=generator).div(2).to(device))
    named = torch.randint(-1, problem.width + 2, (rows, problem.named), generator=generator)
    if problem.named:  # what chance would hardly meet: the mask, and the id that is penalised
        if problem.mask_id is not None:
            named[::3, 0] = problem.mask_id
        if ids is not None:
            named[1::3, 0] = ids[1::3]
    return Settings(
        temperatures=None if problem.temperatures is None else torch.tensor(problem.temperatures, device=device),
        noise=Noise(seeds.to(device), (positions >> 44).abs().to(device), (draws >> 56).abs().to(device)),
        penalty=penalty,
        scored_ids=named.to(device) if problem.named else None,
        masks=None if problem.masks is None else masks_of(problem, device),
    )


def masks_of(problem: Problem, device: str) -> TokenMasks:
    """A table whose lines are in any order, with whatever bits after the last id, and the line of each row."""
    assert problem.masks is not None
    rng, words = np.random.default_rng(problem.seed), -(-problem.vocab_size // 32)
    bits = rng.integers(0, 2, (1 + len(problem.masks), 32 * words), dtype=np.uint8)
    bits[0] = 1
    lines = 1 + rng.permutation(len(problem.masks))
    for kind, line in zip(problem.masks, lines, strict=True):
        chances = {"all": 1.0, "most": 0.9, "half": 0.5, "few": 0.1}
        allowed = rng.random(problem.vocab_size) < chances.get(kind, 0.0)
        if kind == "one":
            allowed[rng.integers(problem.vocab_size)] = True
        if kind == "edges":
            allowed[[each for each in (*EDGES, problem.vocab_size - 1) if each < problem.vocab_size]] = True
        bits[line, : problem.vocab_size] = allowed
    lines[[kind == "all" for kind in problem.masks]] = 0
    table = np.packbits(bits, axis=1, bitorder="little").view("<i4").astype(np.int32)
    return TokenMasks(torch.from_numpy(table).to(device), torch.from_numpy(lines).to(device))


def permitted_by(masks: TokenMasks, width: int) -> Tensor:
    """Which of `width` ids each row may hold; none after the table's last one."""
    words = masks.words.cpu().numpy()[masks.rows.cpu().numpy()].astype("<i4")
    bits = np.unpackbits(words.view(np.uint8), axis=1, count=max(width, 32 * words.shape[1]), bitorder="little")
    return torch.from_numpy(bits[:, :width].astype(bool)).to(masks.words.device)


def scores_of(logits: Tensor, chosen: Settings, *, vocab_size: int, mask_id: int | None) -> Tensor | None:
    """Perturbed scores in double precision, NaN in greedy rows; None if all rows are greedy."""
    if chosen.temperatures is None or chosen.noise is None:
        return None
    allowed, noise = logits[:, :vocab_size].double(), chosen.noise
    if chosen.penalty is not None:
        amounts = chosen.penalty.amounts[:, None].double()
        ids = torch.arange(allowed.shape[1], device=logits.device)
        allowed = torch.where(ids == chosen.penalty.ids[:, None], allowed - amounts, allowed)
    if mask_id is not None and mask_id < allowed.shape[1]:
        allowed = allowed.index_fill(1, torch.tensor([mask_id], device=logits.device), -math.inf)
    if chosen.masks is not None:
        allowed = allowed.masked_fill(~permitted_by(chosen.masks, allowed.shape[1]), -math.inf)
    numbers = uniform(draw_keys(noise.seeds, noise.positions, noise.draws), count=allowed.shape[1]).double()
    temperatures = torch.where(chosen.temperatures > 0, chosen.temperatures, math.nan)[:, None].double()
    return (allowed - allowed.amax(1, keepdim=True)) / temperatures - (-numbers.log()).log()


def far_blur(spread: float, scores: Tensor | None) -> float:
    """The same where no row is sampled from: exponentials are relative to a logit at most 60 off."""
    return 2 * min(60.0, 8 * spread) * ROUNDING if scores is None else 0.0


def assert_same(
    found: Drawn, twin: Drawn, width: int, *, additions: int, scores: Tensor | None = None, blur: float = 0.0
) -> None:
    """Ids exactly, but where two perturbed `scores` are nearer than rounding; other numbers as far as rounding allows.

    A weight is exp(s), and logits are such that only the temperature makes s a rounded number: five roundings on both sides
    move s by 5 |s| * ROUNDING at most. The mean of |s| under the distribution is at most log(width), and p |s| at most 1/e.
    An exponential is off by 2 units of the last place, 4 * ROUNDING, and there is one for each addition to a sum. What moves
    every s by up to `blur` moves p by p (1 - p) * 2 * blur at most.
    """
    absolute = 5 / math.e * ROUNDING + blur / 2
    relative = (5 * math.log(width) + 5 * additions) * ROUNDING
    same = found.tokens == twin.tokens
    if not bool(same.all()):
        assert scores is not None, f"greedy ids {found.tokens} are not {twin.tokens}"
        lost = (scores.amax(1) - scores.gather(1, found.tokens.clamp(0, scores.shape[1] - 1)[:, None]).squeeze(1))[~same]
        # A winner's noise is at most 17, its s at least -20: neither is rounded more than 25 times, nor more than once each.
        assert bool((lost <= 1000 * ROUNDING + 4 * blur).all()), f"scores of ids {found.tokens[~same]} are worse by {lost}"
    torch.testing.assert_close(found.probabilities[same], twin.probabilities[same], atol=absolute, rtol=relative)
    # An entropy weights errors with 1 + |s|, which a kernel takes relative to a logit at most 8 from the largest.
    for name, limits in (
        ("margins", (absolute + relative, 0.0)),
        ("entropies", ((9 + math.log(width)) * (absolute + relative), relative)),
    ):
        one, other = getattr(found, name), getattr(twin, name)
        assert (one is None) == (other is None)
        if one is not None:
            torch.testing.assert_close(one, other, atol=limits[0], rtol=limits[1])
    assert (found.noise is None) == (twin.noise is None)
    assert twin.noise is None or torch.equal(found.noise, twin.noise)
    assert (found.scored_probabilities is None) == (twin.scored_probabilities is None)
    if twin.scored_probabilities is not None:
        torch.testing.assert_close(found.scored_probabilities, twin.scored_probabilities, atol=absolute, rtol=relative)
    assert (found.best_ids is None) == (twin.best_ids is None)
    if twin.best_ids is not None:
        torch.testing.assert_close(found.best_probabilities, twin.best_probabilities, atol=absolute, rtol=relative)
        counted = (twin.best_probabilities > 1e-30) | (twin.tokens < 0)[:, None]
        assert torch.equal(found.best_ids[counted], twin.best_ids[counted])


def options_of(problem: Problem) -> dict[str, Any]:
    return {"vocab_size": problem.vocab_size, "mask_id": problem.mask_id, "sampler": problem.sampler}


def check_alike(
    sample: Callable[..., Drawn],
    twin: Callable[..., Drawn],
    given: tuple[Tensor, ...],
    chosen: Settings,
    *,
    additions: int,
    logits: Tensor | None = None,
    spread: float = 0.0,
    blur: float = 0.0,
    **options: Any,
) -> None:
    """Sample from the same arrays, which are logits or stand for `logits`, and compare; `spread` as in `far_blur`."""
    logits = given[0] if logits is None else logits
    scores = scores_of(logits, chosen, vocab_size=options["vocab_size"], mask_id=options["mask_id"])
    found, expected = (each(*given, chosen, **options) for each in (sample, twin))
    blur += far_blur(spread, scores)
    assert_same(found, expected, logits.shape[1], additions=additions, scores=scores, blur=blur)


def check_merge(
    merge: Callable[..., Tensor],
    twin: Callable[..., Tensor],
    seed: int,
    *,
    ids: int,
    total: int,
    blended: int,
    count: int,
    width: int,
    dtype: torch.dtype,
    device: str = "cpu",
) -> None:
    """Check that blends of some rows equal the twin's, and that the other rows do not change.

    Factors are whole quarters and eighths: what cancels out in a blend cancels exactly, in any order.
    """
    generator = torch.Generator().manual_seed(seed)
    table = torch.randint(-8, 9, (ids, width), generator=generator).div(4).to(device, dtype)
    embedded = table[torch.randint(0, ids, (total,), generator=generator).to(device)]
    rows = torch.randperm(total, generator=generator)[:blended].to(device)
    shares = (torch.randint(0, 9, (blended, count + 1), generator=generator) / 8).to(device)
    chosen, modes = (
        torch.randint(0, most, (blended, *size), generator=generator).to(device) for most, size in ((ids, (count,)), (3, ()))
    )
    soft, before = SoftRows(rows, chosen, shares[:, :count], modes, shares[:, count]), embedded.clone()
    found = merge(embedded, table, 3, soft)
    assert torch.equal(embedded, before)
    others = torch.ones(total, dtype=torch.bool, device=device).index_fill(0, rows, False)
    assert torch.equal(found[others], embedded[others])
    # A norm sums up to 8192 squares by trees of at most 64 additions, and takes a root; in 16 bits the answer may be rounded
    # the other way.
    step = {torch.float32: 64 * ROUNDING, torch.bfloat16: 2**-7, torch.float16: 2**-10}[dtype]
    torch.testing.assert_close(found, twin(embedded, table, 3, soft), atol=step, rtol=step)


@contextmanager
def launched(*modules: ModuleType, **chosen: int) -> Iterator[None]:
    """Kernels of `modules` start with these launch parameters instead of the table's."""
    with pytest.MonkeyPatch.context() as patch:
        for module in modules:
            table = module.parameters
            patch.setattr(module, "parameters", lambda *names, table=table: {**table(*names), **chosen})
        yield
