"""Errors of unknown paths and methods."""

from .conftest import COMPLETIONS


def test_unknown_paths_and_methods_are_told_in_the_same_form(http):
    for method, path, status in (("GET", "/nothing", 404), ("GET", COMPLETIONS, 405), ("POST", "/health", 405)):
        response = http.request(method, path)
        assert response.status_code == status and path in response.json()["error"]["message"]
