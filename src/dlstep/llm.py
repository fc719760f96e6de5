"""`LLM`: text in, text out. It keeps its state between calls, so equal prefixes are cached."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path, PurePath
from typing import Any, TypeVar

from .core import SamplingParams, State, Strategy, Trace, Update
from .core.checks import listed as items_of, plain, short
from .core.options import StrategyOptions
from .engine.buffer_policy import BufferPolicy
from .engine.config import ENGINE_FIELDS, EngineConfig, engine_config
from .engine.loader import LoadedEngine, load_engine
from .engine.shared_decode import SharedDecode, Subscription
from .session import Session, resumed
from .stream import Draft, Drafts, Stream
from .text.chat import Conversation, as_conversations, chat_prompt
from .text.output import Output, Prompt, output_of
from .text.prompts import as_list, encode, encode_pins, numbered, params_of

Item = TypeVar("Item")


class LLM:
    """A model and its decoding strategy, ready to generate.

    `model` is a checkpoint folder, or a name of the Hugging Face hub such as `org/name`; None loads a
    small embedded model. `options` are options of the
    decoding strategy and its rule (see `dlstep strategies`); all other arguments are fields of
    `EngineConfig`, which documents them. Threads may share an LLM: their calls then share forward
    passes. Its memory is freed once the LLM, its sessions and its streams are unreferenced. Raises
    ValueError for options that are unknown, out of range or contradict the model.
    """

    def __init__(
        self,
        model: str | Path | None = None,
        *,
        model_name: str | None = None,
        mask_token_id: int | None = None,
        use_lora: bool | None = None,
        lora_path: str | None = None,
        pre_merge_lora: bool | None = None,
        decoding_strategy: str | type[Strategy] | Strategy | None = None,
        sampling_mode: str | None = None,
        strategy_options: Mapping[str, Any] | StrategyOptions = (),
        page_size: int | None = None,
        num_pages: int | None = None,
        kv_cache_gib: float | None = None,
        gpu_memory_utilization: float | None = None,
        buffer_policy: BufferPolicy | Sequence[Mapping[str, Any]] | None = None,
        session_pages: int | None = None,
        max_sessions: int = 8,
        max_model_len: int | None = None,
        max_num_batched_tokens: int = 4096,
        max_num_reqs: int = 128,
        enable_prefix_caching: bool = True,
        device: str | None = None,
        dtype: str | None = None,
        num_threads: int | None = None,
        enforce_eager: bool = False,
        tensor_parallel_size: int = 1,
        rank_timeout: float = 300.0,
        user_code_timeout: float = 10.0,
        capture_graphs: str = "start",
        compile_layers: bool | None = None,
        seed: int = 0,
        **options: Any,
    ) -> None:
        arguments = locals()
        engine = {name: arguments[name] for name in ENGINE_FIELDS}
        engine["model"] = str(model) if isinstance(model, PurePath) else model
        self._start(load_engine(engine_config(engine | options)))

    def _start(self, engine: LoadedEngine) -> None:
        self._engine = engine
        self._shared = SharedDecode(engine.decode(), engine.buffer_policy)

    @classmethod
    def from_config(cls, config: EngineConfig) -> "LLM":
        """Return the LLM for a configuration."""
        return cls.of(load_engine(config))

    @classmethod
    def of(cls, engine: LoadedEngine) -> "LLM":
        """Return an LLM for an engine that was assembled by hand, with any driver."""
        llm = cls.__new__(cls)
        llm._start(engine)
        return llm

    @property
    def engine(self) -> LoadedEngine:
        """The model, tokenizer and driver of this LLM."""
        return self._engine

    @property
    def state(self) -> State:
        """The current state: unfinished requests, and the cached pages of earlier ones."""
        return self._shared.state

    def __repr__(self) -> str:
        return f"LLM({self._engine.name!r}, {self._engine.first.strategy!r})"

    def generate(
        self,
        prompts: Prompt | Sequence[Prompt],
        sampling_params: SamplingParams | Sequence[SamplingParams] = SamplingParams(),
        *,
        progress: bool = True,
    ) -> list[Output]:
        """Return the outputs of `prompts`, in order, decoded together.

        Prompts are text or token ids. `sampling_params` is one value for all prompts or one per
        prompt. `progress` shows a bar on stderr if that is a terminal. A request that could never
        run gets finish reason `rejected`. Ctrl-C aborts the requests; the LLM stays usable.
        """
        listed = as_list(prompts)
        params = params_for(len(listed), sampling_params)
        if type(plain(progress)) is not bool:
            raise ValueError(f"progress must be True or False, got {short(progress)}")
        from .views.progress_bars import progress_bar

        tokenizer = self._engine.tokenizer
        requests = numbered([encode(self._engine, prompt) for prompt in listed], params)
        subscriptions: list[Subscription] = []
        try:
            for request in requests:
                subscriptions.append(self._shared.submit(request.prompt, request.params, index=request.index))
            with progress_bar(len(subscriptions), enabled=progress) as show:
                for subscription in subscriptions:
                    while not subscription.ended:
                        self._shared.advance(subscription, lambda subscription=subscription: subscription.ended)
                        show(self._shared.state)
        finally:
            for subscription in subscriptions:
                if not subscription.ended:
                    self._shared.abandon(subscription)
        return [
            output_of(subscription.sequence, prompt, tokenizer)
            for subscription, prompt in zip(subscriptions, listed, strict=True)
        ]

    def chat(
        self,
        messages: Conversation | Sequence[Conversation],
        sampling_params: SamplingParams | Sequence[SamplingParams] = SamplingParams(),
        *,
        progress: bool = True,
    ) -> list[Output]:
        """Return the assistant's next turn of each conversation; otherwise like `generate`.

        A conversation is a list of messages like `{"role": "user", "content": "Hello"}`. The prompt
        of an output is its token ids from the chat template. Raises ValueError without a template.
        """
        prompts = [self.chat_prompt(conversation) for conversation in as_conversations(messages)]
        return self.generate(prompts, sampling_params, progress=progress)

    def chat_prompt(self, messages: Conversation) -> tuple[int, ...]:
        """Return the prompt (token ids) whose answer is the assistant's turn after `messages`."""
        return chat_prompt(self._engine.tokenizer, self._engine.chat_template, messages)

    def pins(self, texts: Mapping[int, str | int]) -> dict[int, int]:
        """Return token ids for `SamplingParams(pinned=...)` from texts or ids by offset.

        Raises ValueError for a text without tokens, and for texts that overlap.
        """
        return encode_pins(self._engine, texts)

    def stream(self, prompt: Prompt, sampling_params: SamplingParams = SamplingParams()) -> Stream[str]:
        """Return an iterator of pieces of the answer; joined, they are the text of `generate`.

        The request starts waiting at once. Leaving the loop early aborts it. Iteration raises
        ValueError for a request that could never run, and DlstepError if the model fails on it.
        """
        return self._stream(prompt, sampling_params, Drafts.piece)

    def stream_drafts(self, prompt: Prompt, sampling_params: SamplingParams = SamplingParams()) -> Stream[Draft]:
        """Return an iterator of drafts, one per pass: new final text, and the current window."""
        return self._stream(prompt, sampling_params, Drafts.draft)

    def _stream(self, prompt: Prompt, params: SamplingParams, items: Callable[[Drafts, Update], list[Item]]) -> Stream[Item]:
        tokenizer = self._engine.tokenizer
        params = params_of(params)
        subscription = self._shared.submit(encode(self._engine, prompt), params, keeps=True)
        drafts = Drafts(tokenizer, self._engine.first.config.spec, params.stop)
        return Stream(self._shared, subscription, partial(items, drafts), prompt, tokenizer)

    def session(self) -> Session:
        """Return a decode to step through by hand; it shares the driver with this LLM."""
        return Session(self._engine)

    def resume(self, source: Trace | State) -> Session:
        """Return a session that continues a saved trace or state of any process, to equal tokens.

        The number of pages is that of the saved decode. Raises ValueError if the state was made for
        another model, weights, dtype or limits than this LLM's, and for any other type. Raises
        ReplayDiverged if replaying the trace gives another plan than the recorded one.
        """
        return resumed(self._engine, source)


def params_for(count: int, given: SamplingParams | Sequence[SamplingParams]) -> list[SamplingParams]:
    """Return parameters for each of `count` prompts, from a shared value or one per prompt."""
    many = items_of(given)
    if many is None:
        return [params_of(given)] * count
    listed = [params_of(params) for params in many]
    if len(listed) != count:
        raise ValueError(f"{len(listed)} sampling_params were given for {count} prompts: give one, or one each")
    return listed
