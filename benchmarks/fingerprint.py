"""Time to hash the weights of a checkpoint for its fingerprint, which reads every byte."""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter, sleep

from dlstep.models.digests import LEAST_REMEMBERED, SETTLED_NS, digests, identify

from . import entry

FILES = 4


@dataclass(frozen=True, slots=True)
class FingerprintCost:
    """Milliseconds to hash `gib` GiB from the page cache, and the rate in 10^9 bytes per second.

    `remembered` digests come from the cache folder: no bytes are hashed.
    """

    remembered: bool
    threads: int
    gib: float
    ms: float
    gb_per_s: float


def measure_fingerprint(gib: float) -> Iterator[FingerprintCost]:
    """Yield the cost with one thread, with one per core, and with cached digests.

    Raises ValueError for files too small to be cached.
    """
    size = int(gib * (1 << 30) / FILES)
    if size < LEAST_REMEMBERED:
        raise ValueError(f"--gib={gib:g} is too little to measure: give at least {FILES * LEAST_REMEMBERED / (1 << 30):g}")
    cores = os.cpu_count() or 1
    with TemporaryDirectory() as folder:
        files = [Path(folder, f"{number}.bin") for number in range(FILES)]
        block = os.urandom(1 << 20)
        for file in files:
            with file.open("wb") as opened:
                for _ in range(size >> 20):
                    opened.write(block)
        sleep(1.5 * SETTLED_NS / 1e9)  # digests of files that changed just now are not cached
        identities = [identify(file) for file in files]
        for threads, cache in ((1, "first"), (cores, "second"), (cores, "second")):
            remembered = Path(folder, cache).exists()
            begun = perf_counter()
            digests(identities, threads, Path(folder, cache))
            seconds = perf_counter() - begun
            yield FingerprintCost(remembered, threads, gib, 1e3 * seconds, 0.0 if remembered else FILES * size / seconds / 1e9)


if __name__ == "__main__":
    size = 1.0, "Size of four temporary files together, in GiB."
    entry.run(__doc__, measure_fingerprint, gib=size)
