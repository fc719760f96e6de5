"""Connections between rank 0 and the others, on one host: messages there, a number of each rank back, then the verdict."""

import os
from multiprocessing.connection import Client, Connection, Listener
from multiprocessing.reduction import ForkingPickler
from pathlib import Path
from platform import node
from tempfile import TemporaryDirectory
from typing import Any

from ..core import DlstepError
from ..models.ranks import Ranks


class RanksDisagree(DlstepError):
    """Two ranks would have gone on from different histories."""


class Wire:
    """The connections of one rank: rank 0 has one to each other rank, they have one to rank 0.

    Raises RuntimeError once the rank at the other end is gone.
    """

    def __init__(self, ranks: Ranks, connections: list[Connection]) -> None:
        self.ranks, self._connections = ranks, connections

    def tell(self, message: object) -> None:
        """Send a message of rank 0 to all others."""
        packed = ForkingPickler.dumps(message)
        for number, connection in enumerate(self._connections, start=1):
            try:
                connection.send_bytes(packed)
            except OSError as error:
                raise _gone(number) from error

    def hear(self) -> Any:
        """The next message of rank 0."""
        return _received(self._connections[0], 0)

    def check(self, what: str, number: int) -> "Check":
        """The comparison of a number of all ranks; another rank than the first tells its own at once."""
        if self.ranks.rank:
            try:
                self._connections[0].send(number)
            except OSError as error:
                raise _gone(0) from error
        return Check(self, what, number)

    def numbers(self) -> list[int]:
        """The numbers that the other ranks tell."""
        return [_received(connection, number) for number, connection in enumerate(self._connections, start=1)]


class Check:
    """Raises RanksDisagree on every rank, with the numbers, unless they are equal; later calls do nothing."""

    def __init__(self, wire: Wire, what: str, number: int) -> None:
        self._wire, self._what, self._number, self._done = wire, what, number, False

    def __call__(self) -> None:
        if self._done:
            return
        self._done = True
        if self._wire.ranks.rank:
            verdict = self._wire.hear()
        else:
            verdict = self._verdict([self._number, *self._wire.numbers()])
            self._wire.tell(verdict)
        if verdict is not None:
            raise RanksDisagree(verdict)

    def _verdict(self, numbers: list[int]) -> str | None:
        if len(set(numbers)) == 1:
            return None
        said = ", ".join(f"rank {rank} has {each}" for rank, each in enumerate(numbers))
        return f"{self._what}: ranks disagree, {said}; their answers would differ from here on, so all of them stop"


def connect(ranks: Ranks) -> Wire:
    """Connect all ranks of a group, each of which calls this. Raises ValueError if they are not on one host."""
    hosts = sorted(set(ranks.told(node())))
    if len(hosts) > 1:
        raise ValueError(
            f"tensor_parallel_size={ranks.size}: ranks are on the hosts {', '.join(hosts)}: start all of them on one host"
        )
    if ranks.rank:
        address, key = ranks.told(None)[0]
        connection = Client(address, "AF_UNIX", authkey=key)
        connection.send(ranks.rank)
        return Wire(ranks, [connection])
    key, met = os.urandom(32), dict[int, Connection]()
    with (
        TemporaryDirectory(prefix="dlstep-wire-") as folder,
        Listener(str(Path(folder, "wire")), "AF_UNIX", backlog=ranks.size, authkey=key) as listener,
    ):
        ranks.told((listener.address, key))
        for _ in range(1, ranks.size):
            connection = listener.accept()
            met[connection.recv()] = connection
    return Wire(ranks, [met[number] for number in range(1, ranks.size)])


def _received(connection: Connection, number: int) -> Any:
    try:
        return connection.recv()
    except (EOFError, OSError) as error:
        raise _gone(number) from error


def _gone(number: int) -> RuntimeError:
    return RuntimeError(f"rank {number} is gone: its connection is closed")
