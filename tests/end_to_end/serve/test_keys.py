"""Requests of one API key reveal nothing about another key's, unless the keys share the prefix cache."""

import pytest

from ...helpers.serving import COMPLETIONS, PAGE_SIZE, ThreadHost, served, shadow_engine


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("replicas", [1, 2])
def test_prefix_cache_is_shared_among_keys_only_on_request(shared, replicas):
    hosts = [ThreadHost(shadow_engine()) for _ in range(replicas)]
    prompt = list(range(3, 3 + 5 * PAGE_SIZE))
    given = {"keys": ("first", "second"), "hosts": hosts}
    with served(**given, share_prefix_cache=shared) as server:
        found = [
            server.post(COMPLETIONS, key=key, prompt=prompt, max_tokens=8) for key in ("first", "first", "second", "second")
        ]
    cached = [each["usage"]["prompt_tokens_details"]["cached_tokens"] > 0 for each in found]
    assert cached == [False, True, shared, True]
