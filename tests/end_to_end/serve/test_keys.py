"""Requests of one API key reveal nothing about another key's, unless the keys share the prefix cache."""

import pytest

from ...helpers.serving import PAGE_SIZE, ThreadHost, served, shadow_engine


def cached_tokens(http, key, prompt):
    """The number of prompt tokens of a request that were found in pages."""
    body = {"prompt": prompt, "max_tokens": 8}
    answer = http.post("/v1/completions", json=body, headers={"Authorization": f"Bearer {key}"})
    assert answer.status_code == 200, answer.text
    return answer.json()["usage"]["prompt_tokens_details"]["cached_tokens"]


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("replicas", [1, 2])
def test_prefix_cache_is_shared_among_keys_only_on_request(shared, replicas):
    hosts = [ThreadHost(shadow_engine()) for _ in range(replicas)]
    prompt = list(range(3, 3 + 5 * PAGE_SIZE))
    given = {"keys": ("first", "second"), "hosts": hosts}
    with served(shadow_engine(), **given, share_prefix_cache=shared) as server, server.http() as http:
        found = [cached_tokens(http, key, prompt) > 0 for key in ("first", "first", "second", "second")]
    assert found == [False, True, shared, True]
