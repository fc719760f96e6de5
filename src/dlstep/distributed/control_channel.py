"""Connections between rank 0 and the other ranks of one host.

Rank 0 sends messages. For a check, each rank sends a value to rank 0, which sends the verdict.
"""

import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from multiprocessing.connection import Client, Connection, wait
from multiprocessing.reduction import ForkingPickler
from pathlib import Path
from platform import node
from tempfile import TemporaryDirectory
from time import monotonic
from typing import Any

from ..core import DlstepError
from ..processes import limit_waits
from . import RankLost
from .ranks import Ranks

AGAIN = "create the LLM again, or let the server restart it"
CHECK_SECONDS = 0.2  # seconds between checks that the group still exists


class RanksDisagree(DlstepError):
    """An error on all ranks: their KV caches differ."""


class ControlChannel:
    """The connections of one rank: rank 0 has one to each other rank, which have one to rank 0.

    Methods raise RuntimeError if the other rank is gone, and RankLost if rank 0 waits longer than
    `ranks.timeout`.
    """

    def __init__(self, ranks: Ranks, connections: list[Connection]) -> None:
        self.ranks, self._connections = ranks, connections

    def send(self, message: object) -> None:
        """Send a message from rank 0 to all other ranks."""
        packed = ForkingPickler.dumps(message)
        for number, connection in enumerate(self._connections, start=1):
            with self._naming(number):
                connection.send_bytes(packed)

    def receive(self) -> Any:
        """Return the next message from rank 0."""
        with self._naming(0):
            return self._connections[0].recv()

    def check(self, what: str, value: int | str) -> Callable[[], None]:
        """Return a function that raises RanksDisagree on all ranks unless all have the same value; call it once.

        Other ranks send their value to rank 0 now.
        """
        if self.ranks.rank:
            with self._naming(0):
                self._connections[0].send(value)
        return partial(self._compare, what, value)

    def _compare(self, what: str, value: int | str) -> None:
        if self.ranks.rank:
            verdict = self.receive()
        else:
            values, verdict = [value, *self._values()], None
            if len(set(values)) > 1:
                listed = ", ".join(f"rank {rank} has {each}" for rank, each in enumerate(values))
                verdict = f"{what}: ranks disagree, {listed}; their answers would differ from here on, so all of them stop"
            self.send(verdict)
        if verdict is not None:
            raise RanksDisagree(verdict)

    def _values(self) -> Iterator[int | str]:
        """Yield the values that the other ranks send, in rank order."""
        for number, connection in enumerate(self._connections, start=1):
            with self._naming(number):
                yield connection.recv()

    @contextmanager
    def _naming(self, number: int) -> Iterator[None]:
        """Raise an error that names the other rank if its connection fails inside the context."""
        try:
            yield
        except (EOFError, OSError) as error:
            if isinstance(error, BlockingIOError):  # the socket's timeout has passed
                raise silent(f"rank {number} of {self.ranks.size}", self.ranks.timeout) from error
            raise RuntimeError(f"rank {number} is gone: its connection is closed") from error


def silent(rank: str, seconds: float) -> RankLost:
    """Return the error for a rank, such as "rank 1 of 2", that was silent for `seconds`."""
    return RankLost(f"{rank} did not answer for {seconds:g} seconds (rank_timeout); {AGAIN}")


def connect(ranks: Ranks, check: Callable[[], None] = lambda: None) -> ControlChannel:
    """Connect all ranks of a group; every rank calls this. Rank 0 calls `check` while it waits.

    Raises ValueError for several hosts, RankLost after `ranks.timeout`, and what `check` raises.
    """
    hosts = sorted(set(ranks.gather_objects(node())))
    if len(hosts) > 1:
        raise ValueError(
            f"tensor_parallel_size={ranks.size}: ranks are on the hosts {', '.join(hosts)}: start all of them on one host"
        )
    if ranks.rank:
        return ControlChannel(ranks, [call(ranks.gather_objects("")[0], ranks.rank)])
    connections = dict[int, Connection]()
    # Only this user can enter the folder.
    with TemporaryDirectory(prefix="dlstep-ranks-") as folder, socket.socket(socket.AF_UNIX) as listener:
        address = str(Path(folder, "control"))
        listener.bind(address)
        listener.listen(ranks.size)
        ranks.gather_objects(address)
        end = monotonic() + ranks.timeout
        while len(connections) < ranks.size - 1:
            if wait([listener], CHECK_SECONDS):
                number, connection = _accept(listener, ranks.timeout)
                connections[number] = connection
            check()
            if monotonic() > end:
                missing = next(number for number in range(1, ranks.size) if number not in connections)
                raise silent(f"rank {missing} of {ranks.size}", ranks.timeout)
    return ControlChannel(ranks, [connections[number] for number in range(1, ranks.size)])


def call(address: str, rank: int) -> Connection:
    """Return a connection of a non-zero rank to rank 0."""
    connection: Connection = Client(address)
    connection.send(rank)
    return connection


def _accept(listener: socket.socket, seconds: float) -> tuple[int, Connection]:
    """Accept a connection with timeouts of `seconds`; return the rank and the connection."""
    accepted, _ = listener.accept()
    connection = Connection(accepted.detach())
    for option in (socket.SO_RCVTIMEO, socket.SO_SNDTIMEO):
        limit_waits(connection, option, seconds)
    try:
        return connection.recv(), connection
    except (EOFError, OSError) as error:
        raise RuntimeError("a rank is gone: it closed its connection before it gave its number") from error
