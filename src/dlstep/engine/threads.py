"""Choose the number of CPU threads that torch uses, for the whole process.

OpenMP threads wait for each other by spinning. On a small network most of the time is such waiting;
when another process occupies a core, one thread spins until the other is scheduled, and decoding
slows down many times. So a small network gets one thread, and a large one torch's own number.
"""

import os
from collections.abc import Mapping

SMALL = 10_000_000  # parameters; below, a second thread gains little and loses much under load
SPINS = "1000"  # iterations of OpenMP's spin loop before a thread sleeps; the default is millions

_changed: dict[str, int] = {}  # `before`: torch's own number; `after`: the number set here


def chosen_threads(parameters: int, requested: int | None, environment: Mapping[str, str], default: int) -> int | None:
    """Return the threads for a network on a CPU: `requested`, else by `environment`, else by size.

    None means that torch has already read the number from the environment.
    """
    if requested is not None:
        return requested
    if environment.get("OMP_NUM_THREADS") or environment.get("MKL_NUM_THREADS"):
        return None
    return 1 if parameters < SMALL else default


def set_threads(parameters: int, requested: int | None = None) -> None:
    """Set torch's threads for a CPU network of this many parameters, in the whole process.

    If the program changed torch's number since the last call, that number counts as torch's own.
    """
    import torch

    now = torch.get_num_threads()
    default = _changed["before"] if _changed.get("after") == now else now
    threads = chosen_threads(parameters, requested, os.environ, default)
    if threads is not None:
        torch.set_num_threads(threads)
        _changed.update(before=default, after=threads)


def spin_less(environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return environment variables for a new process whose OpenMP threads spin briefly.

    OpenMP reads them once, when torch is loaded. Empty if the environment already sets a policy.
    """
    policy = environment.get("GOMP_SPINCOUNT") or environment.get("OMP_WAIT_POLICY")
    return {} if policy else {"GOMP_SPINCOUNT": SPINS}
