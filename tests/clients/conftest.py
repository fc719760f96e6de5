"""A real server for all clients."""

import os
import re
import signal
import subprocess
from collections.abc import Iterator

import pytest

from .third_party import DLSTEP, KEY, MODEL, TEMPLATE, Server, answers, until


@pytest.fixture(scope="session")
def server(tmp_path_factory) -> Iterator[Server]:
    """`dlstep serve` on a free port with an API key, started as users do. It must exit with code 0 after all clients."""
    folder = tmp_path_factory.mktemp("server")
    log, template = folder / "log", folder / "template.jinja"
    template.write_text(TEMPLATE)
    arguments = [*DLSTEP, "serve", MODEL, "--chat_template", str(template), "--port", "0", "--log_requests", "false"]
    with log.open("w") as output:
        variables = os.environ | {"DLSTEP_API_KEY": KEY}
        process = subprocess.Popen(arguments, stdout=output, stderr=output, text=True, env=variables)
    try:
        until(lambda: "listening on" in log.read_text(), process, log)
        found = re.search(r"listening on (http://\S+);", log.read_text())
        assert found is not None, log.read_text()
        until(lambda: answers(f"{found[1]}/ready"), process, log)
        yield Server(found[1], log)
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0 and "Traceback" not in log.read_text(), log.read_text()
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()
