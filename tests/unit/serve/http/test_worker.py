"""A worker thread refuses what its queue has no room for, and only while it has none."""

import asyncio
import threading

import pytest
from prometheus_client import CollectorRegistry, Counter

from dlstep.serve.http.errors import ApiError
from dlstep.serve.http.worker import WorkerThread


@pytest.mark.parametrize("most", [1, 3])
def test_tasks_beyond_the_queue_are_refused_until_others_end(most: int) -> None:
    refused = Counter("refused", "Refused tasks.", registry=CollectorRegistry())
    release = threading.Event()

    async def run() -> None:
        worker = WorkerThread("test", most, refused)
        for expected in (0, 1):  # places are free again after the tasks of the first round
            release.clear()
            waiting = [asyncio.create_task(worker.run(release.wait, 60.0)) for _ in range(most)]
            await asyncio.sleep(0)
            with pytest.raises(ApiError, match=f"{most} requests are waiting"):
                await worker.run(release.wait, 60.0)
            assert refused.collect()[0].samples[0].value == expected + 1
            release.set()
            assert all(await asyncio.gather(*waiting))
        assert await worker.run(divmod, 7, 2) == (3, 1)

    asyncio.run(run())
