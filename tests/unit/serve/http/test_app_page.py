"""Files of a page, under a strict policy, and the choices that one request has, as the engine has them."""

import json
from dataclasses import fields

import pytest

from dlstep import rules, strategies
from dlstep.serve.http import app
from dlstep.serve.http.choosable import examples

from ....helpers.serving import COMPLETIONS, served, shadow_engine
from .conftest import GOOD

FILES = {"index.html": b"<!doctype html>", "app.js": b"export {}", "style.css": b""}
POLICY = {
    "default-src 'none'", "script-src 'self'", "style-src 'self'", "connect-src 'self'", "base-uri 'none'",
    "form-action 'none'", "frame-ancestors 'none'", "img-src 'self' data: blob:",
}  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A page of a few files, in place of the one that is shipped."""
    found = tmp_path_factory.mktemp("page")
    for name, content in FILES.items():
        (found / name).write_bytes(content)
    (found / "inner.js").mkdir()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(app, "FOLDER", found)
        yield found


@pytest.fixture(scope="module")
def shadow(folder):
    """A server that asks for a key."""
    with served(keys=("sesame",)) as server:
        yield server


def test_the_page_needs_no_key_and_lets_nothing_else_in(http):
    for path, name, kind in (
        ("/", "index.html", "text/html"), ("/page/app.js", "app.js", "text/javascript"),
        ("/page/style.css", "style.css", "text/css"),
    ):  # fmt: skip
        response = http.get(path)
        headers = response.headers
        assert (response.status_code, response.content) == (200, FILES[name]), path
        assert headers["content-type"].startswith(kind) and headers["cache-control"] == "no-cache"
        policy = headers["content-security-policy"]
        assert {*policy.split("; ")} >= POLICY and "unsafe" not in policy
        assert headers["x-content-type-options"] == "nosniff" and headers["referrer-policy"] == "no-referrer"


@pytest.mark.parametrize(
    "name",
    ["nothing.js", "inner.js", "%2e%2e%2fpage.py", "..%2f__init__.py", "%00.js", ".js"],
)
def test_nothing_but_the_files_of_the_page_is_there(http, name):
    response = http.get(f"/page/{name}")
    assert response.status_code in (401, 404), response.text  # a path that leaves the folder is another one, which needs a key
    assert "/tmp" not in response.text and "Traceback" not in response.text


def probe(option):
    """Values of an option that are in its range."""
    least = 0 if option["least"] is None else option["least"]
    most = 1 if option["most"] is None else option["most"]
    shift = 1 if option["kind"] == "integer" else (most - least) / 4
    match option["kind"]:
        case "boolean":
            return [not option["default"]]
        case "choice":
            return [choice for choice in option["choices"] if choice != option["default"]]
        case "integer" | "number":
            found = [least + shift, least + 2 * shift, least + 3 * shift]
            return [value for value in found if value != option["default"]]
        case _:
            return []


@pytest.mark.parametrize("strategy", [pytest.param("multi_bd", marks=pytest.mark.full), "dmax"])
def test_what_may_be_chosen_is_taken_and_what_may_not_is_refused(strategy):
    with served(shadow_engine(strategy=strategy)) as server, server.http() as http:
        told = http.get("/v1/options").json()
        assert json.dumps(told) == json.dumps(http.get("/v1/options").json())

        def taken(**options):
            response = http.post(COMPLETIONS, json=GOOD | {"dlstep": options})
            assert response.status_code in (200, 400), response.text
            return response.status_code == 200

        assert told["strategy"]["name"] == strategy and told["model"] == "shadow" and not told["chat"]
        own = {field.name for field in fields(strategies.load(strategy))}
        assert {option["name"] for option in told["strategy"]["options"]} == own - {"rule"}
        free = 0
        for option in told["strategy"]["options"]:
            assert option["doc"], f"{option['name']} is explained"
            tried = [taken(**{option["name"]: value}) for value in probe(option)]
            assert option["per_request"] or not any(tried), option
            free += option["per_request"] and any(tried)
        assert free >= 2
        assert bool(told["rules"]) == ("rule" in own)
        for rule in told["rules"]:
            assert taken(rule=rule["name"]) == rule["per_request"] == (not rule["why"]), rule
            assert rule["name"] in rules.own() and rule["doc"]
            held = {field.name for field in fields(rules.load(rule["name"]))}
            assert held - {"inner"} <= {option["name"] for option in rule["options"]}


def test_there_are_prompts_to_try():
    for embedded, chats in ((True, False), (False, True), (False, False)):
        found = examples(embedded=embedded, chats=chats)
        assert len(found) >= 3 and all(each["name"] for each in found)
        assert all(("messages" in each) == chats and ("prompt" in each) != chats for each in found)
