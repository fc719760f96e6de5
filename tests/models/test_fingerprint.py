"""A fingerprint tells networks apart by what they are, and finds the same one again."""

import torch
from torch import nn

from dlstep.models.fingerprint import fingerprint


def network(seed: int = 0, width: int = 40) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(width, width), nn.Linear(width, 3, bias=False))


def test_equal_networks_have_one_fingerprint_and_others_another() -> None:
    first = fingerprint(network())
    assert first == fingerprint(network()) and len(first) == 32
    other = network()
    with torch.no_grad():
        other[0].weight[0, 0] += 1.0
    prints = [fingerprint(each) for each in (network(1), network(width=41), network().half(), network().bfloat16(), other)]
    assert len({first, *prints}) == 6


def test_names_shapes_and_dtypes_count_where_the_numbers_are_equal() -> None:
    def zeros(**shapes: tuple[int, ...]) -> nn.Module:
        module = nn.Module()
        for name, shape in shapes.items():
            module.register_buffer(name, torch.zeros(shape))
        return module

    plain = zeros(a=(2, 3))
    prints = {fingerprint(each) for each in (plain, zeros(b=(2, 3)), zeros(a=(3, 2)), zeros(a=(2, 3)).half(), zeros())}
    assert len(prints) == 5
