"""Whether a group has memory in common is one answer on all ranks; devices are pretended."""

from types import SimpleNamespace

import pytest
import torch

from dlstep.distributed import ranks as module
from dlstep_kernels.commons import Commons

from ...helpers.ranks_running import run_ranks


def made(ranks, lacks, at):
    """How many programs a rank may launch, if its group has memory in common; rank `at` lacks something."""
    here = lacks if ranks.rank == at else ""
    device = torch.device("cuda", 0 if here == "device" else ranks.rank)
    properties = SimpleNamespace(major=8 if here == "kind" else 9, minor=0, multi_processor_count=100 + ranks.rank)
    cuda = torch.cuda
    cuda.get_device_properties = lambda _: properties
    cuda.device_count = lambda: 1 if here == "sight" else 2
    cuda.can_device_access_peer = lambda one, other: one != other and here != "reach"
    memory = torch.zeros(1)

    def met(whole, group):
        assert group == ranks.group
        if here == "handle":
            raise RuntimeError("no handle for this memory")
        return Commons(ranks.rank, (whole,) * 2, (whole,) * 2, whole, whole, 0)

    module.has_kernels = lambda _: here != "kernels"
    module._allocated = lambda _: None if here == "memory" else memory
    module._met = met
    module._meetings[:] = ["another group"] if here == "first meeting" else []
    found = module._create(device, ranks.group)
    return None if found is None else found.programs


def test_all_ranks_launch_as_many_programs_as_the_smallest_device_runs():
    assert run_ranks(2, made, "", 0) == [100, 100]


@pytest.mark.parametrize("at", [0, 1])
@pytest.mark.parametrize("lacks", ["kernels", "memory", "kind", "reach", "sight", "handle", "first meeting"])
def test_a_rank_without_memory_in_common_leaves_all_without(lacks, at):
    assert run_ranks(2, made, lacks, at) == [None, None]


def again(ranks):
    """The same for two groups of a process, one after the other."""
    return [made(ranks, "", 0), module._create(torch.device("cuda", ranks.rank), ranks.group) and 0]


def test_torch_lets_ranks_meet_once_in_a_process():
    """Later it would wait for ever for a rank that was started anew, and counts its meetings from the beginning."""
    assert run_ranks(2, again) == [[100, None]] * 2


def test_ranks_of_one_device_have_none():
    assert run_ranks(2, made, "device", 1) == [None, None]


def alive(ranks):
    """The word that ends waiting, before and after the group is broken off."""
    word = torch.zeros(1, dtype=torch.int32)
    module._commons[ranks.group] = Commons(0, (), (), word, word, 0)
    module._commons["another"] = None
    before = int(word)
    module.give_up()
    module._commons.clear()
    return before, int(word)


def test_giving_up_reaches_all_groups():
    assert run_ranks(2, alive) == [(0, 1)] * 2
