"""Devices of replicas and of their ranks."""

from dlstep.engine.devices import FIRST_DEVICE, device_of_rank


def test_groups_of_replicas_have_devices_of_their_own():
    """Whatever the number of replicas and ranks: no device twice, and the first ones all."""
    for replicas in range(1, 5):
        for size in range(2, 5):
            groups = [{FIRST_DEVICE: str(number * size)} for number in range(replicas)]
            devices = [device_of_rank(rank, group) for group in groups for rank in range(size)]
            assert devices == [f"cuda:{number}" for number in range(replicas * size)]
    assert device_of_rank(1, {}) == "cuda:1" and device_of_rank(1, {"LOCAL_RANK": "3"}) == "cuda:3"
