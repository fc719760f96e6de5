"""A real server for all clients."""

import signal
from collections.abc import Iterator

import pytest

from ..unit.cli.test_serve import Command, command
from .third_party import KEY, MODEL, TEMPLATE


@pytest.fixture(scope="session")
def server(tmp_path_factory) -> Iterator[Command]:
    """`dlstep serve` on a free port with an API key, started as users do. It must exit with code 0 after all clients."""
    folder = tmp_path_factory.mktemp("server")
    template = folder / "template.jinja"
    template.write_text(TEMPLATE)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DLSTEP_API_KEY", KEY)
        with command(folder, f"{MODEL} --chat_template {template} --log_requests false") as server:
            yield server
            server.process.send_signal(signal.SIGTERM)
            assert server.process.wait(60) == 0 and "Traceback" not in server.log.read_text(), server.log.read_text()
