"""The routes for administrators, with SGLang's names: update weights, free memory, and pause requests."""

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field
from starlette.responses import Response

from ..router.router import Router
from ..shapes import AdminReply
from .errors import json_response
from .schema import Auto, Nothing, Strict, Yes


class BareRequest(Strict):
    """The body of a route without options, which may be empty."""

    tags: Nothing = None


class UpdateRequest(Strict):
    """The body of `/update_weights_from_disk`."""

    model_path: Annotated[str, Field(min_length=1, description="Folder of a checkpoint of the same network.")]
    abort_all_requests: Annotated[bool, Field(description="End running requests with their settled tokens.")] = False
    flush_cache: Yes = None
    load_format: Auto = None


class ReleaseRequest(BareRequest):
    """The body of `/release_memory_occupation`, which may be empty."""

    level: Annotated[Literal[1, 2], Field(description="1: move the weights to the host. 2: drop them.")] = 1


BARE, RELEASE = BareRequest(), ReleaseRequest()


class Admin:
    """The route handlers."""

    def __init__(self, router: Router) -> None:
        self._router = router
        self.routes = {
            "/pause_generation": self.pause,
            "/continue_generation": self.proceed,
            "/update_weights_from_disk": self.update,
            "/release_memory_occupation": self.release,
            "/resume_memory_occupation": self.resume,
        }

    async def pause(self, body: BareRequest = BARE) -> Response:
        """Make new requests wait, at most `--queue_timeout`, and return once no request is running."""
        del body
        await self._router.pause()
        return _reply("paused")

    async def proceed(self, body: BareRequest = BARE) -> Response:
        """Start the requests that have waited since `/pause_generation`."""
        del body
        self._router.proceed()
        return _reply("continued")

    async def update(self, body: UpdateRequest) -> Response:
        """Load the weights of a checkpoint's folder into all engines, once their running requests have finished.

        Other requests wait for the new weights. Engines that restart later also load them. Kept steps are dropped, even if
        the update fails. A folder that does not fit the network changes no weights. If only some engines fail, they get no
        requests until an update succeeds; the others continue with the new weights.
        """
        return _reply("updated", await self._router.change("update", Path(body.model_path), aborts=body.abort_all_requests))

    async def release(self, body: ReleaseRequest = RELEASE) -> Response:
        """Free the KV caches and the memory of the weights, once running requests have finished; refuse others with 503."""
        return _reply("released", await self._router.change("sleep", body.level))

    async def resume(self, body: BareRequest = BARE) -> Response:
        """Allocate what `/release_memory_occupation` freed. After level 2, also update the weights, before or after this."""
        del body
        return _reply("resumed", await self._router.change("wake_up"))


def _reply(message: str, results: list[Any] | None = None) -> Response:
    return json_response(AdminReply(success=True, message=message, results=results or []))
