"""The loop of an evaluation: an engine answers the items, and each answer is written as it arrives."""

from collections.abc import Sequence
from contextlib import closing
from dataclasses import asdict, fields
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING

from ..batch.checkpoint import Show, answered, no_show
from ..batch.facts import code_of, facts_of
from ..core import Json, Request, SamplingParams, Update
from ..core.step_map import step_map_of
from ..engine.decode import Decode
from ..engine.json_lines import Line, digest_of
from ..engine.loader import LoadedEngine
from ..engine.step_limit import StepLimit
from ..extras import require
from ..text.detokenize import cut, decode
from ..text.prompts import ids_of, numbered, params_of
from .checkpoint import EvalCheckpoint, EvalRun, key_of, read
from .items import Item, evaluation_items, read_problems, scored
from .metrics import ROUND
from .options import EvalOptions, refused

if TYPE_CHECKING:
    from .harness import PublicTasks

# The options that select problems are not in the key, because the key has a digest of the problems.
NOT_IN_KEY = ("data", "questions", "out", "dataset_limit", "problem_seed")
PLAIN = SamplingParams()
PARAMS = [field.name for field in fields(PLAIN) if field.name != "strategy_options"]


AnsweredItem = tuple[Item, Line, Line]  # an item, what depends only on its request, and what does not


class Live:
    """A request that has not ended, with the time that its steps took."""

    def __init__(self, item: Item) -> None:
        self.item, self.begin = item, perf_counter()
        self.share = 0.0  # seconds of the steps, each divided by the number of its requests

    def answered(self, update: Update, engine: LoadedEngine) -> AnsweredItem:
        """Return the answer, from the update that ended it."""
        sequence, item, tokens = update.sequence, self.item, update.sequence.answer
        params = {name: value for name in PARAMS if (value := getattr(item.params, name)) != getattr(PLAIN, name)}
        key = {"task": item.task, "document": item.number, "options": dict(item.params.strategy_options)}
        row = key | {
            "prompt": item.prompt, "special": item.special, "params": params,
            "answer": cut(decode(engine.tokenizer, tokens), item.params.stop), "tokens": list(tokens), "steps": sequence.steps,
            "finish": sequence.finish, "error": sequence.error, "seed": sequence.request.seed,
        }  # fmt: skip
        beside = key | {
            "forwards": sequence.nfe,
            "seconds": round(perf_counter() - self.begin, ROUND),
            "share": round(self.share, ROUND),
            "probabilities": [round(probability, ROUND) for probability in sequence.probabilities],
        }
        if (step_map := step_map_of(sequence, engine.first.config.spec)) is not None:
            beside["step_map"] = step_map.to_json()
        return item, row, beside


class Answering:
    """An engine that accepts items at any time."""

    def __init__(self, engine: LoadedEngine) -> None:
        self._engine, self._decode = engine, Decode(engine.first, engine.driver)
        self._live: dict[int, Live] = {}
        self._elapsed = 0.0  # seconds of steps that advanced no request

    @property
    def live(self) -> int:
        """The number of live requests."""
        return len(self._live)

    def add(self, place: int, item: Item, request: Request) -> None:
        """Queue an item."""
        self._decode.add(Request(place, request.prompt, request.params, index=request.index))
        self._live[place] = Live(item)

    def step(self) -> list[AnsweredItem]:
        """Run one forward pass, and return the answers that it completed."""
        begin, ended = perf_counter() - self._elapsed, list[AnsweredItem]()
        updates = self._decode.step()
        self._elapsed = perf_counter() - begin
        for update in updates:
            live = self._live[update.id]
            live.share += self._elapsed / len(updates)
            if update.finish_info is not None:
                ended.append(self._live.pop(update.id).answered(update, self._engine))
        if updates:
            self._elapsed = 0.0
        return ended


def answer_all(
    engine: LoadedEngine,
    items: Sequence[Item],
    checkpoint: EvalCheckpoint,
    show: Show = no_show,
    limit: StepLimit | None = None,
) -> list[Line]:
    """Answer the items that have no stored answer, and return the lines of all of them, in order.

    If the process is killed, call this again: the file of answers becomes the same byte for byte.
    Equal requests in one call have different seeds. Raises ValueError for a prompt that cannot be encoded.
    """
    prompts = [ids_of(engine, item.prompt, item.params, special=item.special, ends=item.special) for item in items]
    every = zip(items, numbered(prompts, [params_of(engine, item.params) for item in items]), strict=True)
    requests = [(place, *each) for place, each in enumerate(every) if each[0].key not in checkpoint.rows]
    for answers in answered(Answering(engine), requests, engine.first.config.max_num_reqs, limit):
        for answer in answers:
            checkpoint.note(*answer)
        if answers:
            show(len(checkpoint.rows), "")
    return checkpoint.order(items)


def public_of(options: EvalOptions) -> "PublicTasks | None":
    """Return the tasks of lm_eval that the options name, if any. Raises ValueError if they cannot be evaluated."""
    if not options.public_tasks:
        return None
    require(f"task {options.public_tasks[0]}", "eval")
    from .harness import PublicTasks

    return PublicTasks(options)


def problems_of(options: EvalOptions, public: "PublicTasks | None") -> dict[str, Json]:
    """Return facts about the problems of each task, among them their number `count`."""
    found = {task: {"count": len(own), "digest": digest_of(repr(own).encode())} for task, own in read_problems(options).items()}
    return found | (public.problems if public else {})


def evaluate(
    engine: LoadedEngine,
    options: EvalOptions,
    public: "PublicTasks | None" = None,
    *,
    given_options: Json | None = None,
    show: Show = no_show,
    limit: StepLimit | None = None,
) -> EvalRun:
    """Answer everything that `options.out` does not hold yet, score all answers, and return the run.

    `public` are the tasks of lm_eval if they are already loaded. `given_options` are stored in the
    folder as they were given. If the process is killed, call this again: the
    answers equal those of an uninterrupted run byte for byte. A request that was rejected or failed
    has no scores. A forward pass that exceeds `limit` ends the process. Raises ValueError for a folder
    that holds another run, or that another process writes to.
    """
    problems, public = read_problems(options), public or public_of(options)
    first = engine.first
    for task in problems:
        for chosen in options.grid:
            if reason := refused(first.config, first.strategy, options.params(task, chosen)):
                raise ValueError(reason)
    items = evaluation_items(engine, options, problems)
    settings = {name: value for name, value in asdict(options).items() if name not in NOT_IN_KEY}
    settings["grid"] = [{name: repr(value) for name, value in chosen} for chosen in options.grid]
    facts = {"engine": facts_of(engine), "problems": problems_of(options, public), "versions": code_of(engine)}
    run = {"key": facts | {"eval": settings}, "told": dict(given_options or {})}
    with closing(EvalCheckpoint(Path(options.out), run)) as checkpoint:

        def answer(asked: Sequence[Item]) -> list[Line]:
            return answer_all(engine, asked, checkpoint, show, limit)

        lines = [scored(item, row) for item, row in zip(items, answer(items), strict=True)]
        if public is not None:
            lines += [line for chosen in options.grid for line in public.scored(engine, answer, chosen)]
        errors = {key: row["error"] for key, row in checkpoint.rows.items() if row["error"]}
        unscored = {key: {"note": error, "scores": {}, "score": 0.0} for key, error in errors.items()}
        checkpoint.score([{**line, **unscored.get(key_of(line), {})} for line in lines])
    return read(options.out)
