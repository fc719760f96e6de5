"""Everything the engine knows, as one value."""

from dataclasses import dataclass

from rpds import HashTrieMap

from .cache import Cache
from .plan import START_LINE
from .sequence import Sequence
from .spec import Config
from .strategy import Strategy


@dataclass(frozen=True, slots=True)
class State:
    """All requests and who holds which page.

    `running` (they hold pages) and `waiting` are in order of arrival, every running one older than every waiting one.
    `finished` is looked up by id. `arrivals` counts the requests added, `line` names the device history the next plan
    relies on, `releases` are the ids that ended since the last plan.
    """

    config: Config
    strategy: Strategy
    cache: Cache
    waiting: tuple[Sequence, ...] = ()
    running: tuple[Sequence, ...] = ()
    finished: "HashTrieMap[int, Sequence]" = HashTrieMap()
    step: int = 0
    line: int = START_LINE
    arrivals: int = 0
    releases: tuple[int, ...] = ()

    @property
    def done(self) -> bool:
        """Whether no request waits or runs."""
        return not self.running and not self.waiting

    def find(self, request_id: int) -> Sequence | None:
        """The sequence of a request, live or finished; None when it was never added. Costs the number of live requests."""
        finished = self.finished.get(request_id)
        if finished is not None:
            return finished
        return next((s for s in (*self.running, *self.waiting) if s.request.id == request_id), None)
