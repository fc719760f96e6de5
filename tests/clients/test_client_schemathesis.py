"""schemathesis finds nothing wrong: every response is as the schema says, and no body is a fault of the server."""

import re
import shlex

import httpx2
import pytest

from .third_party import HERE, KEY, client

EXAMPLES = 40  # of each operation, beside those that the schema alone gives

pytestmark = pytest.mark.clients


def answered(server):
    """Answers that the engine has given so far."""
    text = httpx2.get(f"{server.url}/metrics").text
    return sum(map(float, re.findall(r"^vllm:request_success_total\S* (\S+)$", text, re.MULTILINE)))


def test_the_whole_schema_holds(server, tmp_path, report):
    line = f"--config-file {HERE}/schemathesis.toml run {server.url}/openapi.json --header 'Authorization: Bearer {KEY}'"
    # It asks for many long answers at once, maybe on a busy machine.
    line += f" --max-examples {EXAMPLES} --seed 1 --continue-on-failure --no-color --request-timeout 300"
    before = answered(server)
    said = client("schemathesis", "st", *shlex.split(line), folder=tmp_path)
    found = re.search(r"(\d+) generated, (\d+) passed", said)
    operations = re.search(r"Selected: (\d+)/\1\n\s+Tested: \1\n", said)
    assert found is not None and operations is not None, said
    made = answered(server) - before
    assert made > 0, "no body came as far as the engine"
    report(
        f"schemathesis: {operations[1]} operations, {found[1]} requests, {found[2]} passed, 0 failures; {made:.0f} were decoded"
    )
