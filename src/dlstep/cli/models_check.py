"""`dlstep models check`: describe a checkpoint and its problems, without downloading or loading its weights."""

from dataclasses import KW_ONLY, asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from ..core import Json
from .options import Namespace, json_text

if TYPE_CHECKING:
    from ..models.check import CheckpointReport

EXAMPLES = """dlstep models check /path/to/checkpoint
dlstep models check /path/to/checkpoint --family dream_reasoner --json
dlstep models check /path/to/checkpoint --lora_path /path/to/adapter"""


@dataclass(frozen=True)
class CheckCommand:
    """Describe a checkpoint: its family, the memory that it needs on this machine, and the strategies that fit.

    Lists tensors that would be missing or not used. Weights are neither downloaded nor loaded, and code of the checkpoint
    is never run.
    """

    path: str
    """The checkpoint folder, or a name of the hub: org/name or org/name@revision."""
    _: KW_ONLY
    family: str | None = None
    """Family of the checkpoint: a name, a module path or a .py file; None: detected from the checkpoint's files."""
    mask_token_id: int | None = None
    """Token id of the mask. This and the next two options are for checkpoints whose files do not state them."""
    head_shift: Literal[0, 1] | None = None
    """1: row p-1 of the network predicts position p; 0: row p does."""
    training: str | None = None
    """How the network was trained: a value of `training` in docs/models.md."""
    lora_path: Path | None = None
    """Folder of a LoRA adapter for it."""
    max_num_reqs: int = 1
    """Number of concurrent requests for which memory is predicted."""
    max_model_len: int | None = None
    """Maximum number of tokens of a request, prompt and answer together; None: the model's limit."""
    json: bool = False
    """Print a JSON object, and nothing else, on stdout."""


COMMAND = CheckCommand


def run(options: Namespace) -> int:
    """Print the report. Return 1 if the checkpoint cannot be loaded, else 0."""
    from ..engine.hub import source_of
    from ..models.check import check

    stated = {name: getattr(options, name) for name in ("mask_token_id", "head_shift", "training")}
    report = check(source_of(options.path), options.family, options.lora_path, **stated)
    facts = facts_of(report, options.max_num_reqs, options.max_model_len)
    print(json_text(facts) if options.json else "\n".join(lines(facts)))
    return int(bool(facts["problems"]))


def facts_of(report: "CheckpointReport", requests: int = 1, length: int | None = None) -> Json:
    """Return the report as JSON data, with the memory for this number of requests of this length."""
    from torch import bfloat16, float32

    from ..engine.compatibility import declared_problem, incompatible_strategies
    from ..engine.config import EngineConfig
    from ..engine.memory_needs import memory_needs
    from ..engine.resolve import resolve
    from ..models.shapes import kv_bytes_per_token

    known: Json = {}
    problems = list(report.problems)
    if report.description is not None:
        description = report.description
        if declared := declared_problem(description):
            problems.append(declared)
        dtypes = {"16-bit": bfloat16, "32-bit": float32}
        known = {
            "family": description.family.name,
            "network": description.family.network.__name__,
            "parameters": report.parameters,
            **{name: getattr(description.spec, name) for name in ("vocab_size", "mask_id", "head_shift")},
            **{name: getattr(description, name) for name in ("max_model_len", "training", "decoding_strategy")},
            "eos_ids": list(description.spec.eos_ids),
            "kv_bytes_per_token": {name: kv_bytes_per_token(report.kv_shapes, dtype) for name, dtype in dtypes.items()},
            "strategies": {} if declared else incompatible_strategies(description),
        }
        if description.decoding_strategy and not problems:
            known["by_default"] = resolve(EngineConfig(), description).choices
            needs = memory_needs(description, requests, length)
            known["memory"] = [asdict(each) | {"fits": each.fits} for each in needs]
        if not declared and all(known["strategies"].values()):
            problems += [f"not {name}: {reason}" for name, reason in known["strategies"].items()]
    return {
        "folder": str(report.folder),
        "stored_bytes": report.stored_bytes,
        "download_bytes": report.download_bytes,
        **known,
        "problems": problems,
        "warnings": list(report.warnings),
    }


def lines(facts: Json) -> list[str]:
    """Return the report as lines of text."""
    stored = f"{facts['stored_bytes']:,} bytes of tensors, " if "family" in facts else ""  # not read if the model is refused
    text = [f"{facts['folder']}: {stored}{facts['download_bytes']:,} bytes to download"]
    if "family" in facts:
        per_token = ", ".join(f"{size:,} bytes in {dtype}" for dtype, size in facts["kv_bytes_per_token"].items())
        text += [
            f"family: {facts['family']}, loaded as {facts['network']}",
            f"parameters: {facts['parameters']:,}",
            f"longest context: {facts['max_model_len']:,} tokens",
            f"ids: {facts['vocab_size']:,}, mask {facts['mask_id']}, end {', '.join(map(str, facts['eos_ids']))}",
            f"keys and values of a token: {per_token}",
            *(_memory_line(each) for each in facts.get("memory", ())),
            f"by default: {facts.get('by_default', 'it does not load')}",
            f"made for: {facts['decoding_strategy'] or 'not stated'}",
            f"trained: {facts['training'] or 'not stated'}, head_shift {facts['head_shift']}",
            f"strategies that fit: {', '.join(name for name, reason in facts['strategies'].items() if not reason)}",
            *(f"  not {name}: {reason}" for name, reason in facts["strategies"].items() if reason),
        ]
    if facts["warnings"]:
        text += [f"warnings: {len(facts['warnings'])}", *(f"  {line}" for line in facts["warnings"])]
    problems = facts["problems"]
    return [*text, f"problems: {len(problems)}" if problems else "problems: none", *(f"  {line}" for line in problems)]


def _memory_line(needs: Json) -> str:
    """Return a line about the memory in one dtype."""
    kind = needs["dtype"] + (f" with quantization={needs['quantization']}" if needs["quantization"] else "")
    from ..models.shapes import in_gib

    weights, cache, work, total = (in_gib(needs[name]) for name in ("weights", "kv_cache", "work", "total"))
    room = "" if needs["memory"] is None else f" of {in_gib(needs['memory'])}"
    verdict = "fits into" if needs["fits"] else "does not fit into"
    return f"memory in {kind}: {total} (weights {weights}, KV cache {cache}, work {work}) {verdict} {needs['device']}{room}"
