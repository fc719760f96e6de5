"""A server answers the README's request. `make wheel` tests the installed wheel, test_blocks.py the other blocks."""

import json
import re
import subprocess

from ..helpers.serving import served, tiny_llm
from .blocks import ROOT


def test_the_request_of_the_readme_is_answered():
    (curl,) = re.findall(r"^(curl .*?)```", (ROOT / "README.md").read_text(), re.DOTALL | re.MULTILINE)
    with served(tiny_llm().engine) as server:
        command = curl.replace("http://127.0.0.1:8000", server.url)
        answer = subprocess.run(command, shell=True, check=True, capture_output=True, text=True, timeout=120)
    (choice,) = json.loads(answer.stdout)["choices"]
    assert (choice["text"], choice["finish_reason"]) == ("53+39=92 shells. Max now has 92 shells.", "stop")
