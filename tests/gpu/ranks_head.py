"""Sampling from hidden states by two ranks, each with its own rows of the head, against one that has all of them."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from dlstep.distributed.ranks import Ranks
from dlstep_kernels import Drawn, Penalty, SamplerConfig, Settings, has_kernels, head_and_sample
from dlstep_kernels.sampling import Noise, TokenMasks
from dlstep_kernels.vocabulary import Share, cut_of

ROWS, DEPTH, VOCAB = (1, 130, 700), 256, 5003  # an odd number of ids: the ranks have different ones
SAMPLERS = {
    "plain": SamplerConfig(),
    "statistics": SamplerConfig(frozenset(("entropy", "margin")), best=3),
    "lowest": SamplerConfig(ties="lowest", best=2, tempered=False),
}
CLOSE = 1e-5


def settings_of(rows: int, device: torch.device, *, hot: bool) -> Settings:
    """Return settings with three scored ids per row; if `hot`, some rows are greedy, some drawn, some penalised, some
    masked.
    """
    place = torch.arange(rows, device=device)
    ids = torch.stack((place % VOCAB, place * 37 % VOCAB, torch.full_like(place, VOCAB - 1)), 1)
    if not hot:
        return Settings(scored_ids=ids)
    words = torch.randint(-(2**31), 2**31, (4, -(-VOCAB // 32)), generator=torch.Generator().manual_seed(1)).to(torch.int32)
    words[0] = -1
    return Settings(
        temperatures=(place % 3).float(),
        noise=Noise(place * 0x9E3779B97F4A7C1, place, place % 7),
        penalty=Penalty(place * 41 % VOCAB, (place % 2).float()),
        scored_ids=ids,
        masks=TokenMasks(words.to(device), place % 4),
    )


def heads(ranks: Ranks, device: str) -> dict[str, bool]:
    """For each case whether the answer is that of the whole; in a graph, too, where there are kernels."""
    place = torch.device(device, ranks.rank) if device == "cuda" else torch.device("cpu")
    if device == "cuda":
        torch.cuda.set_device(place)
    generator = torch.Generator().manual_seed(0)
    dtype = torch.bfloat16
    weight = torch.randint(-2, 3, (VOCAB, DEPTH), generator=generator).div(4).to(place, dtype)
    cut = cut_of(VOCAB, ranks.rank, ranks.size)
    own, share = weight[cut.first : cut.first + cut.count].clone(), Share(cut, ranks.exchange)
    found: dict[str, bool] = {}
    for rows in ROWS:
        # Whole numbers, so that logits are exact in any order of summation, and many of them equal.
        hidden = torch.randint(-2, 3, (rows, DEPTH), generator=generator).to(place, dtype)
        for name, sampler in SAMPLERS.items():
            for hot in (False, True):
                settings = settings_of(rows, place, hot=hot)
                facts: dict[str, Any] = {"vocab_size": VOCAB - 2, "mask_id": 7, "sampler": sampler}
                whole = head_and_sample(hidden, weight, settings, **facts)
                answer = lambda: head_and_sample(hidden, own, settings, share=share, **facts)  # noqa: B023, E731
                case = f"{rows} rows, {name}, {'sampled' if hot else 'greedy'}"
                found[case] = _same(answer(), whole)
                if has_kernels(place):
                    found[f"{case}, in a graph"] = _same(_replayed(answer), whole)
    ranks.gather_objects(None)  # nobody leaves while another one still needs it
    return found


def _replayed(answer: Callable[[], Drawn]) -> Drawn:
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, capture_error_mode="thread_local"):
        drawn = answer()
    graph.replay()
    torch.cuda.synchronize()
    return drawn


def _same(found: Drawn, whole: Drawn) -> bool:
    """Ids exactly, other numbers but for their last digits."""
    if not torch.equal(found.tokens, whole.tokens):
        return False
    names = ("probabilities", "entropies", "margins", "best_probabilities", "scored_probabilities")
    pairs: list[tuple[Tensor, Tensor]] = [
        (getattr(found, name), getattr(whole, name)) for name in names if getattr(whole, name) is not None
    ]
    if whole.best_ids is not None and not torch.equal(found.best_ids, whole.best_ids):
        return False
    return all(torch.allclose(one, other, atol=CLOSE, rtol=CLOSE) for one, other in pairs)
