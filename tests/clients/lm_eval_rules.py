"""Run in lm_eval's environment: what its own tasks render and how they score, for jobs in a JSON file; prints JSON.

Tasks are those of the installed lm_eval with local files for their data. Its tasks of code load a metric from a hub when they
are imported; here nothing calls that metric, and an empty one stands in.
"""

import json
import sys
from pathlib import Path
from typing import Any

import evaluate  # pyright: ignore[reportMissingImports]


class Nothing:
    """The metric that is not called."""

    def compute(self, **given: Any) -> tuple[dict[str, float], dict[str, Any]]:
        """A score of one try."""
        del given
        return {"pass@1": 0.0}, {}


evaluate.load = lambda name: Nothing()

import lm_eval.tasks as installed  # noqa: E402  # pyright: ignore[reportMissingImports]
from lm_eval.api.metrics import exact_match_hf_evaluate  # noqa: E402  # pyright: ignore[reportMissingImports]
from lm_eval.tasks import TaskManager  # noqa: E402  # pyright: ignore[reportMissingImports]

ROOT = Path(installed.__file__).parent
FILES = {
    "gsm8k": "gsm8k/gsm8k.yaml",
    "minerva_math500": "minerva_math/minerva_math500.yaml",
    "humaneval": "humaneval/humaneval.yaml",
    "humaneval_instruct": "humaneval/humaneval_instruct.yaml",
    "mbpp": "mbpp/mbpp.yaml",
    "mbpp_instruct": "mbpp/mbpp_instruct.yaml",
}


def task_of(name: str, folder: Path, documents: list[dict[str, Any]], training: list[dict[str, Any]]) -> Any:
    """A task of lm_eval whose data are these documents."""
    data = {"test": documents} | ({"train": training} if training else {"train": documents[:1]})
    files = {split: str(folder / f"{name}-{split}.json") for split in data}
    for split, rows in data.items():
        Path(files[split]).write_text(json.dumps(rows))
    given = {"dataset_path": "json", "dataset_name": None, "dataset_kwargs": {"data_files": files}}
    text = f"include: {ROOT / FILES[name]}\ntask: local_{name}\n" + "".join(
        f"{key}: {json.dumps(v)}\n" for key, v in given.items()
    )
    (folder / f"local_{name}.yaml").write_text(text)
    manager = TaskManager(include_path=str(folder), include_defaults=False)
    return manager.load([f"local_{name}"])["tasks"][f"local_{name}"]


def rendered(task: Any, shots: int, chat: bool) -> list[dict[str, Any]]:
    """The prompts of all documents: texts, or what lm_eval gives to a chat template."""
    task.set_config(key="num_fewshot", value=shots)
    task.set_fewshot_seed(seed=1234)

    def template(messages: list[dict[str, str]], add_generation_prompt: bool) -> str:
        return json.dumps({"messages": messages, "add_generation_prompt": add_generation_prompt})

    task.build_all_requests(apply_chat_template=chat, fewshot_as_multiturn=chat, chat_template=template if chat else None)
    return [
        {"context": each.args[0], "until": each.args[1]["until"], "most": each.args[1].get("max_gen_toks", 256)}
        for each in task.instances
    ]


def scored(task: Any, name: str, answers: list[str], documents: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The verdicts of lm_eval on answers, one to each document; of code the programs that it would run."""
    if name == "minerva_math500":
        rows = list(task.test_docs())
        return [task.process_results(row, [text]) for row, text in zip(rows, answers, strict=True)]
    found: list[dict[str, Any]] = [{} for _ in answers]
    for ensemble in task._filters:
        resps: Any = [[text] for text in answers]
        for each in ensemble.filters:
            resps = each().apply(resps, documents)
        for verdict, text, document in zip(found, list(resps), documents, strict=True):
            if name == "gsm8k":
                kwargs = task._metric_fn_kwargs["exact_match"]
                match = exact_match_hf_evaluate([text], [task.doc_to_target(document)], **kwargs)["exact_match"]
                verdict[ensemble.name] = float(match)
            else:
                verdict["program"] = text if isinstance(text, str) else text[0]
    return found


def main() -> None:
    """Answer the jobs of the file that the first argument names; the second is a folder for files."""
    folder = Path(sys.argv[2])
    found: list[Any] = []
    for job in json.loads(Path(sys.argv[1]).read_text()):
        task = task_of(job["task"], folder, job["documents"], job.get("training", []))
        if "answers" in job:
            found.append(scored(task, job["task"], job["answers"], job["documents"]))
        else:
            found.append([rendered(task, shots, job["chat"]) for shots in job["shots"]])
    (folder / "found.json").write_text(json.dumps(found))


if __name__ == "__main__":
    main()
