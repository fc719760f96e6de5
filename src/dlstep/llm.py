"""`LLM`: text in, text out. It keeps its state between calls, so equal prefixes are cached."""

from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path, PurePath
from threading import Lock
from typing import TYPE_CHECKING, Any, Literal, TypeVar, cast, overload

from .core import Fields, Ids, Refused, Request, SamplingParams, State, Strategy, StrategyOptions, Trace, Update, WeightsDriver
from .core.checks import listed as evaluation_items
from .core.request import explains
from .engine.buffer_policy import BufferPolicy
from .engine.config import ENGINE_FIELDS, EngineConfig, engine_config
from .engine.decode import Decode, MemoryUse, SharedDecode, Subscription
from .engine.loader import LoadedEngine, changed, load_engine
from .session import Session, observed, trace_of
from .stream import Draft, Drafts, Stream
from .text.chat import Conversation, as_conversations, chat_prompt
from .text.output import LogLikelihood, Output, Prompt, Prompts, ReadOutput, output_of
from .text.prompts import as_list, encode, encode_pins, encode_suffix, ids_of, is_one, numbered, params_of
from .text.read_templates import TemplatePart, encode_template

if TYPE_CHECKING:
    from torch import Tensor

    from .engine.observation import Observation
    from .engine.reads import Reads

Item = TypeVar("Item")
Params = SamplingParams | Sequence[SamplingParams]  # of all prompts, or of each


class LLM:
    """A model and its decoding strategy, ready to generate.

    All arguments but `options` are fields of `EngineConfig`. Threads may share an LLM: their calls
    then share forward passes. Its memory is freed once the LLM, its sessions and its streams are
    unreferenced.

    Args:
        model: Checkpoint folder, name of a hub's model (org/name or org/name@revision) or of an
            embedded one; None: the embedded model made for the strategy.
        family: Family of the checkpoint: a name that `dlstep models` lists, a module path, a .py file or a
            `Family`; None: detected from the checkpoint's files.
        mask_token_id: Token id of the mask; None: from the checkpoint, its tokenizer or its model
            family.
        head_shift: 1: row p-1 of the network predicts position p; 0: row p does; None: from the
            checkpoint or its model family.
        training: How the network was trained: a value of `training` in docs/models.md; None: from the
            checkpoint or its model family.
        use_lora: Apply the adapter at `lora_path`; None: apply it if `lora_path` is given.
        lora_path: Folder of a LoRA adapter, trained on this checkpoint with peft.
        pre_merge_lora: Merge the adapter into the weights at load time, or keep it separate; None:
            merge.
        decoding_strategy: Strategy: a name, module path, .py file, class or instance; None: from
            the checkpoint.
        sampling_mode: `edit`: unmasked tokens may change until their block is sealed; `naive`: they
            never do.
        strategy_options: Options of the strategy and of its rule by name, as a mapping or pairs;
            `dlstep strategies` lists them.
        page_size: Positions of a KV cache page; None: 1/64 of max_model_len, at most 32.
        num_pages: Number of KV cache pages; -1: as many as fit in memory; None: -1 on cuda; on a CPU
            enough for max_num_reqs requests of max_model_len, limited to 65536 positions or one such
            request.
        kv_cache_gib: GiB for the KV cache, instead of num_pages; None on cuda: the remaining memory.
        gpu_memory_utilization: On cuda, instead of num_pages: share of the device's memory that may be
            in use, by this LLM and by other programs, once the KV cache is allocated; None: 0.9.
        buffer_policy: Options for requests that set none, by the number of live requests; a list of
            mappings.
        max_sessions: Maximum number of sessions with pages; others recompute their KV cache when
            they resume.
        max_model_len: Maximum number of tokens of a prompt and its answer together; None: the
            model's limit.
        max_num_batched_tokens: Maximum number of rows of one forward pass.
        max_num_reqs: Maximum number of requests that are decoded at the same time.
        enable_prefix_caching: Reuse KV cache pages of equal prefixes between requests.
        device: `cpu`, `cuda` or `cuda:N`; None: cuda if there is one.
        dtype: `float32`, `bfloat16` or `float16`; None: bfloat16 on cuda; on a CPU the dtype of the
            checkpoint if the processor has instructions for it and the network has 10 million
            parameters, else float32.
        quantization: `fp8`: store weights of layers and experts in FP8, and quantize their inputs; on a
            CPU for comparison only, as it is slower there. None: the weights have `dtype`.
        kv_cache_dtype: `fp8`: store keys and values in FP8, clamped to [-448, 448]; None: in `dtype`.
        num_threads: CPU threads of torch, for the whole process; None: OMP_NUM_THREADS if set, else
            one for a network of less than 10 million parameters and torch's own number for a larger
            one.
        enforce_eager: On cuda: launch each kernel separately, without CUDA graphs. No effect
            elsewhere.
        tensor_parallel_size: Processes that share the network, each on its own device; 1: a single
            process.
        rank_timeout: With tensor_parallel_size above 1: seconds without a heartbeat of another
            rank, or for one forward pass, after which the group ends with an error. Compilation and
            graph capture inside a forward pass count. None: 300.
        capture_graphs: On cuda: capture CUDA graphs at the `start`, or `lazy`, when a batch size
            occurs again.
        compile_layers: Fuse small operations by torch.compile, which slows the first steps; None:
            on cuda.
        seed: Seed of requests that do not set one.
        processors: Processors, which change the logits of every request before sampling, in order: names
            with options, like {"min_tokens": {"count": 8}}, or a list of names, .py files and values.
        **options: Options of the strategy and of its rule, as `dlstep strategies` lists them.

    Raises:
        ValueError: For options that are unknown, out of range or contradict the model.
    """

    def __init__(
        self,
        model: str | Path | None = None,
        *,
        family: object = None,
        mask_token_id: int | None = None,
        head_shift: Literal[0, 1] | None = None,
        training: str | None = None,
        use_lora: bool | None = None,
        lora_path: str | None = None,
        pre_merge_lora: bool | None = None,
        decoding_strategy: str | type[Strategy] | Strategy | None = None,
        sampling_mode: Literal["naive", "edit"] | None = None,
        strategy_options: Fields | StrategyOptions = (),
        page_size: int | None = None,
        num_pages: int | None = None,
        kv_cache_gib: float | None = None,
        gpu_memory_utilization: float | None = None,
        buffer_policy: BufferPolicy | Sequence[Fields] | None = None,
        max_sessions: int = 8,
        max_model_len: int | None = None,
        max_num_batched_tokens: int = 4096,
        max_num_reqs: int = 128,
        enable_prefix_caching: bool = True,
        device: str | None = None,
        dtype: Literal["float32", "bfloat16", "float16"] | None = None,
        quantization: Literal["fp8"] | None = None,
        kv_cache_dtype: Literal["fp8"] | None = None,
        num_threads: int | None = None,
        enforce_eager: bool = False,
        tensor_parallel_size: int = 1,
        rank_timeout: float | None = None,
        capture_graphs: Literal["start", "lazy"] = "start",
        compile_layers: bool | None = None,
        seed: int = 0,
        processors: object = (),
        **options: Any,
    ) -> None:
        engine = {name: value for name, value in locals().items() if name in ENGINE_FIELDS}
        engine["model"] = str(model) if isinstance(model, PurePath) else model
        self._start(load_engine(engine_config(engine | options)))

    def _start(self, engine: LoadedEngine) -> None:
        self._engine, policy = engine, engine.buffer_policy
        self._shared = SharedDecode(Decode(engine.first, engine.driver), engine.turn, policy and policy.applied)
        self._reads: Reads | None = None
        self._scoring = Lock()  # held by reads and likelihoods; a change of the weights waits for it

    @classmethod
    def from_config(cls, config: EngineConfig) -> "LLM":
        """Return the LLM for a configuration.

        Args:
            config: Options of the engine.
        """
        return cls.of(load_engine(config))

    @classmethod
    def of(cls, engine: LoadedEngine) -> "LLM":
        """Return an LLM for an engine that was assembled by hand, with any driver.

        Args:
            engine: The loaded engine.
        """
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

    @explains("LLM.generate")
    def generate(
        self,
        prompts: Prompts,
        sampling_params: Params | None = None,
        *,
        progress: bool = True,
        log: Callable[[dict[str, float]], object] | None = None,
    ) -> list[Output]:
        """Return the outputs of `prompts`, in order, decoded together; answers to the same prompt are consecutive.

        Ctrl-C ends all requests of this LLM, also those of other threads and of open streams; the
        LLM stays usable. A request that could never run gets finish reason `rejected`. A `max_tokens` that
        does not fit after the prompt is reduced, with a warning unless it equals the default of `SamplingParams` or
        of the model.

        Args:
            prompts: One prompt or several; each is text or token ids.
            sampling_params: One value for all prompts, or one per prompt; None: the model's defaults.
            progress: Show a bar on stderr if that is a terminal.
            log: Function to call after each forward pass with a row of `progress_row`.

        Raises:
            ValueError: For an argument of the wrong type, or another number of `sampling_params`
                than of prompts.
            DlstepError: If the model fails.
        """
        from .views.progress_bars import progress_bar

        given, requests = self._requests(prompts, sampling_params)
        subscriptions: list[Subscription] = []
        logged = -1
        try:
            for request in requests:
                subscriptions.append(self._shared.submit(request.prompt, request.params, index=request.index))
            with progress_bar(len(subscriptions), enabled=progress) as show:
                for subscription in subscriptions:
                    while self._shared.next_update(subscription) is not None:
                        show(state := self._shared.decode.state)
                        if log is not None and state.step != logged:
                            logged = state.step
                            log(progress_row(logged, subscriptions))
        finally:
            for subscription in subscriptions:
                subscription.closed = True
        return [self._output(*pair) for pair in zip(subscriptions, given, strict=True)]

    def _output(self, subscription: Subscription, prompt: Prompt) -> Output:
        spec = self._engine.first.config.spec
        return output_of(subscription.sequence, prompt, self._engine.tokenizer, spec, subscription.weights_version)

    def _requests(self, prompts: Prompts, given: Params | None) -> tuple[list[Prompt], list[Request]]:
        """Return the prompt and the request of each answer."""
        listed = as_list(prompts)
        params = params_for(len(listed), given, self._engine)
        answers = [(prompt, own) for prompt, several in zip(listed, params, strict=True) for own in several.each]
        requests = numbered([ids_of(self._engine, prompt, own) for prompt, own in answers], [own for _, own in answers])
        return [prompt for prompt, _ in answers], requests

    @explains("LLM.chat")
    def chat(
        self,
        messages: Conversation | Sequence[Conversation],
        sampling_params: Params | None = None,
        *,
        chat_template_kwargs: Fields | None = None,
        add_generation_prompt: bool = True,
        continue_final_message: bool = False,
        progress: bool = True,
        log: Callable[[dict[str, float]], object] | None = None,
    ) -> list[Output]:
        """Return the assistant's next turn of each conversation; otherwise like `generate`.

        The prompt of an output is its token ids from the chat template.

        Args:
            messages: One conversation or several; each is a list of messages like `{"role": "user",
                "content": "Hello"}`.
            sampling_params: One value for all conversations, or one per conversation; None: the model's
                defaults.
            chat_template_kwargs: Variables of the chat template, like `{"enable_thinking": False}`.
            add_generation_prompt: Begin a new message of the assistant.
            continue_final_message: Continue the last message instead; needs `add_generation_prompt=False`.
            progress: Show a bar on stderr if that is a terminal.
            log: As for `generate`.

        Raises:
            ValueError: As `chat_prompt` and `generate` do.
        """
        ends = {"add_generation_prompt": add_generation_prompt, "continue_final_message": continue_final_message}
        prompts = [self.chat_prompt(each, chat_template_kwargs, **ends) for each in as_conversations(messages)]
        return self.generate(prompts, sampling_params, progress=progress, log=log)

    def chat_prompt(
        self,
        messages: Conversation,
        chat_template_kwargs: Fields | None = None,
        *,
        add_generation_prompt: bool = True,
        continue_final_message: bool = False,
    ) -> Ids:
        """Return the prompt (token ids) whose answer is the assistant's next turn.

        Args:
            messages: One conversation, as for `chat`.
            chat_template_kwargs: Variables of the chat template, as for `chat`.
            add_generation_prompt: As for `chat`.
            continue_final_message: As for `chat`.

        Raises:
            ValueError: If the model has no chat template, or the template rejects the messages or does
                not read one of the variables.
        """
        return chat_prompt(
            self._engine.tokenizer,
            self._engine.chat_template,
            messages,
            variables=chat_template_kwargs,
            add_generation_prompt=add_generation_prompt,
            continue_final_message=continue_final_message,
        )

    def pins(self, texts: Mapping[int, str | int]) -> dict[int, int]:
        """Return token ids by offset, for `SamplingParams(pinned=...)`.

        Args:
            texts: Texts or token ids by offset in the answer. A text may take several tokens.

        Raises:
            ValueError: For a text without tokens, and for texts that overlap.
        """
        return encode_pins(self._engine, texts)

    def suffix(self, text: str) -> Ids:
        """Return the token ids of a suffix and an end-of-sequence token, for `SamplingParams(suffix=...)`.

        Args:
            text: The text that follows the answer.

        Raises:
            ValueError: If the model has no tokenizer, or it cannot encode the text.
        """
        return encode_suffix(self._engine, text)

    def read(self, prompts: Prompts, template: Sequence[TemplatePart]) -> list[ReadOutput]:
        """Return the probabilities of a template's labels after each prompt, in one forward pass per prompt.

        All slots are masked at once, so no slot depends on the label of another. Reads of equal
        prompts share pages with one another, but not with `generate`.

        Args:
            prompts: One prompt or several; each is text or token ids.
            template: Fixed texts and slots, in order, like `["The answer is", [" yes", " no"], "."]`.
                A slot is a list of labels, each of which must be a single token at that place.

        Raises:
            ValueError: For a template without slots, for labels that are not a single token, for a
                prompt that is too long, and for a model without a mask id.
        """
        from .engine.reads import Reads, read_all, read_request

        encoded, listed = encode_template(self._engine.tokenizer, template), as_list(prompts)
        prompted = enumerate([encode(self._engine, prompt) for prompt in listed])
        requests = [read_request(number, prompt, encoded, self.state.config.max_model_len) for number, prompt in prompted]
        with self._scoring:
            # Dropped if a read fails, because its requests would remain.
            reads, self._reads = self._reads or Reads(self._engine), None
            results = read_all(reads, requests)
            self._reads = reads
        outputs: list[ReadOutput] = []
        for prompt, result in zip(listed, results, strict=True):
            if result.error:
                raise ValueError(f"prompt {len(outputs)} cannot be read: {result.error}")
            slots = [dict(zip(*slot, strict=True)) for slot in zip(encoded.labels, result.slots, strict=True)]
            outputs.append(ReadOutput(prompt if isinstance(prompt, str) else tuple(prompt), tuple(slots)))
        return outputs

    def log_likelihood(
        self,
        prompts: Prompts = (),
        completions: Prompts = (),
        *,
        trajectory: Output | Sequence[Output] | None = None,
        mc_num: int = 128,
        mc_batch: int = 32,
        mc_seed: int = 0,
    ) -> list[LogLikelihood]:
        """Return how probable each completion is after its prompt, in nats.

        The value is exact for networks with causal attention and for `multi_bd` with blocks of one token. On a
        canvas, it is LLaDA's Monte-Carlo estimate. `Output.log_likelihood` scores an answer of any strategy.
        With `trajectory`, run the recorded passes of answers of any strategy again instead. Score each recorded
        token in the plain softmax of the pass that set it, under the current weights.

        Args:
            prompts: One prompt or several; each is text or token ids.
            completions: One for each prompt. Text is encoded without special tokens: give ids to score
                an end token.
            trajectory: Outputs with step maps, of this strategy and tokenizer, instead of prompts and completions.
            mc_num: Samples of an estimate, a multiple of `mc_batch`; exact values need none.
            mc_batch: Samples per batch, whose numbers of masks are evenly spread. The standard error compares batches.
            mc_seed: Seed of the masks.

        Raises:
            ValueError: For an argument of the wrong type, a completion without tokens, another number of completions
                than of prompts, or an output that failed, has no recorded steps or is of another strategy or mask id.
            DlstepError: For a strategy without a published estimator, a pair that is too long, or a trajectory that
                cannot be repeated.
        """
        from .engine.likelihood import Likelihoods, MonteCarlo
        from .engine.trajectories import recorded_in, trajectory_likelihoods

        if trajectory is not None:
            if prompts or completions:
                raise ValueError("trajectory already contains prompts and tokens: leave out prompts and completions")
            return trajectory_likelihoods(self._engine, recorded_in(trajectory, self._engine.first))
        asked, given = as_list(prompts), as_list(completions, "completions")
        if len(asked) != len(given):
            raise ValueError(f"{len(given)} completions were given for {len(asked)} prompts: give one each")
        answers = [encode(self._engine, completion, special=False, ends=False) for completion in given]
        if () in answers:
            raise ValueError(f"completion {answers.index(())} has no tokens: give at least one")
        pairs = list(zip([encode(self._engine, prompt) for prompt in asked], answers, strict=True))
        settings = MonteCarlo(mc_num, mc_batch, mc_seed)
        with self._scoring:
            return Likelihoods(self._engine, settings, greedy=False).of(pairs)

    @overload
    def stream(self, prompt: Prompt, sampling_params: SamplingParams | None = None) -> Stream[str]: ...

    @overload
    def stream(self, prompt: Sequence[Prompt], sampling_params: Params | None = None) -> Generator[tuple[int, Output]]: ...

    @explains("LLM.stream")
    def stream(
        self,
        prompt: Prompts,
        sampling_params: Params | None = None,
    ) -> Stream[str] | Generator[tuple[int, Output]]:
        """Return an iterator of pieces of the answer to a prompt, or of the outputs of a list of prompts as they finish.

        Joined, the pieces are the text of `generate`. Each output is yielded when its request has ended, with its index
        in the list that `generate` would return. The call queues all requests; leaving the loop early aborts unfinished
        ones. An iterator of pieces raises ValueError for a request that could never run, and DlstepError for one that
        fails; outputs have the finish reason `rejected` or `error` instead.

        Args:
            prompt: Text or token ids, or a list of such prompts.
            sampling_params: How to sample the answer, and where it ends; None: the model's defaults. A list of prompts
                takes one value for all, or one per prompt.
        """
        if is_one(prompt):
            return self._stream(cast(Prompt, prompt), cast(SamplingParams | None, sampling_params), Drafts.piece)
        given, requests = self._requests(prompt, sampling_params)
        submitted = [self._shared.submit(request.prompt, request.params, index=request.index) for request in requests]
        return self._outputs(dict(enumerate(zip(submitted, given, strict=True))))

    def _outputs(self, live: dict[int, tuple[Subscription, Prompt]]) -> Generator[tuple[int, Output]]:
        """Yield the number and the output of each request once it has ended; `live` is in the order of submission."""
        try:
            while live:
                # No request ends before the oldest has had an update, because none overtakes it.
                self._shared.next_update(next(iter(live.values()))[0])
                for number in [number for number, (subscription, _) in live.items() if subscription.ended]:
                    yield number, self._output(*live.pop(number))
        finally:
            for subscription, _ in live.values():
                subscription.closed = True

    @explains("LLM.stream_drafts")
    def stream_drafts(self, prompt: Prompt, sampling_params: SamplingParams | None = None) -> Stream[Draft]:
        """Return an iterator of drafts, one per pass: new final text, and the current window.

        Args:
            prompt: Text or token ids.
            sampling_params: How to sample the answer, and where it ends; None: the model's defaults.
        """
        return self._stream(prompt, sampling_params, Drafts.draft)

    def _stream(
        self, prompt: Prompt, params: SamplingParams | None, items: Callable[[Drafts, Update], list[Item]]
    ) -> Stream[Item]:
        tokenizer = self._engine.tokenizer
        params = params_of(self._engine, params)
        subscription = self._shared.submit(ids_of(self._engine, prompt, params), params, keeps=True)
        drafts = Drafts(tokenizer, self._engine.first.config.spec, params.stop)
        return Stream(self._shared, subscription, partial(items, drafts), prompt, tokenizer)

    def update_weights(self, source: "str | Path | Mapping[str, Tensor] | Iterable[tuple[str, Tensor]]") -> int:
        """Replace the weights in place, and return their version: the number of updates so far.

        Requests that have begun finish on the old weights first. Later requests wait for the new weights, and reuse no
        KV page from before the update, so their answers equal those of a new LLM with these weights. CUDA graphs and
        compiled layers stay valid, and `lora_path` and `quantization` apply as in the constructor. Sessions that began
        before the update can no longer step: create new ones. Never modify `engine.driver.network.model` yourself: KV
        pages computed with the old weights would stay in use.

        If an update fails or is interrupted while it writes, all requests are refused until an update succeeds.

        Args:
            source: Folder of a checkpoint of the same network, or all of its tensors under the names of the
                checkpoint's files: a `state_dict` or pairs. Tensors may be on any device, and another process may
                share them through `torch.multiprocessing` (shared memory or CUDA IPC).

        Raises:
            FileNotFoundError: For a folder without a checkpoint. Nothing changes.
            ValueError: For tensors that are missing, unused or misshaped; the message lists them. Nothing changes. Also for
                tied tensors that differ, found while writing.
        """
        from .models.updating import tensors_of

        tensors = Path(source) if isinstance(source, str | Path) else tensors_of(source)
        return self._change(lambda driver: driver.update(tensors))

    def sleep(self, level: Literal[1, 2] = 1) -> MemoryUse:
        """Free the KV cache and the memory of the weights until `wake_up`, and return the memory in use before and after.

        Requests that have begun finish first. Later ones are refused until `wake_up`. CUDA graphs are freed as well. If the
        LLM already sleeps at level 1, level 2 also drops the weights.

        Args:
            level: 1: move the weights to host memory; on a CPU, they stay where they are. 2: drop them. Requests then
                also need `update_weights`, before or after `wake_up`.

        Raises:
            ValueError: For another level.
        """
        if level not in (1, 2):
            raise Refused("level", "out_of_range", f"must be 1 or 2, got {level!r}")
        return MemoryUse(*self._change(lambda driver: driver.sleep(level)))

    def wake_up(self) -> MemoryUse:
        """Allocate what `sleep` freed, and capture again the CUDA graphs that were captured at the start.

        Return the memory in use before and after. If the LLM is not asleep, change nothing.
        """
        return MemoryUse(*self._change(lambda driver: driver.wake_up()))

    def _change(self, change: Callable[[WeightsDriver], Item]) -> Item:
        """Change the driver while no request is live, then begin with an empty state for the driver's new weights."""
        results = list[Item]()

        def call() -> State:
            self._engine, result = changed(self._engine, change)
            self._reads = None
            results.append(result)
            return self._engine.first

        with self._scoring:
            self._shared.change(call)
        return results[0]

    def session(self) -> Session:
        """Return a new session: a decode to step through by hand, which shares the driver with this LLM."""
        return Session(self._engine)

    def resume(self, source: Trace | State) -> Session:
        """Return a session that continues a saved trace or state of any process, to equal tokens.

        Args:
            source: The trace or state. Its number of pages is kept.

        Raises:
            ValueError: If it was made for another model, weights, dtype or limits than this LLM's.
            ReplayDiverged: If replaying the trace gives another plan than the recorded one.
        """
        return Session(self._engine, trace_of(self._engine, source))

    def observe(self, source: Trace | State, step: int | None = None, **chosen: Any) -> "Observation":
        """Run a forward pass of a decode once more, and return what the network computed; see `Session.observe`.

        Args:
            source: The state whose next step to observe, or a trace.
            step: Number of a recorded step of the trace; None: the next step.
            **chosen: What to observe, as for `Session.observe`.

        Raises:
            ValueError: As `Session.observe` and `resume` do.
        """
        return observed(self._engine, source, step, **chosen)


def progress_row(step: int, subscriptions: Sequence[Subscription]) -> dict[str, float]:
    """Return the counts of a call of `generate` after forward pass `step` of its LLM, for a logger."""
    sequences = [each.sequence for each in subscriptions if each.latest is not None]
    tokens, nfe = sum(len(each.answer) for each in sequences), sum(each.nfe for each in sequences)
    ended = sum(each.finish is not None for each in sequences)
    return {"step": step, "answers": ended, "tokens": tokens, "nfe": nfe, "tokens_per_forward": tokens / nfe if nfe else 0.0}


def params_for(count: int, given: Params | None, engine: LoadedEngine) -> list[SamplingParams]:
    """Return parameters for each of `count` prompts, from a shared value or one per prompt."""
    many = evaluation_items(given)
    if many is None:
        return [params_of(engine, given)] * count
    listed = [params_of(engine, params) for params in many]
    if len(listed) != count:
        raise ValueError(f"{len(listed)} sampling_params were given for {count} prompts: give one, or one each")
    return listed
