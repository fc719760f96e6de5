"""All replicas of a server: their life cycles, and the placement of requests."""

import asyncio
from collections.abc import Callable, Iterator, Sequence

from ..engine_process import Host
from ..messages import EngineLoad, Message
from ..settings import ServeOptions
from ..shapes import Phase
from .pending_requests import PendingRequest
from .placement import bound, choose
from .replica import Deadline, Replica


class ReplicaSet:
    """One engine on each of `hosts`.

    Callbacks:

    - `on_message` handles each message.
    - `on_end` is called when an engine has ended, with the deadline that it missed, or None.
    - `on_silence` is called when an engine becomes silent, or ready again.
    """

    def __init__(
        self,
        hosts: Sequence[Host],
        options: ServeOptions,
        *,
        on_message: Callable[[Replica, Message], None],
        on_end: Callable[[Replica, Deadline | None], None],
        on_silence: Callable[[], None],
    ) -> None:
        self._max_restarts = options.max_restarts
        self._on_end = on_end
        self._replicas = [Replica(number, host, options, on_message, on_end, on_silence) for number, host in enumerate(hosts)]
        self._tasks: set[asyncio.Task[None]] = set()

    def __len__(self) -> int:
        return len(self._replicas)

    def __iter__(self) -> Iterator[Replica]:
        return iter(self._replicas)

    def __getitem__(self, number: int) -> Replica:
        return self._replicas[number]

    @property
    def phase(self) -> Phase:
        """The phase of the replica set: ready while one replica is, failed once all have failed."""
        phases = {replica.phase for replica in self}
        for phase in ("ready", "silent"):
            if phase in phases:
                return phase
        if phases == {"failed"}:
            return "failed"
        return "loading" if all(replica.info is None for replica in self) else "restarting"

    @property
    def deaths(self) -> int:
        """The number of engine deaths."""
        return sum(replica.deaths for replica in self)

    @property
    def load(self) -> EngineLoad:
        """The total requests and pages of all engines."""
        return EngineLoad(*[sum(values) for values in zip(*[replica.load for replica in self], strict=True)])

    @property
    def sent(self) -> list[PendingRequest]:
        """The requests that were sent to engines and have not ended."""
        return [pending for replica in self for pending in replica.sent.values()]

    @property
    def not_made_reason(self) -> str | None:
        """Why an engine could not be created; None if all could."""
        return next((replica.link.failure for replica in self if replica.link.failure), None)

    @property
    def restart_reason(self) -> str:
        """Why no engine is ready."""
        deaths = (replica.last_death for replica in self if replica.phase == "restarting")
        reason = next((death.public_reason for death in deaths if death), "the engine died")
        return f"{reason}; it is restarting (deaths: {self.deaths}, --max_restarts {self._max_restarts})"

    def start(self) -> None:
        """Start all engines."""
        self._tasks = {asyncio.create_task(self._run_replica(replica)) for replica in self}

    def close(self) -> None:
        """Ask all engines to end."""
        for replica in self:
            replica.link.close()

    async def run(self) -> None:
        """Wait until all engines have ended."""
        while self._tasks:
            done, _ = await asyncio.wait(self._tasks, return_when=asyncio.FIRST_COMPLETED)
            self._tasks -= done
            for task in done:
                task.result()

    def replica_for(self, keys: tuple[bytes, ...]) -> Replica | None:
        """Return the replica for a request whose prompt pages have these keys, or None."""
        candidates = [replica.candidate(keys) for replica in self if replica.accepts_requests]
        if not candidates:
            return None
        return self[choose(candidates, bound(sum(candidate.requests for candidate in candidates), len(candidates)))]

    async def _run_replica(self, replica: Replica) -> None:
        """Run a replica until it is asked to end, dies too often or cannot be created."""
        try:
            await replica.link.run()
        finally:
            replica.phase = "failed"
            self._on_end(replica, None)
            if replica.link.failure and all(other.info is None for other in self):  # the others would fail, too
                for other in self:
                    other.link.close()
