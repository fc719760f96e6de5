"""How many threads torch computes with on a CPU.

The number belongs to the process: it holds for every model and every other use of torch in it.

OpenMP's threads wait for one another by spinning. On a small network each operation is so short that waiting is most of the
time; when another process takes a core, one thread spins until the other one is scheduled, and a decode becomes many times
slower. So a small network gets one thread, and a large one torch's own number.
"""

import os
from collections.abc import Mapping

SMALL = 10_000_000  # parameters; below, a second thread gains little on an idle machine and loses much on a busy one
SPINS = "1000"  # turns of OpenMP's waiting loop before a thread sleeps, instead of millions

_changed: dict[str, int] = {}  # torch's number before it was changed here, and the one it was changed to


def chosen_threads(parameters: int, asked: int | None, environment: Mapping[str, str], default: int) -> int | None:
    """Threads for a network on a CPU: `asked`, else what the environment says (None: torch has read it), else by size."""
    if asked is not None:
        return asked
    if environment.get("OMP_NUM_THREADS") or environment.get("MKL_NUM_THREADS"):
        return None
    return 1 if parameters < SMALL else default


def set_threads(parameters: int, asked: int | None = None) -> None:
    """Set torch's threads for a network of so many parameters on a CPU, in the whole process.

    A number that the program itself gave to torch since the last call is taken as torch's own.
    """
    import torch

    now = torch.get_num_threads()
    default = _changed["before"] if _changed.get("after") == now else now
    threads = chosen_threads(parameters, asked, os.environ, default)
    if threads is not None:
        torch.set_num_threads(threads)
        _changed.update(before=default, after=threads)


def spin_less(environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Environment variables that let OpenMP's threads sleep soon while they wait; read once, when torch is loaded.

    Nothing where the environment has a say of its own.
    """
    given = environment.get("GOMP_SPINCOUNT") or environment.get("OMP_WAIT_POLICY")
    return {} if given else {"GOMP_SPINCOUNT": SPINS}
