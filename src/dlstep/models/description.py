"""What a checkpoint folder says about its network, without the weights. No remote code, no network access."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from transformers import AutoTokenizer, PretrainedConfig, PreTrainedTokenizerBase

from ..core import Spec
from .families import FAMILIES, Family
from .pieces import pieces

# What the "dlstep" section of a config.json may say beside strategy options.
SPEC_FACTS = ("decoding_strategy", "head_shift", "accept_rule", "mask_token_id")
# Strategy options that a generation_config.json may state under the same name.
GENERATION_OPTIONS = ("max_denoising_steps", "t_min", "t_max", "stability_threshold", "confidence_threshold")


@dataclass(frozen=True, slots=True)
class Description:
    """What a checkpoint folder says without its weights.

    `decoding_strategy` and the values of its `options` are what the network was trained for, None and missing where the
    folder does not say; `max_model_len` is the longest context it knows.
    """

    name: str
    path: Path
    architecture: str
    config: PretrainedConfig
    tokenizer: PreTrainedTokenizerBase
    spec: Spec
    options: Mapping[str, Any]
    decoding_strategy: str | None
    max_model_len: int


@dataclass(frozen=True, slots=True)
class _Sources:
    """Where the facts of a folder stand: `facts` are its config.json, `own` the section for this engine in it."""

    folder: Path
    facts: dict[str, Any]
    own: dict[str, Any]
    generation: dict[str, Any]
    text: Any
    tokenizer: PreTrainedTokenizerBase
    family: Family


def read_description(path: str | Path) -> Description:
    """What the checkpoint folder at `path` says, its weights unread.

    Raises FileNotFoundError for a missing folder or file, ValueError for a family that is not supported or a fact that
    is missing or impossible.
    """
    folder = Path(path).expanduser()
    facts = _facts(folder)
    architecture, family = _family(folder, facts)
    config_class = family.network.config_class
    if config_class is None:
        raise ValueError(f"{architecture} has no configuration class")
    config = config_class.from_pretrained(folder, local_files_only=True)
    sources = _Sources(
        folder=folder,
        facts=facts,
        own=facts.get("dlstep") or {},
        generation=_generation_facts(folder),
        text=config.get_text_config(),
        tokenizer=AutoTokenizer.from_pretrained(folder, local_files_only=True),
        family=family,
    )
    return Description(
        name=folder.resolve().name,
        path=folder,
        architecture=architecture,
        config=config,
        tokenizer=sources.tokenizer,
        spec=_spec(sources),
        options=_options(sources),
        decoding_strategy=sources.own.get("decoding_strategy", family.decoding_strategy),
        max_model_len=sources.text.max_position_embeddings,
    )


def _facts(folder: Path) -> dict[str, Any]:
    """The content of config.json."""
    if not folder.is_dir():
        raise FileNotFoundError(f"checkpoint folder {str(folder)!r} does not exist: give the path of a local folder")
    path = folder / "config.json"
    if not path.is_file():
        raise FileNotFoundError(f"{folder} holds no config.json: it is not a checkpoint folder")
    return json.loads(path.read_text(encoding="utf-8"))


def _family(folder: Path, facts: dict[str, Any]) -> tuple[str, Family]:
    """The entry of the table that the folder asks for."""
    architectures = facts.get("architectures") or []
    for architecture in architectures:
        if architecture in FAMILIES:
            return architecture, FAMILIES[architecture]
    named = ", ".join(architectures) or "none"
    raise ValueError(
        f"{folder} is of model_type {facts.get('model_type')!r} and architecture {named}, which is not supported: "
        f"choose a checkpoint of {', '.join(sorted(FAMILIES))} (code that a checkpoint brings is never run)"
    )


def _generation_facts(folder: Path) -> dict[str, Any]:
    """The content of generation_config.json; nothing if there is none."""
    path = folder / "generation_config.json"
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}


def _spec(sources: _Sources) -> Spec:
    """The facts for the core, from the most to the least specific source."""
    folder, own, family = sources.folder, sources.own, sources.family
    vocab_size, embedded = len(sources.tokenizer), sources.text.vocab_size
    if vocab_size > embedded:
        raise ValueError(f"{folder}: the tokenizer knows {vocab_size} ids, the network embeds {embedded}")
    return Spec(
        mask_id=_mask_id(sources) if family.masked else None,
        eos_ids=_eos_ids(sources),
        vocab_size=vocab_size,
        head_shift=own.get("head_shift", family.head_shift),
        accept_rule=own.get("accept_rule", family.accept_rule),
        pieces=pieces(sources.tokenizer),
    )


def _mask_id(sources: _Sources) -> int:
    given = (sources.own.get("mask_token_id"), sources.facts.get("mask_token_id"), sources.tokenizer.mask_token_id)
    mask_id: Any = next((index for index in given if index is not None), None)
    if mask_id is None:
        raise ValueError(
            f"{sources.folder} names no mask token: set mask_token_id in its config.json, or give its tokenizer a mask token"
        )
    return mask_id


def _eos_ids(sources: _Sources) -> tuple[int, ...]:
    said = [facts.get("eos_token_id") for facts in (sources.facts, sources.generation)]
    # The last resorts: chat models often end answers with another id than their text part or their tokenizer names.
    for given in (said, [sources.text.eos_token_id], [sources.tokenizer.eos_token_id]):
        ids: list[Any] = []
        for named in given:
            ids += named if isinstance(named, list) else [named]
        if ids := [index for index in ids if index is not None]:
            return tuple(dict.fromkeys(ids))
    raise ValueError(f"{sources.folder} names no end-of-sequence token: set eos_token_id in its config.json")


def _options(sources: _Sources) -> dict[str, Any]:
    """Strategy options that the folder states: the sizes of the network, how to generate, and what it says for this engine."""
    facts, generation = sources.facts, sources.generation
    sampler = generation.get("sampler_config") or {}
    said = {name: facts.get(name) for name in ("block_size", "canvas_length")}
    said |= {name: generation.get(name) for name in GENERATION_OPTIONS} | {"entropy_bound": sampler.get("entropy_bound")}
    own = {name: value for name, value in sources.own.items() if name not in SPEC_FACTS}
    return {name: value for name, value in said.items() if value is not None} | own
