"""Find devices, and check that the options fit into memory before weights are loaded."""

import os

from ..core import Refused

_changed: dict[str, int] = {}  # `before`: torch's own number; `after`: the number set here


def chosen_threads(parameters: int, requested: int | None, default: int) -> int | None:
    """Return the threads for a network on a CPU: `requested`, else by the environment, else by size.

    None means that torch has already read the number from the environment.
    """
    if requested is not None:
        return requested
    if os.environ.get("OMP_NUM_THREADS") or os.environ.get("MKL_NUM_THREADS"):
        return None
    from ..models.checkpoint import SMALL

    return 1 if parameters < SMALL else default


def set_threads(parameters: int, requested: int | None = None) -> None:
    """Set torch's threads for a CPU network of this many parameters, in the whole process.

    If the program changed torch's number since the last call, that number counts as torch's own.
    """
    import torch

    now = torch.get_num_threads()
    default = _changed["before"] if _changed.get("after") == now else now
    threads = chosen_threads(parameters, requested, default)
    if threads is not None:
        torch.set_num_threads(threads)
        _changed.update(before=default, after=threads)


GIB = 1 << 30
FIRST_DEVICE = "DLSTEP_FIRST_DEVICE"  # environment variable: CUDA device of rank 0 of a group
TABLE_ROW_BYTES = 16  # minimum size of a request's page table


def find_device(name: str | None) -> str:
    """Return the device `name`, checked; None: cuda if there is one, else cpu. Imports torch."""
    import torch

    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if name is None:
        return "cuda" if count else "cpu"
    if name != "cpu" and int(name.partition(":")[2] or 0) >= count:
        available = f"{count} CUDA devices" if count else "no CUDA device"
        raise Refused("device", "invalid_value", f"{name!r} does not exist, torch finds {available}: give cpu, or leave it out")
    return name


def memory_of(device: str) -> int | None:
    """Return the bytes of memory of a device, or of this machine for the CPU; None if unknown."""
    import torch

    if device != "cpu":
        return torch.cuda.mem_get_info(device)[1]
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):  # Windows: no sysconf; some systems: no such name
        return None


def check_room(device: str, option: str, count: int, size: int) -> None:
    """Raise Refused for an option if `count` entries of `size` bytes do not fit into the memory of `device`."""
    room = memory_of(device)
    if room is not None and count * size > room:
        take, has = f"{count} take at least {count * size / GIB:,.0f} GiB", f"{room / GIB:,.0f} GiB"
        raise Refused(option, "out_of_range", f"{take}, but the memory of {device} is {has}: give fewer")


def device_of(device: str | None, number: int) -> str | None:
    """Return the device of a worker. Workers use several CUDA devices in turn."""
    if device not in (None, "cuda"):
        return device
    import torch

    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    return f"cuda:{number % count}" if count > 1 else device


def first_device() -> int:
    """Return the number of the CUDA device of rank 0. Other ranks use the next devices."""
    return int(os.environ.get(FIRST_DEVICE, "0"))


def device_of_rank(rank: int) -> str:
    """Return a rank's CUDA device: LOCAL_RANK if set (torchrun), else counted from rank 0's."""
    return f"cuda:{int(os.environ.get('LOCAL_RANK', first_device() + rank))}"
