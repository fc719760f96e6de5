"""A small Hugging Face hub on the loopback address: what the functions of huggingface_hub ask of one."""

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from urllib.parse import unquote, urlsplit

import pytest
from huggingface_hub import constants

COMMIT = hashlib.sha1(b"main").hexdigest()
API = re.compile(r"/api/models/(?P<name>[^/]+/[^/]+)(?:/(?P<what>revision|tree)/(?P<revision>.+))?")
FILE = re.compile(r"/(?P<name>[^/]+/[^/]+)/resolve/(?P<revision>[^/]+)/(?P<file>.+)")


class Hub(ThreadingHTTPServer):
    """Serves folders as models; names in `gated` need the token `secret`.

    `sent` lists the files that were downloaded, `parts` those of which a part was, and `sent_bytes` counts all bodies.
    """

    def __init__(self, folders: Mapping[str, Path], gated: frozenset[str] = frozenset()) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.folders, self.gated, self.sent = folders, gated, []
        self.parts, self.sent_bytes = [], 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class _Handler(BaseHTTPRequestHandler):
    server: Hub
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: object) -> None:
        """Say nothing."""

    def do_HEAD(self) -> None:
        self._answer(body=False)

    def do_GET(self) -> None:
        self._answer(body=True)

    def _answer(self, *, body: bool) -> None:
        path = unquote(urlsplit(self.path).path)
        found = API.fullmatch(path) or FILE.fullmatch(path)
        if found is None or found["name"] not in self.server.folders:
            return self._send(404, b"{}", {"X-Error-Code": "RepoNotFound"}, body)
        if found["name"] in self.server.gated and self.headers["Authorization"] != "Bearer secret":
            return self._send(403, b"{}", {"X-Error-Code": "GatedRepo"}, body)
        if found["revision"] not in (None, "main", COMMIT):
            return self._send(404, b"{}", {"X-Error-Code": "RevisionNotFound"}, body)
        folder = self.server.folders[found["name"]]
        if found.re is FILE:
            return self._send_file(folder, found["file"], body)
        files = [file for file in sorted(folder.rglob("*")) if file.is_file()]
        names = [file.relative_to(folder).as_posix() for file in files]
        if found["what"] != "tree":
            siblings = [{"rfilename": name, "size": (folder / name).stat().st_size} for name in names]
            told: object = {"id": found["name"], "sha": COMMIT, "siblings": siblings}
        else:
            told = [
                {"type": "file", "path": name, "size": file.stat().st_size, "oid": hashlib.sha1(name.encode()).hexdigest()}
                for name, file in zip(names, files, strict=True)
            ]
        return self._send(200, json.dumps(told).encode(), {"Content-Type": "application/json"}, body)

    def _send_file(self, folder: Path, name: str, body: bool) -> None:
        """Answer with a file, or with the part of it that the request asks for. The name is the tag: a file never changes."""
        if not (folder / name).is_file():
            return self._send(404, b"{}", {"X-Error-Code": "EntryNotFound"}, body)
        headers = {"X-Repo-Commit": COMMIT, "ETag": f'"{hashlib.sha1(name.encode()).hexdigest()}"'}
        size = (folder / name).stat().st_size
        if (part := re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers["Range"] or "")) is not None and body:
            begin, end = int(part[1]), min(int(part[2]) + 1, size)
            with (folder / name).open("rb") as file:
                file.seek(begin)
                data = file.read(end - begin)
            self.server.parts.append(name)
            return self._send(206, data, {**headers, "Content-Range": f"bytes {begin}-{end - 1}/{size}"}, body)
        if not body:
            return self._send(200, b"", {**headers, "Content-Length": str(size)}, body)
        self.server.sent.append(name)
        return self._send(200, (folder / name).read_bytes(), headers, body)

    def _send(self, status: int, data: bytes, headers: Mapping[str, str], body: bool) -> None:
        self.send_response(status)
        for name, value in {"Content-Length": str(len(data)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        if body:
            self.server.sent_bytes += len(data)
            self.wfile.write(data)


@contextmanager
def hub_of(folders: Mapping[str, Path], gated: frozenset[str] = frozenset()) -> Iterator[Hub]:
    """Run a hub that serves `folders` by the names of models."""
    with Hub(folders, gated) as hub:
        thread = Thread(target=hub.serve_forever, daemon=True)
        thread.start()
        try:
            yield hub
        finally:
            hub.shutdown()
            thread.join()


def use_hub(patch: pytest.MonkeyPatch, hub: Hub, cache: Path) -> None:
    """Let models by name come from `hub`, and keep them in `cache`."""
    patch.setattr(constants, "HF_HUB_CACHE", str(cache))
    patch.setattr(constants, "ENDPOINT", hub.url)
    template = hub.url + "/{repo_id}/resolve/{revision}/{filename}"
    patch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template, raising=False)
