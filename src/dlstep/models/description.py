"""Description of a checkpoint folder, read without its weights. No remote code, no network access."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from transformers import PretrainedConfig, PreTrainedTokenizerBase

from ..core import Spec
from ..core.trainings import BIDIRECTIONAL, RANDOM_CANVAS, TRAININGS
from ..text.tokenizers import load_tokenizer
from .families import Family
from .pieces import pieces
from .reading import RefuseErrors, briefly, read_object
from .recognise import name_of, read_facts, recognise
from .sizes import check_config, check_eos, check_facts, is_count
from .special_tokens import find_token
from .stated import Stated, unknown_fields
from .tokenizer_limits import check_tokenizer

# Fields that the "dlstep" section of a config.json may have in addition to strategy options.
SPEC_FACTS = ("decoding_strategy", "training", "head_shift", "accept_rule", "mask_token_id")
# Strategy options that a generation_config.json may state under the same name.
GENERATION_OPTIONS = ("max_denoising_steps", "t_min", "t_max", "stability_threshold", "confidence_threshold")


@dataclass(frozen=True, slots=True)
class Description:
    """Facts of a checkpoint folder, without its weights.

    `decoding_strategy`, its `options` and `training` are as the folder states them, or else as the
    authors of the family do.
    """

    name: str
    """Name of the folder."""
    path: Path
    """The folder."""
    family: Family
    """Model family."""
    config: PretrainedConfig
    """Configuration of the network."""
    tokenizer: PreTrainedTokenizerBase
    """Tokenizer of the folder."""
    spec: Spec
    """Facts for the core."""
    options: Mapping[str, Any]
    """Options of the decoding strategy by name."""
    decoding_strategy: str | None
    """Name of the strategy the network was trained for; None if nothing states it."""
    training: str | None
    """One of `TRAININGS`; None if nothing states it."""
    max_model_len: int
    """Longest context of the network, in tokens."""
    max_tokens: int | None = None
    """Default length of answers, if the network denoises canvases and generation_config.json states it."""
    unknown: tuple[str, ...] = ()
    """Fields of config.json that no code reads and that are not known to be harmless."""


@dataclass(frozen=True, slots=True)
class _Sources:
    """The sources of a folder's facts: `facts` is the content of its config.json, `own` is its `dlstep` section."""

    folder: Path
    facts: dict[str, Any]
    own: dict[str, Any]
    generation: dict[str, Any]
    text: Any
    tokenizer: PreTrainedTokenizerBase
    vocabulary: dict[str, int]
    pieces: tuple[bytes, ...]
    family: Family


@briefly
def read_description(path: str | Path, model_name: str | None = None, *, mask_token_id: int | None = None) -> Description:
    """Return the facts of a checkpoint folder without reading its weights.

    Args:
        path: The folder.
        model_name: Family of the checkpoint, regardless of config.json; None: detected.
        mask_token_id: Token id of the mask; None: from the folder.

    Raises:
        FileNotFoundError: For a missing folder or file.
        ValueError: For a family that is not supported, or a fact that is missing or impossible.
    """
    folder = Path(path).expanduser()
    facts = read_facts(folder)
    family = recognise(folder, facts, model_name)
    config, unknown = _config(folder, facts, family)
    text: Any = config.get_text_config()
    own: Any = facts.get("dlstep") or {}
    if not isinstance(own, dict):
        raise ValueError(f"{folder / 'config.json'}: its section dlstep must be an object, got {own!r}")
    declared: Any = own.get("decoding_strategy", family.decoding_strategy)
    if not isinstance(declared, str | None):
        raise ValueError(f"{folder / 'config.json'}: decoding_strategy of its section dlstep must be a name, got {declared!r}")
    with RefuseErrors(f"the tokenizer in {folder} cannot be read"):
        check_tokenizer(folder)
        tokenizer = load_tokenizer(folder)
        vocabulary = tokenizer.get_vocab()
        largest = max(vocabulary.values())
        if largest >= text.vocab_size:  # before `pieces`, which has this many entries
            raise ValueError(f"it has ids up to {largest}, but the network embeds only {text.vocab_size}")
        texts = pieces(tokenizer)
    sources = _Sources(
        folder=folder,
        facts=facts,
        own=own,
        generation=_generation_facts(folder),
        text=text,
        tokenizer=tokenizer,
        vocabulary=vocabulary,
        pieces=texts,
        family=family,
    )
    return Description(
        name=name_of(folder.resolve()),
        path=folder,
        family=family,
        config=config,
        tokenizer=sources.tokenizer,
        spec=_spec(sources, mask_token_id),
        options=_options(sources),
        decoding_strategy=declared,
        training=_training(sources),
        max_model_len=text.max_position_embeddings,
        max_tokens=_max_tokens(sources),
        unknown=unknown,
    )


def _config(folder: Path, facts: dict[str, Any], family: Family) -> tuple[PretrainedConfig, tuple[str, ...]]:
    """Return the network's configuration as an object of transformers, and the names of unknown fields."""
    config_class: Any = family.network.config_class
    assert config_class is not None, f"{family.network.__name__} has no configuration class"
    with RefuseErrors(f"{folder / 'config.json'}, read as {family.name}"):
        check_facts(facts)
        stated = Stated(facts)
        arguments = family.config(stated)
        config = config_class(**arguments)
        check_config(config)
    return config, unknown_fields(stated, arguments, config)


def _training(sources: _Sources) -> str | None:
    """Return how the network was trained, as the `dlstep` section of config.json states it, or else the family."""
    training: Any = sources.own.get("training", sources.family.training)
    if training is not None and training not in list(TRAININGS):
        where = sources.folder / "config.json"
        raise ValueError(f"{where}: training of its section dlstep must be one of {', '.join(TRAININGS)}, got {training!r}")
    return training


def _max_tokens(sources: _Sources) -> int | None:
    """Return `max_new_tokens` of generation_config.json for networks whose answers depend on the length of the canvas."""
    stated = sources.generation.get("max_new_tokens")
    if stated is None or _training(sources) not in (BIDIRECTIONAL, RANDOM_CANVAS):
        return None
    if not is_count(stated):
        raise ValueError(f"{sources.folder / 'generation_config.json'}: max_new_tokens must be at least 1, got {stated!r}")
    return stated


def _generation_facts(folder: Path) -> dict[str, Any]:
    """Return the content of generation_config.json; an empty dict if there is no such file."""
    path = folder / "generation_config.json"
    return read_object(path) if path.is_file() else {}


def _spec(sources: _Sources, mask_token_id: int | None) -> Spec:
    """Return the facts for the core, each from the most specific source that states it."""
    own, family = sources.own, sources.family
    if mask_token_id is not None and not family.masked:
        raise ValueError(f"mask_token_id={mask_token_id} is given, but networks of the family {family.name} know no mask")
    return Spec(
        mask_id=_mask_id(sources, mask_token_id) if family.masked else None,
        eos_ids=_eos_ids(sources),
        vocab_size=len(sources.pieces),
        head_shift=own.get("head_shift", family.head_shift),
        accept_rule=own.get("accept_rule", family.accept_rule),
        pieces=sources.pieces,
    )


def _mask_id(sources: _Sources, explicit: int | None) -> int:
    """Return the explicit mask id, or else that of the files, of the tokenizer or of the family's authors."""
    mask_id: Any = next((index for index in _mask_ids(sources, explicit) if index is not None), None)
    if mask_id is None:
        raise ValueError(
            f"{sources.folder}, read as {sources.family.name}, names no mask token, so it does not look like a diffusion "
            "language model: if it is one, give mask_token_id, or set it in its config.json"
        )
    if not isinstance(mask_id, int) or isinstance(mask_id, bool) or not 0 <= mask_id < sources.text.vocab_size:
        raise ValueError(
            f"mask_token_id={mask_id!r} is not an id of {sources.folder}, whose network embeds {sources.text.vocab_size}"
        )
    return mask_id


def _mask_ids(sources: _Sources, explicit: int | None) -> Iterator[Any]:
    yield explicit
    for facts in (sources.own, sources.facts, sources.generation):
        yield facts.get("mask_token_id")
    yield sources.tokenizer.mask_token_id
    if sources.family.mask is not None:
        yield find_token(sources.family.mask, sources.vocabulary, sources.text.vocab_size)


def _eos_ids(sources: _Sources) -> tuple[int, ...]:
    """Return the ids that the files state and those that end a turn in the family.

    If there are none, return the ids of the text configuration, or else of the tokenizer.
    """
    text, tokenizer = sources.text, sources.tokenizer
    ends = [find_token(token, sources.vocabulary, text.vocab_size) for token in sources.family.ends]
    stated = [sources.facts.get("eos_token_id"), sources.generation.get("eos_token_id"), *ends]
    for source in (stated, [text.eos_token_id], [tokenizer.eos_token_id]):
        ids: list[Any] = []
        for value in source:
            ids += value if isinstance(value, list) else [value]
        if ids := [index for index in ids if index is not None]:
            return check_eos(sources.folder, ids, text.vocab_size)
    raise ValueError(f"{sources.folder} names no end-of-sequence token: set eos_token_id in its config.json")


def check_ends(description: Description) -> None:
    """Raise ValueError for an end token beyond the tokenizer's ids, because it is never sampled.

    End tokens that the family's authors publish may be missing if there is another one.
    """
    ends, count = description.spec.eos_ids, description.spec.vocab_size
    published = [token.id for token in description.family.ends if min(ends) < count]
    if lost := [end for end in ends if end >= count and end not in published]:
        raise ValueError(
            f"{description.path}: eos_token_id={lost[0]} is not an id of its tokenizer, whose largest one is {count - 1}: give "
            "an id of the tokenizer, or complete its tokenizer.json"
        )


def _options(sources: _Sources) -> dict[str, Any]:
    """Return the strategy options that the sources state.

    Each source overrides those before it: the family's authors; the block size in config.json and the options in
    generation_config.json; the `dlstep` section of config.json.
    """
    facts, generation, block = sources.facts, sources.generation, sources.family.block_option
    sampler: Any = generation.get("sampler_config") or {}
    if not isinstance(sampler, dict):
        raise ValueError(f"{sources.folder / 'generation_config.json'}: sampler_config must be an object, got {sampler!r}")
    stated = {block: facts.get(block)}
    stated |= {name: generation.get(name) for name in GENERATION_OPTIONS} | {"entropy_bound": sampler.get("entropy_bound")}
    own = {name: value for name, value in sources.own.items() if name not in SPEC_FACTS}
    return {**sources.family.options, **{name: value for name, value in stated.items() if value is not None}, **own}
