"""Public tasks: those of lm_eval, whose answers go through the files of a run.

lm_eval makes the prompts and scores the answers. Decoding and files are the same as for dlstep's own tasks.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import fields
from importlib.metadata import version
from operator import attrgetter
from pathlib import Path
from typing import Any

from ..core.options import StrategyOptions
from ..engine.json_lines import Line
from ..engine.loader import LoadedEngine
from ..extras import require
from ..llm import LLM
from .items import Item
from .metrics import FAILURES
from .options import OWN_TASKS, SAMPLING, EvalOptions
from .programs import PROGRAMS, as_code_eval

LOCAL = Path(__file__).with_name("tasks")  # definitions of tasks over local files
FOLDERS = ("gsm8k", "humaneval", "mbpp", "minerva_math")  # of lm_eval, with the tasks that these definitions name
# lm_eval names no headline. These readings do not depend on the form of an answer, so that they suit models that never
# write `####` or "The final answer is".
HEADLINES = ("flexible-extract", "math_verify")
LONGEST_FOUND = 200  # characters
Answer = Callable[[Sequence[Item]], Sequence[Line]]  # decodes requests, and returns their lines of `answers.jsonl`


class PublicTasks:
    """The tasks of `options` that are lm_eval's, with their data sets.

    Raises ValueError for an unknown task and for missing or unsuitable data, and DlstepError if a task runs
    programs and there is no sandbox.
    """

    def __init__(self, options: EvalOptions) -> None:
        require(f"task {options.public_tasks[0]}", "eval")
        from datasets import disable_progress_bars  # pyright: ignore[reportMissingImports]

        logging.getLogger("lm_eval").setLevel(logging.ERROR)
        disable_progress_bars()
        self._options = options
        self._manager = manager_of(options)
        self._tasks = self._loaded()

    def _loaded(self) -> dict[str, Any]:
        """Return lm_eval's task of each name. Raises ValueError for a task that cannot be evaluated here."""
        PROGRAMS.unsafe = self._options.confirm_run_unsafe_code
        loaded: dict[str, Any] = {}
        for name in self._options.public_tasks:
            local = "" if self._options.data is None else "local_"
            if local + name not in self._manager.all_tasks:
                raise ValueError(unknown(name, self._options))
            try:  # code tasks run a program when they are loaded, so a missing sandbox shows here
                with as_code_eval(), closing(PROGRAMS):
                    loaded |= self._manager.load([local + name])["tasks"]
            except OSError as error:
                raise ValueError(
                    f"the data of task {name} cannot be loaded from the Hugging Face hub: {error}; "
                    f"--data FOLDER reads local files for {', '.join(local_tasks())}"
                ) from error
        for name, task in loaded.items():
            if task.OUTPUT_TYPE != "generate_until" or task.config.repeats > 1:
                raise ValueError(
                    f"task {name} does not score one generated answer for each problem: `dlstep-lm-eval run --model dlstep "
                    f"--tasks {name}` evaluates it"
                )
            shots = task.config.num_fewshot if self._options.shots is None else self._options.shots
            if (split := task.config.fewshot_split) and (shots or 0) > len(task.dataset[split]):
                raise ValueError(
                    f"task {name} draws {shots} worked examples from its training split, which has {len(task.dataset[split])}: "
                    "put GSM8K_train.json (question and answer) into --data, or choose --shots 0"
                )
        return loaded

    @property
    def problems(self) -> dict[str, dict[str, Any]]:
        """For each task the number and the digest of its problems, and the version of lm_eval."""
        from .harness import digest

        first = {name: [*task.eval_docs][: self._options.dataset_limit] for name, task in self._tasks.items()}
        lm_eval = version("lm-eval")
        return {name: {"count": len(docs), "digest": digest(docs), "lm_eval": lm_eval} for name, docs in first.items()}

    @property
    def count(self) -> int:
        """The number of problems of all tasks."""
        return sum(facts["count"] for facts in self.problems.values())

    def scored(self, engine: LoadedEngine, answer: Answer, grid: Sequence[StrategyOptions]) -> list[Line]:
        """Return a line with the scores of each problem with each set of options; `answer` decodes requests."""
        with closing(PROGRAMS):
            return [line for chosen in grid for line in self._scored(engine, answer, chosen)]

    def _scored(self, engine: LoadedEngine, answer: Answer, chosen: StrategyOptions) -> list[Line]:
        """Return the scores of all problems with one set of options."""
        from lm_eval.defaults import DEFAULT_OTHER_SEED  # pyright: ignore[reportMissingImports]
        from lm_eval.evaluator import evaluate  # pyright: ignore[reportMissingImports]

        from .harness import DlstepLM, digest

        answered: dict[tuple[str, int], Line] = {}

        def answer_requests(items: Sequence[Item]) -> Sequence[Line]:
            lines = answer(items)
            answered.update({(item.task, item.number): line for item, line in zip(items, lines, strict=True)})
            return lines

        for task in self._tasks.values():  # as lm_eval.simple_evaluate does, which also describes the system for seconds
            usual = task.get_config("num_fewshot")
            task.set_config("num_fewshot", (usual or 0) if self._options.shots is None or usual == 0 else self._options.shots)
            task.set_config("generation_kwargs", settings_of(self._options, chosen), update=True)
            task.set_fewshot_seed(seed=DEFAULT_OTHER_SEED)
        results: Any = evaluate(
            DlstepLM(llm=LLM.of(engine), answer=answer_requests),
            {"tasks": self._tasks},
            limit=self._options.dataset_limit,
            apply_chat_template=self._options.chat,
            fewshot_as_multiturn=True,
            bootstrap_iters=0,
            confirm_run_unsafe_code=True,
        )
        lines: dict[tuple[str, int], dict[str, Any]] = {}
        for task, samples in results["samples"].items():
            for sample in samples:
                line = lines.setdefault((task, sample["doc_id"]), {
                    "task": task, "document": sample["doc_id"], "options": dict(chosen), "problem": digest(sample["doc"]),
                    "gold": str(sample["target"]), "found": "", "note": "", "scores": {}, "score": 0.0,
                })  # fmt: skip
                add_scores(line, sample)
        for key, line in lines.items():
            if answered[key]["finish"] in FAILURES:
                line |= {"scores": {}, "score": 0.0, "note": answered[key]["error"]}
        return [*lines.values()]


def manager_of(options: EvalOptions) -> Any:
    """Return lm_eval's index of tasks: all of them, or with local data those that have local definitions."""
    from lm_eval import tasks  # pyright: ignore[reportMissingImports]

    if options.data is None:
        return tasks.TaskManager()
    folders = [Path(tasks.__file__).with_name(name) for name in FOLDERS]
    return tasks.TaskManager(include_defaults=False, include_path=[*folders, LOCAL], metadata={"data": options.data})


def local_tasks() -> list[str]:
    """Return the names of the tasks over local files."""
    return sorted(path.stem for path in LOCAL.glob("*.yaml"))


def unknown(name: str, options: EvalOptions) -> str:
    """Return the sentence about an unknown task."""
    if options.data is None:
        return f"task {name} is unknown: dlstep has {' and '.join(OWN_TASKS)}, and `dlstep-lm-eval ls tasks` lists lm_eval's"
    return f"task {name} reads no files of --data: choose from {', '.join(local_tasks())}, or omit --data to use the hub"


def settings_of(options: EvalOptions, chosen: StrategyOptions) -> dict[str, Any]:
    """Return the generation settings that replace those of lm_eval's tasks: options that differ from their defaults."""
    given = {field.name: attrgetter(field.name)(options) for field in fields(options) if field.name in SAMPLING}
    defaults = {field.name: field.default for field in fields(options)}
    settings: dict[str, Any] = {name: value for name, value in given.items() if value != defaults[name]}
    if options.max_tokens is not None:
        settings["max_gen_toks"] = options.max_tokens
    if options.stop:
        settings["until"] = list(options.stop)
    if "temperature" in settings:
        settings["do_sample"] = True
    return settings | {"dlstep": dict(chosen)}


def add_scores(line: dict[str, Any], sample: Mapping[str, Any]) -> None:
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
