"""Requests of one API key reveal nothing about another key's, unless the keys share the prefix cache."""

import pytest

from ...helpers.serving import COMPLETIONS, PAGE_SIZE, ThreadHost, served, shadow_engine
from ...unit.serve.router.test_replica_faults import counts


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("replicas", [1, 2])
def test_prefix_cache_is_shared_among_keys_only_on_request(shared, replicas):
    hosts = [ThreadHost(shadow_engine()) for _ in range(replicas)]
    prompt = list(range(3, 3 + 5 * PAGE_SIZE))
    given = {"keys": ("first", "second"), "hosts": hosts}
    with served(**given, share_prefix_cache=shared) as server:
        keys = ("first", "first", "second", "second")
        usages = [server.post(COMPLETIONS, key=key, prompt=prompt, max_tokens=8)["usage"] for key in keys]
        told = [counts(server, f"dlstep_replica_{kind}_tokens_total").total() for kind in ("prompt", "cached")]
        assert counts(server, "dlstep_replica_up").total() == replicas
    cached = [usage["prompt_tokens_details"]["cached_tokens"] for usage in usages]
    assert list(map(bool, cached)) == [False, True, shared, True] and told == [4 * len(prompt), sum(cached)]
