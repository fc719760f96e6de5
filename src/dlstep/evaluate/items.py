"""The requests of an evaluation, in the order in which their answers are written."""

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..core import SamplingParams
from ..core.options import StrategyOptions
from ..engine.loader import Engine
from ..text.chat import Message, chat_prompt
from ..text.prompts import encode
from .documents import Document, documents_of, with_examples
from .options import EvalOptions
from .prompts import conversation, text_prompt

Key = tuple[str, int, str]  # task, number of the document, options as JSON


@dataclass(frozen=True, slots=True)
class Item:
    """One request: a document of a task, asked with some options of the strategy.

    `prompt` is text, or a conversation. `index` counts the earlier items with this prompt and these parameters.
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

    def ids(self, engine: Engine) -> tuple[int, ...]:
        """Return the prompt as tokens. If the last turn is the assistant's, the answer continues it.

        Raises ValueError for a conversation if there is no chat template.
        """
        if isinstance(self.prompt, str):
            return encode(engine, self.prompt)
        last = self.prompt[-1]["role"] == "assistant"
        return chat_prompt(engine.tokenizer, engine.chat_template, self.prompt, continues=last)


def options_text(options: Mapping[str, Any]) -> str:
    """Return options as JSON; equal options give equal texts."""
    return json.dumps({name: value if _plain(value) else repr(value) for name, value in options.items()}, sort_keys=True)


def _plain(value: object) -> bool:
    return value is None or isinstance(value, str | int | float | bool | tuple | list)


def read_documents(options: EvalOptions) -> dict[str, list[Document]]:
    """Return the problems of each task. Raises ValueError if they cannot be read."""
    data = None if options.data is None else Path(options.data)
    own = None if options.questions is None else Path(options.questions)
    limit, seed = options.dataset_limit, options.problem_seed
    found = {task: documents_of(task, data, limit, seed=seed, questions=own) for task in options.tasks}
    return {task: with_examples(own, task, options.prompts, options.shots_of(task), data) for task, own in found.items()}


def items_of(options: EvalOptions, documents: Mapping[str, list[Document]]) -> list[Item]:
    """Return all requests: task by task, and for each task all documents with the first options, then with the next."""
    asked: Counter[tuple[object, ...]] = Counter()
    items: list[Item] = []
    for task, found in documents.items():
        prompts = [prompt_of(task, document, options) for document in found]
        for chosen in options.grid:
            params = options.params(task, chosen)
            for document, prompt in zip(found, prompts, strict=True):
                same = (prompt if isinstance(prompt, str) else tuple(turn["content"] for turn in prompt), params)
                items.append(Item(task, document, prompt, params, asked[same]))
                asked[same] += 1
    return items


def prompt_of(task: str, document: Document, options: EvalOptions) -> str | tuple[Message, ...]:
    """Return the prompt of a document in the form that the options select."""
    form = options.form(task)
    return conversation(form, document) if options.chat else text_prompt(form, document)
