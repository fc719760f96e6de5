"""Default options for requests that set none, by the number of live requests."""

from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

from ..core import Config, Refused, Request, SamplingParams, Strategy, probe, refusal
from ..core.checks import listed, pairs_of, plain, short
from ..core.options import StrategyOptions, sorted_options

Rung = tuple[int | None, StrategyOptions]
MOST = "max_requests"
FORM = f"a list like [{{'{MOST}': 2, 'buffer_size': 4}}, {{'buffer_size': 1}}]"


@dataclass(frozen=True, slots=True)
class BufferPolicy:
    """Default options for requests that set none, chosen by load when a request is added.

    The chosen options are stored in the request, so later load has no effect and a trace needs no
    policy.
    """

    rungs: tuple[Rung, ...]
    """Pairs of a limit and options, in ascending order of limit. The first one whose limit is at least
    the number of live requests applies; a limit of None matches any number."""

    def applied(self, request: Request, live: int) -> Request:
        """Return the request with the options for the current load, as a plain Request, so that `add` checks the options.

        Args:
            request: The request, returned unchanged if it sets options.
            live: Number of live requests, all new requests included.
        """
        options = next((options for most, options in self.rungs if most is None or live <= most), ())
        if request.params.strategy_options or not options:
            return request
        params = replace(request.params, strategy_options=options)
        facts = {"index": request.index, "salt": request.salt, "automaton": request.automaton}
        return Request(request.id, request.prompt, params, **facts)

    def check(self, config: Config, strategy: Strategy) -> None:
        """Raise Refused for options that an engine would reject in a request.

        Args:
            config: Configuration of the engine.
            strategy: Strategy of the engine.
        """
        for number, (_, options) in enumerate(self.rungs):
            request = probe(config.spec, SamplingParams(max_tokens=1, strategy_options=options))
            if found := refusal(config, strategy, request):
                raise Refused(f"buffer_policy.{number}.{found.field}", found.code, found.message)


def policy_of(policy: object) -> BufferPolicy:
    """Build a policy from a list of mappings. A BufferPolicy is returned unchanged.

    Raises Refused for an invalid entry, and for one that no request reaches.
    """
    if type(policy) is BufferPolicy:
        return policy
    if not (entries := listed(policy)):
        raise Refused("buffer_policy", "invalid_type", f"must be {FORM}, got {short(policy)}")
    rungs = tuple([_rung(f"buffer_policy.{number}", entry) for number, entry in enumerate(entries)])
    for number, (one, other) in enumerate(pairwise([most for most, _ in rungs]), start=1):
        if one is None or (other is not None and other <= one):
            message = f"it follows an entry with {MOST}={one}, so it never applies: sort by {MOST}, an entry without it last"
            raise Refused(f"buffer_policy.{number}", "conflict", message)
    return BufferPolicy(rungs)


def _rung(owner: str, entry: object) -> Rung:
    pairs = pairs_of(entry)
    if pairs is None:
        raise Refused(owner, "invalid_type", f"must be a mapping, as in {FORM}, got {short(entry)}")
    options: dict[Any, Any] = dict(sorted_options(owner, pairs))
    most = plain(options.pop(MOST, None))
    if most is not None and (type(most) is not int or most < 1):
        raise Refused(f"{owner}.{MOST}", "out_of_range", f"must be a whole number above 0, got {short(most)}")
    return most, sorted_options(owner, options)
