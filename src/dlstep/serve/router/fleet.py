"""All replicas of a server: their life cycles, rolling restarts, and the placement of requests."""

import asyncio
from collections.abc import Callable, Iterator, Sequence as Items
from typing import Literal

from ..engine_process import Host
from ..messages import Load, Message
from ..settings import ServeOptions
from .link import Deadline
from .placement import bound, choose
from .replica import Replica

Phase = Literal["loading", "ready", "silent", "restarting", "failed"]


class Fleet:
    """One engine on each of `hosts`.

    Callbacks:

    - `heard` handles each message.
    - `lost` is called when an engine has ended. If it was not asked to end, `died` is called first,
      with the deadline that the engine missed, or None for another reason.
    - `turned` is called when an engine becomes silent, or ready again.
    - `tell` wakes tasks that wait for a phase change.
    """

    def __init__(
        self,
        hosts: Items[Host],
        options: ServeOptions,
        *,
        heard: Callable[[Replica, Message], None],
        lost: Callable[[Replica], None],
        died: Callable[[Deadline | None], None],
        turned: Callable[[], None],
        tell: Callable[[], None],
    ) -> None:
        self._max_restarts, self._lost, self._told_of_death, self._tell = options.max_restarts, lost, died, tell
        self._replicas = [Replica(number, host, options, heard, turned, self._died) for number, host in enumerate(hosts)]
        self._lives: set[asyncio.Task[None]] = set()
        self._renewal: asyncio.Task[None] | None = None
        self._closed = False

    def __len__(self) -> int:
        return len(self._replicas)

    def __iter__(self) -> Iterator[Replica]:
        return iter(self._replicas)

    def __getitem__(self, number: int) -> Replica:
        return self._replicas[number]

    @property
    def phase(self) -> Phase:
        """The phase of the fleet: ready while one replica is, failed once all have failed."""
        phases = {replica.phase for replica in self}
        for phase in ("ready", "silent"):
            if phase in phases:
                return phase
        if phases == {"failed"}:
            return "failed"
        return "loading" if all(replica.card is None for replica in self) else "restarting"

    @property
    def deaths(self) -> int:
        """The number of engine deaths."""
        return sum(replica.deaths for replica in self)

    @property
    def load(self) -> Load:
        """The total requests and pages of all engines."""
        return Load(*[sum(values) for values in zip(*[replica.load for replica in self], strict=True)])

    @property
    def requests(self) -> int:
        """The number of requests sent to engines and not ended."""
        return sum(len(replica.sent) for replica in self)

    @property
    def why_unmade(self) -> str:
        """Why an engine could not be created; empty if all could."""
        return next((replica.link.failure for replica in self if replica.link.failure), "")

    @property
    def why_restarting(self) -> str:
        """Why no engine is ready."""
        if any(replica.phase == "resting" for replica in self):
            return "the engine is being restarted, as was requested"
        last = next((replica.last_death.told for replica in self if replica.phase == "restarting" and replica.last_death), "")
        return f"{last or 'the engine died'}; it is restarting (deaths: {self.deaths}, --max_restarts {self._max_restarts})"

    def start(self) -> None:
        """Start all engines."""
        self._lives = {asyncio.create_task(self._life(replica)) for replica in self}

    def close(self) -> None:
        """Ask all engines to end."""
        self._closed = True
        if self._renewal is not None:
            self._renewal.cancel()
        for replica in self:
            replica.link.close()

    async def run(self) -> None:
        """Wait until all engines have ended."""
        while self._lives:
            done, _ = await asyncio.wait(self._lives, return_when=asyncio.FIRST_COMPLETED)
            self._lives -= done
            for task in done:
                task.result()

    def taker(self, keys: tuple[bytes, ...]) -> Replica | None:
        """Return the replica for a request whose prompt pages have these keys, or None."""
        standings = [replica.standing(keys) for replica in self if replica.takes]
        if not standings:
            return None
        return self[choose(standings, bound(sum(standing.requests for standing in standings), len(standings)))]

    def renew(self) -> bool:
        """Begin a rolling restart. Return False if one is running or the fleet has ended."""
        if self._closed or self.phase == "failed" or (self._renewal is not None and not self._renewal.done()):
            return False
        self._renewal = asyncio.create_task(self._renew())
        return True

    async def _renew(self) -> None:
        """Restart the engines one by one, each once idle. Stop if an engine cannot be created."""
        for replica in self:
            await replica.until(lambda replica=replica: replica.phase in ("ready", "failed"))
            if replica.phase == "failed":
                replica.set_phase("restarting")
                self._lives.add(asyncio.create_task(self._life(replica)))
            else:
                replica.set_phase("resting")
                self._tell()
                await replica.until(lambda replica=replica: not replica.sent or replica.phase != "resting")
                if replica.phase == "resting":
                    self._lost(replica)
                    replica.link.renew()
            await replica.until(lambda replica=replica: replica.phase in ("ready", "failed"))
            if replica.phase == "failed":
                return

    async def _life(self, replica: Replica) -> None:
        """Run a replica until it is asked to end, dies too often or cannot be created."""
        try:
            await replica.link.run()
        finally:
            replica.set_phase("failed")
            self._lost(replica)
            if replica.link.failure and all(each.card is None for each in self):  # the others would fail, too
                for other in self:
                    other.link.close()
            self._tell()

    def _died(self, replica: Replica, deadline: Deadline | None) -> None:
        self._told_of_death(deadline)
        self._lost(replica)
