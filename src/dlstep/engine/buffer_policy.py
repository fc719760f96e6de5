"""Buffer policies: choose request options by the number of live requests.

Positions of later blocks cost no extra time while the engine is idle, but they do under load.
"""

from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

from ..core import Config, SamplingParams, Strategy, probe
from ..core.checks import listed, pairs_of, plain, short
from ..core.options import StrategyOptions, sorted_options
from ..core.refusals import request_strategy

Rung = tuple[int | None, StrategyOptions]
MOST = "max_requests"
FORM = f"a list like [{{'{MOST}': 2, 'buffer_size': 4}}, {{'buffer_size': 1}}]"


@dataclass(frozen=True, slots=True)
class BufferPolicy:
    """Default options for requests that set none, chosen by load when a request is added.

    `rungs` are (limit, options) pairs in ascending order of limit. The first rung whose limit is at
    least the number of live requests applies; a limit of None matches any number. The chosen
    options are stored in the request, so later load has no effect and a trace needs no policy.
    """

    rungs: tuple[Rung, ...]

    def applied(self, params: SamplingParams, live: int) -> SamplingParams:
        """Return `params` with the options for `live` requests, all new requests included."""
        if params.options:
            return params
        options = next((options for most, options in self.rungs if most is None or live <= most), ())
        return replace(params, strategy_options=options) if options else params

    def check(self, config: Config, strategy: Strategy) -> None:
        """Raise ValueError for options that this engine would reject in a request."""
        for number, (_, options) in enumerate(self.rungs):
            request = probe(config.spec, SamplingParams(max_tokens=1, strategy_options=options))
            if reason := request_strategy(config, strategy, request)[1]:
                raise ValueError(f"buffer_policy[{number}]: {reason}")


def policy_of(policy: object, owner: str = "buffer_policy") -> BufferPolicy | None:
    """Build a policy from a list of mappings. A BufferPolicy or None is returned unchanged.

    Raises ValueError naming `owner` and the invalid entry.
    """
    if policy is None or type(policy) is BufferPolicy:
        return policy
    entries = listed(policy)
    if not entries:
        raise ValueError(f"{owner} must be {FORM}, got {short(policy)}")
    rungs = tuple([_rung(f"{owner}[{number}]", entry) for number, entry in enumerate(entries)])
    for number, (one, other) in enumerate(pairwise([most for most, _ in rungs]), start=1):
        if one is None or (other is not None and other <= one):
            before = f"an entry for any number, without {MOST}" if one is None else f"{MOST}={one}"
            raise ValueError(f"{owner}[{number}] comes after {before}: no request reaches it")
    return BufferPolicy(rungs)


def _rung(owner: str, entry: object) -> Rung:
    pairs = pairs_of(entry)
    if pairs is None:
        raise ValueError(f"{owner} must be a mapping, as in {FORM}, got {short(entry)}")
    options: dict[Any, Any] = dict(sorted_options(owner, pairs))
    most = plain(options.pop(MOST, None))
    if most is not None and (type(most) is not int or most < 1):
        raise ValueError(f"{owner}.{MOST} must be a whole number above 0, got {short(most)}")
    return most, sorted_options(owner, options)
