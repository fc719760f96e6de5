"""The requests of an evaluation, in the order in which their answers are written."""

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..core import SamplingParams
from ..core.options import StrategyOptions
from ..engine.loader import LoadedEngine
from ..text.chat import Message, chat_prompt
from ..text.prompts import encode
from .documents import Document, documents_of, with_examples
from .options import EvalOptions
from .prompts import conversation, text_prompt

Key = tuple[str, int, str]  # task, number of the document, options as JSON


@dataclass(frozen=True, slots=True)
class Item:
    """A request: a document of a task with some options of the strategy.

    `prompt` is text or a conversation; `index` counts earlier items with equal prompt and
    parameters.
    """

    task: str
    document: Document
    prompt: str | tuple[Message, ...]
    params: SamplingParams
    index: int

    @property
    def options(self) -> StrategyOptions:
        """The strategy options of the request."""
        return self.params.strategy_options

    @property
    def key(self) -> Key:
        """The key of the item, unique in a run."""
        return self.task, self.document.number, options_text(dict(self.options))

    def ids(self, engine: LoadedEngine) -> tuple[int, ...]:
        """Return the prompt as tokens; the answer continues a last turn of the assistant.

        Raises ValueError for a conversation if there is no chat template.
        """
        if isinstance(self.prompt, str):
            return encode(engine, self.prompt)
        last = self.prompt[-1]["role"] == "assistant"
        return chat_prompt(engine.tokenizer, engine.chat_template, self.prompt, continues=last)


def options_text(options: Mapping[str, Any]) -> str:
    """Return options as JSON; equal options give equal texts."""
    plain = str | int | float | tuple | list | None
    return json.dumps({name: v if isinstance(v, plain) else repr(v) for name, v in options.items()}, sort_keys=True)


def read_documents(options: EvalOptions) -> dict[str, list[Document]]:
    """Return the problems of each task. Raises ValueError if they cannot be read."""
    data, questions = (None if path is None else Path(path) for path in (options.data, options.questions))
    found: dict[str, list[Document]] = {}
    for task in options.tasks:
        plain = documents_of(task, data, options.dataset_limit, seed=options.problem_seed, questions=questions)
        found[task] = with_examples(plain, task, options.prompts, options.shots_of(task), data)
    return found


def items_of(options: EvalOptions, documents: Mapping[str, list[Document]]) -> list[Item]:
    """Return all requests: for each task all documents with the first options, then the next."""
    counts: Counter[tuple[object, ...]] = Counter()
    items: list[Item] = []
    for task, found in documents.items():
        prompts = [prompt_of(task, document, options) for document in found]
        for chosen in options.grid:
            params = options.params(task, chosen)
            for document, prompt in zip(found, prompts, strict=True):
                same = (prompt if isinstance(prompt, str) else tuple(turn["content"] for turn in prompt), params)
                items.append(Item(task, document, prompt, params, counts[same]))
                counts[same] += 1
    return items


def prompt_of(task: str, document: Document, options: EvalOptions) -> str | tuple[Message, ...]:
    """Return the prompt of a document in the form that the options select."""
    form = options.form(task)
    return conversation(form, document) if options.chat else text_prompt(form, document)
