"""dlstep as a model of lm_eval, for `dlstep-lm-eval run --model dlstep ...`, and lm_eval's tasks for `dlstep eval`.

lm_eval makes the prompts and scores the answers. lm_eval (up to 0.4.13) only runs models in its registry: importing this
module registers dlstep.
"""

import json
import logging
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import cached_property
from importlib.metadata import version
from pathlib import Path
from time import perf_counter
from typing import Any

import torch
from datasets import disable_progress_bars  # pyright: ignore[reportMissingImports]
from lm_eval import tasks  # pyright: ignore[reportMissingImports]
from lm_eval.api.model import TemplateLM  # pyright: ignore[reportMissingImports]
from lm_eval.api.registry import register_model  # pyright: ignore[reportMissingImports]
from lm_eval.defaults import DEFAULT_OTHER_SEED  # pyright: ignore[reportMissingImports]
from lm_eval.evaluator import evaluate  # pyright: ignore[reportMissingImports]
from lm_eval.utils import get_rolling_token_windows, make_disjoint_window  # pyright: ignore[reportMissingImports]
from tqdm import tqdm

from ..batch.facts import facts_of
from ..core import DlstepError, Json, SamplingParams, StrategyOptions, short
from ..engine.config import engine_config
from ..engine.json_lines import Line, digest_of
from ..engine.likelihood import PAIRS, Likelihoods, MonteCarlo
from ..engine.loader import LoadedEngine
from ..llm import LLM
from ..text.chat import check_conversation, render, with_template
from ..text.detokenize import Tokenizer
from ..text.output import LogLikelihood
from ..text.prompts import encode_text
from .items import LONGEST_FOUND, Item
from .options import OWN_TASKS, SAMPLING, EvalOptions
from .programs import PROGRAMS, as_code_eval

OWN = ("batch_size", "max_batch_size")  # of lm_eval, without effect: dlstep uses max_num_reqs
TOKENS = 256  # of an answer, if the task sets no limit
PASSED_ON = (*SAMPLING, "seed")
Answer = Callable[[Sequence[Item]], Sequence[Line]]  # decodes requests, and returns their lines of `answers.jsonl`
LOCAL = Path(__file__).with_name("tasks")  # definitions of tasks over local files
FOLDERS = ("gsm8k", "humaneval", "mbpp", "minerva_math")  # of lm_eval, with the tasks that these definitions name
# lm_eval names no headline. These readings do not depend on the form of an answer, so that they suit models that never
# write `####` or "The final answer is".
HEADLINES = ("flexible-extract", "math_verify")
ROLLING = (
    "a canvas model has no published estimator for the likelihood of a whole document: give "
    "decoding_strategy=multi_bd,block_size=1 if the model allows it, or choose a task with answers, such as arc_easy"
)


class DlstepLM(TemplateLM):
    """A model of lm_eval; `--model_args` are options of `LLM`.

    Likelihoods have four more options: `mc_num` samples in batches of `mc_batch`, drawn with
    `mc_seed`, and `check_greedy`, whether greedy decoding is compared with the answer. With a
    loaded `llm`, no options of `LLM` may be given. `answer` decodes requests instead of `LLM.generate`.
    """

    def __init__(
        self, *, llm: LLM | None = None, answer: Answer | None = None,
        mc_num: int = 128, mc_batch: int = 32, mc_seed: int = 0, check_greedy: bool = True, **options: Any,
    ) -> None:  # fmt: skip
        super().__init__()
        known = {name: value for name, value in options.items() if name not in OWN}
        if "pretrained" in known:  # lm_eval's name for the model
            known["model"] = known.pop("pretrained")
        if str(known.get("device")).startswith("cuda") and not torch.cuda.is_available():
            del known["device"]  # lm_eval passes cuda:0 if the user gave no device
        self._settings, self._check_greedy = MonteCarlo(mc_num, mc_batch, mc_seed), check_greedy
        if llm is not None and known:
            raise ValueError(f"{min(known)} cannot be set for an LLM that is already loaded: leave out {min(known)} or llm")
        self._llm = llm or LLM.from_config(engine_config(known))
        self.tokenizer = self._llm.engine.tokenizer
        self._answer = answer
        self._template: str | None = None  # that of chats, once one is asked for
        self._passes: list[int] = []  # forward passes of each answer
        self._seconds = 0.0
        self._errors: list[float] = []

    def generate_until(self, requests: Sequence[Any], disable_tqdm: bool = False) -> list[str]:
        """Return the answers to all requests, decoded in one batch."""
        items = [
            Item(
                each.task_name,
                each.doc_id,
                each.args[0],
                params_of(each.args[1]),
                special=self._template is None,
                problem=digest(each.doc),
            )
            for each in requests
        ]
        if self._answer is not None:
            return [row["answer"] for row in self._answer(items)]
        begin = perf_counter()
        prompts = [item.prompt if item.special else self.tok_encode(item.prompt) for item in items]
        outputs = self._llm.generate(prompts, [item.params for item in items], progress=not disable_tqdm)
        if failed := [output for output in outputs if output.finish_reason in ("rejected", "error")]:
            print(f"dlstep: {len(failed)} answers failed and are empty, the first is {failed[0].error}", file=sys.stderr)
        self._passes += [output.nfe for output in outputs]
        self._seconds += perf_counter() - begin
        return [output.text for output in outputs]

    def _loglikelihood_tokens(
        self, requests: Sequence[tuple[tuple[str, str], list[int], list[int]]], disable_tqdm: bool = False, **kwargs: Any
    ) -> list[tuple[float, bool]]:
        """Return log-likelihoods of continuations, and whether greedy decoding gives them."""
        pairs = [(context, answer) for _, context, answer in requests]
        return [(likelihood.value, bool(likelihood.greedy)) for likelihood in self._measured(pairs, disable_tqdm)]

    def loglikelihood_rolling(self, requests: Sequence[Any], disable_tqdm: bool = False) -> list[float]:
        """Return log-likelihoods of whole texts. Raises DlstepError unless they are exact."""
        if not self._likelihoods.exact:
            raise DlstepError(ROLLING)
        longest = self._llm.engine.first.config.max_model_len
        texts = [self.tok_encode(request.args[0]) for request in requests]
        of_texts = [list(get_rolling_token_windows(text, self.prefix_token_id, longest - 1, 1)) for text in texts]
        values = iter(self._measured([make_disjoint_window(pair) for windows in of_texts for pair in windows], disable_tqdm))
        return [sum(next(values).value for _ in windows) for windows in of_texts]

    @cached_property
    def _likelihoods(self) -> Likelihoods:
        return Likelihoods(self._llm.engine, self._settings, greedy=self._check_greedy)

    def _measured(self, lists: Sequence[tuple[list[int], list[int]]], disable_tqdm: bool) -> list[LogLikelihood]:
        pairs = [(tuple(context), tuple(answer)) for context, answer in lists]
        begin, measured = perf_counter(), list[LogLikelihood]()
        for first in tqdm(range(0, len(pairs), PAIRS), desc="likelihoods", disable=disable_tqdm):
            measured += self._likelihoods.of(pairs[first : first + PAIRS])
        self._errors += [each.standard_error for each in measured if each.standard_error is not None]
        self._seconds += perf_counter() - begin
        return measured

    def get_model_info(self) -> Json:
        """Return the settings of the run and its cost so far, for lm_eval's results."""
        info = facts_of(self._llm.engine) | {"seconds": round(self._seconds, 3)}
        if count := len(self._passes):
            info |= {"answers": count, "forward_passes_per_answer": sum(self._passes) / count}
        if "_likelihoods" in vars(self):  # the cached property was used
            errors, exact = self._errors, self._likelihoods.exact
            error = {"mean": sum(errors) / len(errors), "max": max(errors)} if errors else None
            info |= {"forward_passes": self._likelihoods.steps, "exact": exact, "standard_error": error}
            info |= {} if exact else {f"mc_{name}": number for name, number in asdict(self._settings).items()}
        return {"dlstep": info}

    @property
    def tokenizer_name(self) -> str:
        """The name of the tokenizer in lm_eval's cache of requests."""
        return self._llm.engine.name

    @property
    def eot_token_id(self) -> int:
        """The first id that ends an answer."""
        return self._llm.engine.first.config.spec.eos_ids[0]

    @property
    def prefix_token_id(self) -> int:
        """The id before a text without context: one that begins texts, or else ends them."""
        begin = getattr(self.tokenizer, "bos_token_id", None)
        return self.eot_token_id if begin is None else begin

    def tok_encode(self, string: str, add_special_tokens: bool | None = None, **kwargs: Any) -> list[int]:
        """Return the ids of a text, with special tokens unless a chat template wrote them."""
        assert self.tokenizer is not None, "a folder has a tokenizer"
        special = self._template is None if add_special_tokens is None else add_special_tokens
        return list(encode_text(self.tokenizer, string, add_special_tokens=special))

    def chat_template(self, chat_template: bool | str = False) -> str | None:
        """Return the template of the checkpoint or its family; None if the argument is False."""
        if chat_template is False:
            return None
        if chat_template is not True:
            raise ValueError(f"--apply_chat_template {chat_template}: a model has a single template: leave the name out")
        self._with_template()
        return self._template

    def apply_chat_template(self, chat_history: list[dict[str, str]], add_generation_prompt: bool = True) -> str:
        """Return a conversation as text, up to the assistant's next turn or within its last one."""
        check_conversation(chat_history)
        tokenizer, template = self._with_template()
        return render(tokenizer, template, chat_history, add_generation_prompt, not add_generation_prompt)

    def _with_template(self) -> tuple[Tokenizer, str]:
        """Return the tokenizer and the template of chats, which this model then uses for all texts."""
        tokenizer, self._template = with_template(self.tokenizer, self._llm.engine.chat_template)
        return tokenizer, self._template


def params_of(settings: Json) -> SamplingParams:
    """Return the sampling parameters of a request. Raises ValueError for an unknown one."""
    values = dict(settings)
    until, options = values.pop("until", ()), values.pop("dlstep", {})
    most = values.pop("max_gen_toks", values.pop("max_tokens", TOKENS))
    if values.pop("do_sample", True) is False:
        values["temperature"] = 0.0
    if unknown := sorted(set(values) - set(PASSED_ON)):
        raise ValueError(f"generation_kwargs: {unknown[0]}={short(values[unknown[0]])} is unknown to dlstep: leave it out")
    stop = (until,) if isinstance(until, str) else tuple(text for text in until if text)
    return SamplingParams(max_tokens=most, stop=stop, strategy_options=options, **values)


def digest(value: object) -> str:
    """Return a digest of problems."""
    return digest_of(json.dumps(value, sort_keys=True, default=str).encode())


register_model("dlstep")(DlstepLM)  # as a decorator, it would hide the class from type checkers


class PublicTasks:
    """The tasks of `options` that are lm_eval's, with their data sets.

    Raises ValueError for an unknown task and for missing or unsuitable data, and DlstepError if a task runs
    programs and there is no sandbox.
    """

    def __init__(self, options: EvalOptions) -> None:
        logging.getLogger("lm_eval").setLevel(logging.ERROR)
        disable_progress_bars()
        PROGRAMS.unsafe = options.confirm_run_unsafe_code
        self._options = options
        self._tasks: Json = {}
        if options.data is None:
            local, manager = "", tasks.TaskManager()
            unknown = f"is unknown: dlstep has {' and '.join(OWN_TASKS)}, and `dlstep-lm-eval ls tasks` lists lm_eval's"
        else:
            folders = [Path(tasks.__file__).with_name(name) for name in FOLDERS]
            manager = tasks.TaskManager(include_defaults=False, include_path=[*folders, LOCAL], metadata={"data": options.data})
            local = "local_"
            unknown = f"reads no files of --data: choose from {', '.join(local_tasks())}, or omit --data to use the hub"
        for name in options.public_tasks:
            if local + name not in manager.all_tasks:
                raise ValueError(f"task {name} {unknown}")
            try:  # code tasks run a program when they are loaded, so a missing sandbox shows here
                with as_code_eval():
                    self._tasks |= manager.load([local + name])["tasks"]
            except OSError as error:
                raise ValueError(
                    f"the data of task {name} cannot be loaded from the Hugging Face hub: {error}; "
                    f"--data FOLDER reads local files for {', '.join(local_tasks())}"
                ) from error
        for name, task in self._tasks.items():
            if task.OUTPUT_TYPE != "generate_until" or task.config.repeats > 1:
                raise ValueError(
                    f"task {name} does not score one generated answer for each problem: `dlstep-lm-eval run --model dlstep "
                    f"--tasks {name}` evaluates it"
                )
            shots = task.config.num_fewshot if options.shots is None else options.shots
            if (split := task.config.fewshot_split) and (shots or 0) > len(task.dataset[split]):
                raise ValueError(
                    f"task {name} draws {shots} worked examples from its training split, which has {len(task.dataset[split])}: "
                    "put GSM8K_train.json (question and answer) into --data, or choose --shots 0"
                )

    @property
    def problems(self) -> dict[str, Json]:
        """For each task the number and the digest of its problems, and the version of lm_eval."""
        first = {name: [*task.eval_docs][: self._options.dataset_limit] for name, task in self._tasks.items()}
        lm_eval = version("lm-eval")
        return {name: {"count": len(docs), "digest": digest(docs), "lm_eval": lm_eval} for name, docs in first.items()}

    def scored(self, engine: LoadedEngine, answer: Answer, chosen: StrategyOptions) -> list[Line]:
        """Return a line with the scores of each problem with one set of options; `answer` decodes requests."""
        for task in self._tasks.values():  # as lm_eval.simple_evaluate does, which also describes the system for seconds
            usual = task.get_config("num_fewshot")
            task.set_config("num_fewshot", (usual or 0) if self._options.shots is None or usual == 0 else self._options.shots)
            task.set_config("generation_kwargs", settings_of(self._options, chosen), update=True)
            task.set_fewshot_seed(seed=DEFAULT_OTHER_SEED)
        results: Any = evaluate(
            DlstepLM(llm=LLM.of(engine), answer=answer),
            {"tasks": self._tasks},
            limit=self._options.dataset_limit,
            apply_chat_template=self._options.chat,
            fewshot_as_multiturn=True,
            bootstrap_iters=0,
            confirm_run_unsafe_code=True,
        )
        lines: dict[tuple[str, int], Json] = {}
        for task, samples in results["samples"].items():
            for sample in samples:
                line = lines.setdefault((task, sample["doc_id"]), {
                    "task": task, "document": sample["doc_id"], "options": dict(chosen), "problem": digest(sample["doc"]),
                    "gold": str(sample["target"]), "found": "", "note": "", "scores": {}, "score": 0.0,
                })  # fmt: skip
                add_scores(line, sample)
        return [*lines.values()]


def local_tasks() -> list[str]:
    """Return the names of the tasks over local files."""
    return sorted(path.stem for path in LOCAL.glob("*.yaml"))


def settings_of(options: EvalOptions, chosen: StrategyOptions) -> Json:
    """Return the generation settings that replace those of lm_eval's tasks: options that differ from their defaults."""
    usual = EvalOptions()
    settings = {name: value for name in SAMPLING if (value := getattr(options, name)) != getattr(usual, name)}
    if options.max_tokens is not None:
        settings["max_gen_toks"] = options.max_tokens
    if options.stop:
        settings["until"] = list(options.stop)
    if "temperature" in settings:
        settings["do_sample"] = True
    return settings | {"dlstep": dict(chosen)}


def add_scores(line: Json, sample: Json) -> None:
    """Add the metrics of a sample, which lm_eval lists once for each of its filters; the accuracy comes first."""
    scores = line["scores"] | {
        f"{metric},{sample['filter']}": float(sample[metric])
        for metric in sample["metrics"]
        if isinstance(sample[metric], bool | int | float)
    }
    line["scores"] = dict(sorted(scores.items(), key=lambda score: not any(part in score[0] for part in HEADLINES)))
    line["score"] = next(iter(line["scores"].values()), 0.0)
    headline = any(name.endswith(f",{sample['filter']}") for name in [*line["scores"]][:1])
    if headline and sample["filtered_resps"]:
        line["found"] = str(sample["filtered_resps"][0])[:LONGEST_FOUND]
