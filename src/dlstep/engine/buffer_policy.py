"""Buffer policies: options of requests by how busy the engine is, since rows of later blocks are free only while it is not."""

from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

from ..core import Config, SamplingParams, Strategy, probe
from ..core.checks import listed, pairs_of, plain, short
from ..core.lifecycle import judged
from ..core.options import StrategyOptions, sorted_options

Rung = tuple[int | None, StrategyOptions]
MOST = "max_requests"
FORM = f"a list like [{{'{MOST}': 2, 'buffer_size': 4}}, {{'buffer_size': 1}}]"


@dataclass(frozen=True, slots=True)
class BufferPolicy:
    """Options for requests that bring none of their own, by how many requests are live when they are added.

    `rungs` are pairs of a number and options, by ascending number; the first whose number is not exceeded counts, and None is
    any number. What was chosen becomes part of the request, and stays whatever the load is later: a trace is replayed without
    the policy.
    """

    rungs: tuple[Rung, ...]

    def applied(self, params: SamplingParams, live: int) -> SamplingParams:
        """`params` with the options for `live` requests, this one and those that come with it included."""
        if params.options:
            return params
        options = next((options for most, options in self.rungs if most is None or live <= most), ())
        return replace(params, strategy_options=options) if options else params

    def check(self, config: Config, strategy: Strategy) -> None:
        """Raise ValueError for options that requests of this engine cannot bring."""
        for number, (_, options) in enumerate(self.rungs):
            request = probe(config.spec, SamplingParams(max_tokens=1, strategy_options=options))
            if why := judged(config, strategy, request)[1]:
                raise ValueError(f"buffer_policy[{number}]: {why}")


def policy_of(given: object, owner: str = "buffer_policy") -> BufferPolicy | None:
    """The policy that a list of mappings describes; one that is made, or None, is taken as it is.

    Raises ValueError naming `owner` and the entry that is wrong.
    """
    if given is None or type(given) is BufferPolicy:
        return given
    entries = listed(given)
    if not entries:
        raise ValueError(f"{owner} must be {FORM}, got {short(given)}")
    rungs = tuple([_rung(f"{owner}[{number}]", entry) for number, entry in enumerate(entries)])
    for number, (one, other) in enumerate(pairwise([most for most, _ in rungs]), start=1):
        if one is None or (other is not None and other <= one):
            before = f"an entry for any number, without {MOST}" if one is None else f"{MOST}={one}"
            raise ValueError(f"{owner}[{number}] stands behind {before}: no request reaches it")
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
