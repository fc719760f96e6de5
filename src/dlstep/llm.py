"""`LLM`: text in, text out, on top of the loop. It keeps a state between calls, so that equal prefixes are found again."""

from collections.abc import Generator, Iterator, Sequence as Items
from contextlib import contextmanager
from dataclasses import dataclass
from os import fspath
from pathlib import Path
from typing import Any

from .chat import Conversation, as_conversations, chat_prompt
from .config import EngineConfig, engine_config
from .core import DlstepError, Request, SamplingParams, Sequence, State, abort, add, commit, prune, rebuild
from .engine import Engine, encode, load_engine
from .loop import Driver, run_next
from .output import Output, Prompt, output_of
from .session import Session
from .text import TextStream, Tokenizer, decode


@dataclass(frozen=True, slots=True)
class Draft:
    """An answer after one forward: the text that became certain, and behind it the tokens of the window.

    The text of an undecided position is None; that of a decided one may still move or vanish behind the end.
    """

    piece: str
    window: tuple[str | None, ...]


class LLM:
    """A model and its decoding strategy, ready to generate.

    `LLM()` is an embedded model, `LLM(folder, **options)` a checkpoint; options are the fields of `EngineConfig`. Raises
    ValueError for options that are unknown, out of range or contradict the model.
    """

    def __init__(self, model: str | Path | None = None, **options: Any) -> None:
        name = None if model is None else fspath(model)
        self._engine = load_engine(engine_config({"model": name, **options}))
        self._state = self._engine.first

    @classmethod
    def from_config(cls, config: EngineConfig) -> "LLM":
        """The LLM that a configuration describes."""
        return cls.of(load_engine(config))

    @classmethod
    def of(cls, engine: Engine) -> "LLM":
        """An LLM around an engine that was put together by hand, on any driver."""
        llm = cls.__new__(cls)
        llm._engine, llm._state = engine, engine.first
        return llm

    @property
    def engine(self) -> Engine:
        """What this LLM is made of."""
        return self._engine

    @property
    def state(self) -> State:
        """The state between calls: no requests, and the pages of earlier ones as far as they can be found again."""
        return self._state

    def __repr__(self) -> str:
        return f"LLM({self._engine.name!r}, {self._engine.first.strategy!r})"

    def generate(
        self,
        prompts: Prompt | Items[Prompt],
        sampling_params: SamplingParams | Items[SamplingParams] = SamplingParams(),
        *,
        progress: bool = True,
    ) -> list[Output]:
        """The answers to `prompts`, in their order, decoded together.

        A prompt is text or token ids; one prompt is a list of one. `sampling_params` are shared, or one for each prompt. The
        progress bar is drawn on stderr, and only if that is a terminal. A request that could never run gives an output with
        finish reason `rejected`. Ctrl-C aborts the requests; the LLM can be used again.
        """
        listed = as_list(prompts)
        shared = isinstance(sampling_params, SamplingParams)
        params = [sampling_params] * len(listed) if shared else list(sampling_params)
        if len(params) != len(listed):
            raise ValueError(f"{len(params)} sampling_params were given for {len(listed)} prompts: give one, or one each")
        from .progress import progress_bar

        with self._requests(listed, params) as (ids, live), progress_bar(ids, enabled=progress) as show:
            show(live.state)
            while not live.state.done:
                live.step()
                show(live.state)
            sequences = [live.state.finished[request_id] for request_id in ids]
        tokenizer = self._engine.tokenizer
        return [output_of(sequence, prompt, tokenizer) for sequence, prompt in zip(sequences, listed, strict=True)]

    def chat(
        self,
        messages: Conversation | Items[Conversation],
        sampling_params: SamplingParams | Items[SamplingParams] = SamplingParams(),
        *,
        progress: bool = True,
    ) -> list[Output]:
        """The next turns of the assistant in conversations, otherwise like `generate`.

        A conversation is a list of messages like `{"role": "user", "content": "Hello"}`; one conversation is a list of one.
        The prompt of an output is the token ids that the chat template makes of it. Raises ValueError without a template.
        """
        prompts = [self.chat_prompt(conversation) for conversation in as_conversations(messages)]
        return self.generate(prompts, sampling_params, progress=progress)

    def chat_prompt(self, messages: Conversation) -> tuple[int, ...]:
        """The token ids to which an answer is the next turn after `messages`: a prompt for `stream` and sessions, too."""
        return chat_prompt(self._engine.tokenizer, self._engine.chat_template, messages)

    def stream(self, prompt: Prompt, sampling_params: SamplingParams = SamplingParams()) -> Generator[str, None, Output]:
        """Pieces of the answer as they become final; joined they are the text of `generate`. Returns the output.

        Leaving the loop early aborts the request. Raises ValueError for a request that could never run, DlstepError when the
        model fails on it.
        """
        drafts = self.stream_drafts(prompt, sampling_params)
        while True:
            try:
                draft = next(drafts)
            except StopIteration as stop:
                return stop.value
            if draft.piece:
                yield draft.piece

    def stream_drafts(
        self, prompt: Prompt, sampling_params: SamplingParams = SamplingParams()
    ) -> Generator[Draft, None, Output]:
        """Like `stream`, with a draft after every forward: the piece that became final, and what the window holds now."""
        tokenizer = self._engine.tokenizer
        with self._requests([prompt], [sampling_params]) as ((request_id,), live):
            text = TextStream(tokenizer, sampling_params.stop)
            seen = len(live.sequence(request_id).request.prompt)
            while (sequence := live.sequence(request_id)).finish is None:
                live.step()
                sequence = live.sequence(request_id)
                if sequence.finish is None:
                    piece = ""
                    if sequence.settled > seen:
                        piece = text.push(sequence.tokens(seen, sequence.settled))
                        seen = sequence.settled
                    yield Draft(piece, tuple(window_texts(sequence, tokenizer)))
            if sequence.finish == "rejected":
                raise ValueError(sequence.error)
            if sequence.finish == "error":
                raise DlstepError(sequence.error)
            if rest := text.close(sequence.answer):
                yield Draft(rest, ())
        return output_of(sequence, prompt, tokenizer)

    def session(self) -> Session:
        """A decode to be stepped through by hand; it shares the driver with this LLM."""
        return Session(self._engine)

    @contextmanager
    def _requests(self, prompts: Items[Prompt], params: Items[SamplingParams]) -> Iterator[tuple[list[int], "_Live"]]:
        """Requests for `prompts` while the block runs; afterwards they are gone and the state is kept."""
        state = self._state
        ids: list[int] = []
        for prompt, wanted in zip(prompts, params, strict=True):
            ids.append(state.arrivals)
            state = add(state, Request(state.arrivals, encode(self._engine, prompt), wanted))
        live = _Live(state, self._engine.driver)
        whole = False
        try:
            yield ids, live
            whole = True
        finally:
            state = live.state
            for request_id in ids:
                state = abort(state, request_id)
            # Where a forward was broken off, nobody knows what the device holds.
            self._state = prune(state if whole or live.between_steps else rebuild(state))


class _Live:
    """The state of a decode that is under way; replaced only by the one after a whole step."""

    def __init__(self, state: State, driver: Driver) -> None:
        self.state, self._driver = state, driver
        self.between_steps = True

    def step(self) -> None:
        """One forward."""
        self.between_steps = False
        planned, samples = run_next(self.state, self._driver)
        self.state = commit(planned, samples)
        self.between_steps = True

    def sequence(self, request_id: int) -> Sequence:
        """The sequence of a request that was added."""
        found = self.state.find(request_id)
        assert found is not None
        return found


def as_list(prompts: Prompt | Items[Prompt]) -> list[Prompt]:
    """One prompt or many as a list: text is one prompt, and so are integers."""
    if isinstance(prompts, str):
        return [prompts]
    many = list(prompts)
    if many and all(isinstance(part, int) for part in many):
        return [tuple(part for part in many if isinstance(part, int))]
    for part in many:
        if isinstance(part, int):
            raise ValueError("prompts mixes token ids and whole prompts: give one list of ids, or a list of prompts")
    return [part for part in many if not isinstance(part, int)]


def window_texts(sequence: Sequence, tokenizer: Tokenizer | None) -> Iterator[str | None]:
    """Text of each answer position behind the settled ones that lies in the window; None where undecided."""
    start = max(sequence.settled, len(sequence.request.prompt))
    for block in sequence.window:
        for offset, token in enumerate(block.tokens):
            position = block.start + offset
            if start <= position < sequence.limit:
                yield None if position in block.undecided else decode(tokenizer, (token,))
