"""The engine inside an actor: requests that come at any time, and one that is sent twice."""

import asyncio
from pathlib import Path

import pytest

from dlstep.batch.answerer import Answerer
from dlstep.batch.engine import AnsweredRequest, BatchEngineInfo
from dlstep.batch.lines import content_key
from dlstep.engine.config import EngineConfig
from dlstep.serve.messages import EngineFailed

from .batches import lines_of, run, stories


def test_requests_that_come_twice_are_answered_once_and_all_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = lines_of(stories(12))

    async def all_answers() -> list[AnsweredRequest]:
        answerer = Answerer(EngineConfig(model="tiny-bd", max_num_reqs=4, num_threads=1), None, None, str(tmp_path))
        about = await answerer.about()
        assert isinstance(about, BatchEngineInfo)
        added: list[int] = []
        loaded = answerer._loading.result()
        assert not isinstance(loaded, EngineFailed)
        add = loaded.add
        monkeypatch.setattr(loaded, "add", lambda place, *rest: (added.append(place), add(place, *rest)))
        keys = [content_key(about.facts, line.content) for line in lines]

        def call(place: int) -> "asyncio.Task[AnsweredRequest | EngineFailed]":
            return asyncio.create_task(answerer.answer(place, keys[place], lines[place].content))

        first = call(3)
        calls = [call(place) for place in range(8)]
        await asyncio.sleep(0)
        first.cancel()  # nobody waits for this call any more
        calls += [call(place) for place in (3, 5, *range(8, 12))]
        answers = [each for each in await asyncio.gather(*calls) if isinstance(each, AnsweredRequest)]
        assert len(answers) == len(calls) and sorted(added) == list(range(12))
        later = await answerer.answer(0, keys[0], lines[0].content)
        assert isinstance(later, AnsweredRequest) and later.body == next(each.body for each in answers if each.place == 0)
        return answers

    found = {answered.place: answered.body for answered in asyncio.run(all_answers())}
    rows = run(lines, tmp_path / "out.jsonl")
    assert [found[place] for place in range(12)] == [row["response"]["body"] for row in rows]


def test_an_engine_that_cannot_be_made_says_why(tmp_path: Path) -> None:
    async def replies() -> tuple[object, object]:
        answerer = Answerer(EngineConfig(model="no-such"), None, None, str(tmp_path))
        return await answerer.about(), await answerer.answer(0, "0" * 32, {})

    about, answer = asyncio.run(replies())
    assert about == answer and isinstance(about, EngineFailed) and about.error.startswith("no checkpoint folder at 'no-such'")
