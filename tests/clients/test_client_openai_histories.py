"""The official client's own messages continue a conversation, whatever they were kept as, in three versions of the client."""

import json
from pathlib import Path

import pytest

from .third_party import MODEL, client

SCRIPT = Path(__file__).with_name("histories.py")

pytestmark = pytest.mark.clients


@pytest.mark.parametrize("version", ["1.60.0", "2.30.0", "3.57.0"])
def test_every_form_of_a_message_is_history(server, tmp_path, report, version):
    found = json.loads(client(f"openai_{version}", "python", str(SCRIPT), server.url, MODEL, folder=tmp_path).splitlines()[-1])
    assert found["version"] == version and len(found["answers"]) == 12
    for way, answers in found["answers"].items():
        assert len({*answers.values()}) == 1, (way, answers)
    report(f"openai {version}: {sum(map(len, found['answers'].values()))} histories continued")
