"""Who is let in: keys, origins and names of the host."""

import json

import pytest
from fastapi.testclient import TestClient

from dlstep.serve.http.app import create_app
from dlstep.serve.http.guards import hosts_of
from dlstep.serve.router.router import Router
from dlstep.serve.settings import ServeOptions

from ....helpers.refusals import refused
from ....helpers.serving import COMPLETIONS, served
from .conftest import GOOD


def test_keys_are_asked_for_and_never_shown(tmp_path, capfd):
    with served(keys=("sesame", "second"), log_requests=True) as server, server.http() as http:
        for headers in ({}, {"Authorization": "Bearer sesam"}, {"Authorization": "sesame"}, {"Authorization": "Basic sesame"}):
            response = http.post(COMPLETIONS, json=GOOD, headers=headers)
            assert response.status_code == 401 and response.headers["www-authenticate"] == "Bearer"
            assert "sesame" not in response.text
        assert http.get("/v1/models").status_code == 401
        assert server.choice(key="sesame", **GOOD)
        for path in ("/health", "/ready", "/version", "/metrics"):
            assert http.get(path).status_code == 200
    said = capfd.readouterr()
    (row,) = [json.loads(line) for line in said.out.splitlines() if line.startswith("{")]
    assert row["finish_reasons"] == ["length"] and row["owner"] == "key-0" and "prompts" not in row
    assert "sesame" not in said.out + said.err


def test_other_origins_are_let_in_only_if_named():
    page = {"Origin": "http://page.test", "Access-Control-Request-Method": "POST"}
    for origins, allowed in (((), None), (("http://page.test",), "http://page.test")):
        with served(keys=("k",), allowed_origins=origins) as server, server.http() as http:
            for method in ("OPTIONS", "POST"):
                answer = http.request(method, COMPLETIONS, headers=page)
                assert answer.headers.get("access-control-allow-origin") == allowed, method


HOSTS = ["evil.test", "127.0.0.1.evil.test", "localhost.evil.test", "evil.test:80", "xn--e1afmkfd", "0x7f.1", "127.1"]


def test_names_that_are_not_the_servers_are_refused():
    with served(keys=("k",)) as server, server.http() as http:
        for host in HOSTS:
            for path in ("/health", "/", "/v1/models", COMPLETIONS):
                found = http.request("POST" if path == COMPLETIONS else "GET", path, headers={"Host": host}, json=GOOD)
                error = found.json()["error"]
                assert (found.status_code, error["code"]) == (403, "host_not_allowed") and "--allowed_hosts" in error["message"]
        for host in ("localhost", "LocalHost:8000", "127.0.0.1", "[::1]:8000", "app.localhost", "localhost.", "10.0.0.7"):
            assert http.get("/health", headers={"Host": host}).status_code == 200, host
    with served(allowed_hosts=("chat.example.com", "*.example.org")) as server, server.http() as http:
        for host, status in (("chat.example.com", 200), ("a.example.org", 200), ("example.org", 403), ("localhost", 403)):
            assert http.get("/health", headers={"Host": host}).status_code == status, host


@pytest.mark.parametrize(
    "options, any_name",
    [({}, False), ({"host": "::1"}, False), ({"host": "localhost"}, False), ({"host": "127.0.0.7"}, False),
     ({"host": "0.0.0.0"}, True), ({"host": "::"}, True), ({"host": "10.0.0.1"}, True), ({"allowed_hosts": ("*",)}, True),
     ({"host": "0.0.0.0", "allowed_hosts": ("a",)}, False)],
)  # fmt: skip
def test_a_server_for_everybody_is_addressed_by_any_name(options, any_name):
    assert (hosts_of(ServeOptions(**options)) == ()) == any_name


@pytest.mark.parametrize(
    "option, given",
    [("allowed_hosts", ("ok", given)) for given in
     ("http://x/", "x/", "x:8000", "[x]", "x y", "", "x.", ".x", "*x", "x.*", "bücher.example", "[::1]")]
    + [("allowed_origins", (given,)) for given in ("x.test", "http://x.test/", "http://X.test", "http://", "")],
)  # fmt: skip
def test_names_that_no_client_sends_are_refused_at_the_start(option, given):
    with refused(option, "invalid_value"):
        ServeOptions(**{option: given})
    ServeOptions(allowed_hosts=("a-b.c", "*.C", "*", "10.0.0.7"), allowed_origins=("*", "null", "app://a", "https://a.b:8443"))


def test_keys_need_not_be_ascii():
    with served(keys=("schlüssel-ключ",)) as server:
        for key, status in (("schlüssel-ключ", 200), ("schlussel", 401), ("schlüssel-ключ2", 401)):
            server.post(COMPLETIONS, key=key, status=status, **GOOD)


def test_another_server_may_start_and_end_the_application():
    with TestClient(create_app(Router([], ServeOptions()), ("k",)), base_url="http://localhost") as client:
        assert client.get("/v1/models").status_code == 401


def test_json_needs_no_content_type_unless_a_browser_sends_it():
    content = json.dumps(GOOD).encode()
    with served() as server, server.http() as http:
        for headers, status in (
            ({}, 200),
            ({"Content-Type": "application/json; charset=utf-8"}, 200),
            ({"Content-Type": "application/vnd.api+json"}, 200),
            ({"Origin": "http://evil.test"}, 400),
            ({"Content-Type": "text/plain"}, 400),
            ({"Content-Type": "application/x-www-form-urlencoded"}, 400),
        ):
            answer = http.post(COMPLETIONS, content=content, headers=headers)
            assert answer.status_code == status, (headers, answer.text)
            if status == 400:
                assert "Content-Type: application/json" in answer.json()["error"]["message"]
