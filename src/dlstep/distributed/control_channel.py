"""Connections between rank 0 and the other ranks of one host.

Rank 0 sends messages. For a check, each rank sends a value to rank 0, which sends the verdict.
"""

import socket
from collections.abc import Callable
from multiprocessing.connection import Connection, wait
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
            try:
                connection.send_bytes(packed)
            except OSError as error:
                raise self._fault(number, error) from error

    def receive(self) -> Any:
        """Return the next message from rank 0."""
        return self._received(self._connections[0], 0)

    def check(self, what: str, value: int | str) -> "Check":
        """Return a check that all ranks have the same value. Other ranks send theirs to rank 0."""
        if self.ranks.rank:
            try:
                self._connections[0].send(value)
            except OSError as error:
                raise self._fault(0, error) from error
        return Check(self, what, value)

    def values(self) -> list[int | str]:
        """Return the values that the other ranks send, in rank order."""
        return [self._received(connection, number) for number, connection in enumerate(self._connections, start=1)]

    def _received(self, connection: Connection, number: int) -> Any:
        try:
            return connection.recv()
        except (EOFError, OSError) as error:
            raise self._fault(number, error) from error

    def _fault(self, number: int, error: Exception) -> Exception:
        if isinstance(error, BlockingIOError):  # the socket's timeout has passed
            return silent(f"rank {number} of {self.ranks.size}", self.ranks.timeout)
        return RuntimeError(f"rank {number} is gone: its connection is closed")


class Check:
    """A comparison that raises RanksDisagree on all ranks unless values are equal; runs once."""

    def __init__(self, channel: ControlChannel, what: str, value: int | str) -> None:
        self._channel, self._what, self._value, self._done = channel, what, value, False

    def __call__(self) -> None:
        """Compare the values of all ranks, the first time only."""
        if self._done:
            return
        self._done = True
        if self._channel.ranks.rank:
            verdict = self._channel.receive()
        else:
            verdict = self._verdict([self._value, *self._channel.values()])
            self._channel.send(verdict)
        if verdict is not None:
            raise RanksDisagree(verdict)

    def _verdict(self, values: list[int | str]) -> str | None:
        if len(set(values)) == 1:
            return None
        listed = ", ".join(f"rank {rank} has {value}" for rank, value in enumerate(values))
        return f"{self._what}: ranks disagree, {listed}; their answers would differ from here on, so all of them stop"


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
    client = socket.socket(socket.AF_UNIX)
    client.connect(address)
    connection = Connection(client.detach())
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
