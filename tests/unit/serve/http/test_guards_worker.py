"""A worker thread refuses what its queue has no room for, and only while it has none."""

import asyncio
import threading
from random import Random

import pytest
from prometheus_client import CollectorRegistry, Counter

from dlstep.serve.http.guards import FairWorker, WorkerThread

from ....helpers.refusals import refused


def refusals():
    """A counter of refused tasks."""
    return Counter("refused", "Refused tasks.", registry=CollectorRegistry())


@pytest.mark.parametrize("most", [1, 3])
def test_tasks_beyond_the_queue_are_refused_until_others_end(most):
    counter, release = refusals(), threading.Event()

    async def run():
        worker = WorkerThread("test", most, counter)
        for expected in (0, 1):  # places are free again after the tasks of the first round
            release.clear()
            waiting = [asyncio.create_task(worker.run(release.wait, 60.0)) for _ in range(most)]
            await asyncio.sleep(0)
            with refused("", "queue_full"):
                await worker.run(release.wait, 60.0)
            assert counter.collect()[0].samples[0].value == expected + 1
            release.set()
            assert all(await asyncio.gather(*waiting))
        assert await worker.run(divmod, 7, 2) == (3, 1)

    asyncio.run(run())


def test_owners_take_turns_and_tasks_end_with_their_callers():
    counter, done = refusals(), []

    async def run():
        worker = FairWorker("test", 4, counter, threading.Event.set)

        def task(owner, name):
            return asyncio.create_task(
                worker.run_for(owner, lambda event: (name == "endless" and event.wait(60), done.append(name)))
            )

        endless, leaves, stays, last = (task("a", name) for name in ("endless", "leaves", "stays", "last"))
        other = task("b", "other")
        await asyncio.sleep(0.01)
        with refused("", "queue_full"):
            await worker.run_for("a", print)
        assert counter.collect()[0].samples[0].value == 1
        leaves.cancel()
        endless.cancel()
        await asyncio.gather(other, stays, last)
        assert done == ["endless", "other", "stays", "last"] and leaves.cancelled() and endless.cancelled()
        await worker.run_for("a", lambda event: None)

    asyncio.run(run())


def test_callers_that_leave_at_any_moment_block_no_other():
    async def run(seed):
        random = Random(seed)
        worker = FairWorker("test", 99, refusals(), threading.Event.set)
        tasks = [
            asyncio.create_task(worker.run_for(random.choice("abc"), lambda event: event.wait(random.random() / 1000)))
            for _ in range(20)
        ]
        for task in random.sample(tasks, 15):
            for _ in range(random.randrange(4)):
                await asyncio.sleep(random.choice((0, 0.001)))
            task.cancel()
        await asyncio.wait_for(asyncio.gather(*tasks, return_exceptions=True), 10)
        assert await asyncio.wait_for(worker.run_for("d", lambda event: 3), 10) == 3

    for seed in range(20):
        asyncio.run(run(seed))
