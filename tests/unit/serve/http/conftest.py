"""A server without a network."""

import json
from collections.abc import Iterator
from typing import Any

import httpx2
import pytest

from dlstep.core import STATUS

from ....helpers.serving import COMPLETIONS, TEMPLATE, Served, served

GOOD = {"prompt": "x", "max_tokens": 4}
GOOD_CHAT = {"messages": [{"role": "user", "content": "x"}], "max_tokens": 4}


@pytest.fixture(scope="module")
def shadow() -> Iterator[Served]:
    """A server without a network behind it."""
    with served(template=TEMPLATE) as server:
        yield server


@pytest.fixture(scope="module")
def http(shadow) -> Iterator[httpx2.Client]:
    """A client of it."""
    with shadow.http() as client:
        yield client


def cases(values: dict[str, list[Any]]) -> list[tuple[str, Any]]:
    """Each field with each of its values."""
    return [(field, value) for field, each in values.items() for value in each]


def error_of(response: httpx2.Response) -> dict[str, Any]:
    """The error of a response, whose code has its status. The message begins with the field and shows nothing inside."""
    error = response.json()["error"]
    assert STATUS[error["code"]] == response.status_code and "Traceback" not in response.text, response.text
    assert error["message"].startswith(f"{error['param']}: " if error["param"] else "") and len(error["message"]) > 10, error
    return error


def refused(http: httpx2.Client, body: Any, path: str = COMPLETIONS) -> dict[str, Any]:
    """The error of a body that is wrong."""
    content = json.dumps(body).replace("Infinity", "1e400")
    response = http.post(path, content=content, headers={"Content-Type": "application/json"})
    assert response.status_code == 400, response.text
    return error_of(response)
