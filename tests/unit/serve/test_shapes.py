"""The OpenAPI schema against what the server answers."""

from dlstep.serve.http.guards import OPEN

from ...helpers.serving import CHAT, COMPLETIONS, served

STREAMED = (COMPLETIONS, CHAT, "/v1/responses", "/v1/messages")


def test_the_schema_says_what_responses_are():
    """Shapes, statuses, the form of streams and metrics, and which paths ask for a key."""
    with served(keys=("sesame",)) as server, server.http() as http:
        schema = http.get("/openapi.json", headers={"Authorization": "Bearer sesame"}).json()
    for path, methods in schema["paths"].items():
        for operation in methods.values():
            assert ("security" in operation) == (path not in OPEN), path
            assert {"200", "408", "413"} <= operation["responses"].keys()
            for status, response in operation["responses"].items():
                forms = response.get("content", {})
                assert {} not in [form["schema"] for form in forms.values()], (path, status)
                if status == "200":
                    streams = ["text/event-stream"] if path in STREAMED or path.endswith("/fork") else []
                    assert [*forms] == (["text/plain"] if path == "/metrics" else ["application/json", *streams])
