"""Devices of replicas and of their ranks."""

from dlstep.engine.devices import FIRST_DEVICE, device_of_rank


def test_groups_of_replicas_have_devices_of_their_own(monkeypatch):
    """Whatever the number of replicas and ranks: no device twice, and the first ones all."""
    for replicas in range(1, 5):
        for size in range(2, 5):
            devices = []
            for number in range(replicas):
                monkeypatch.setenv(FIRST_DEVICE, str(number * size))
                devices += map(device_of_rank, range(size))
            assert devices == [f"cuda:{number}" for number in range(replicas * size)]
    monkeypatch.delenv(FIRST_DEVICE)
    assert device_of_rank(1) == "cuda:1"
    monkeypatch.setenv("LOCAL_RANK", "3")
    assert device_of_rank(1) == "cuda:3"
