"""Description of a checkpoint folder, read without its weights. No remote code, no network access."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from transformers import PretrainedConfig, PreTrainedTokenizerBase, PreTrainedTokenizerFast

from ..core import Fields, Ids, Json, Refused, SamplingParams, Spec, Texts
from ..core.errors import user_place
from ..core.spec import BIDIRECTIONAL, BLOCK_CAUSAL, RESIZES, TRAININGS
from ..text.detokenize import TOKENIZER_FILES, load_tokenizer
from .configs import EXPAND, Facts, Stated, part, unknown_fields
from .families import Family, Token, block_size_of_name, generation_facts, name_of, read_facts, recognise
from .reading import Source, check_size, describe_error, refuse_errors, source_at
from .transformers_internals import bytes_to_unicode

# Fields that the "dlstep" section of a config.json may have in addition to strategy options.
SPEC_FACTS = ("decoding_strategy", "training", "head_shift", "accept_rule", "mask_token_id")
BYTE_OF = {character: byte for byte, character in bytes_to_unicode().items()}  # of byte-level BPE
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
    source: Source
    """Its files."""
    family: Family
    """Model family."""
    config: PretrainedConfig
    """Configuration of the network."""
    tokenizer: PreTrainedTokenizerBase
    """Tokenizer of the folder."""
    spec: Spec
    """Facts for the core."""
    options: Fields
    """Options of the decoding strategy by name."""
    decoding_strategy: str | None
    """Name of the strategy the network was trained for; None if nothing states it."""
    training: str | None
    """One of `TRAININGS`; None if nothing states it."""
    max_model_len: int
    """Longest context of the network, in tokens."""
    max_tokens: int | None = None
    """Default length of answers of a network whose canvas may be as long as the answer; None: as `max_model_len` allows."""
    unknown: Texts = ()
    """Fields of config.json that no code reads and that are not known to be harmless."""

    @property
    def path(self) -> Path:
        """The folder."""
        return self.source.path


class _Sources(NamedTuple):
    """The sources of a folder's facts: `facts` is the content of its config.json, `own` its `dlstep` section and options."""

    folder: Path
    facts: Json
    own: Facts
    generation: Json
    text: Any
    tokenizer: PreTrainedTokenizerBase
    vocabulary: dict[str, int]
    pieces: tuple[bytes, ...]
    family: Family

    def id_of(self, token: Token) -> int | None:
        """Return the vocabulary's id of one of the token's texts, else the published id, else None.

        The published id must be embedded and not the id of another token of the vocabulary.
        """
        for text in token.texts:
            if text in self.vocabulary:
                return self.vocabulary[text]
        if token.id is None or token.id >= self.text.vocab_size or token.id in self.vocabulary.values():
            return None
        return token.id


def read_description(
    path: str | Path | Source,
    family: object = None,
    *,
    mask_token_id: int | None = None,
    head_shift: int | None = None,
    training: str | None = None,
) -> Description:
    """Return the facts of a checkpoint without reading its weights. The tokenizer, the largest file, is fetched last.

    Args:
        path: The folder, or the source of its files.
        family: Family of the checkpoint or its name, regardless of config.json; None: detected.
        mask_token_id: Token id of the mask; None: from the folder.
        head_shift: 1 if row p-1 of the network predicts position p, else 0; None: from the folder or the family.
        training: One of `TRAININGS`; None: from the folder or the family.

    Raises:
        FileNotFoundError: For a missing folder or file.
        ValueError: For a family that is not supported, or a fact that is missing or impossible.
    """
    source = source_at(path)
    folder = source.path
    facts = read_facts(folder)
    known = recognise(source, facts, family)
    config, unknown = network_config(folder, facts, known)
    text: Any = config.get_text_config()
    with refuse_errors(str(folder / "config.json")):
        own = part(facts, "dlstep")
    given = {"mask_token_id": mask_token_id, "head_shift": head_shift, "training": training}
    own = {**own, **{name: value for name, value in given.items() if value is not None}}
    declared = _strategy(folder, own, known)
    source.fetch(*TOKENIZER_FILES)
    sources = _Sources(folder, facts, own, generation_facts(folder), text, *_tokenizer(folder, text.vocab_size), known)
    return Description(
        name=name_of(folder.resolve()),
        source=source,
        family=known,
        config=config,
        tokenizer=sources.tokenizer,
        spec=_spec(sources, getattr(config, "canvas_length", None)),
        options=_options(sources),
        decoding_strategy=declared,
        training=_training(own, known),
        max_model_len=text.max_position_embeddings,
        max_tokens=_max_tokens(sources),
        unknown=unknown,
    )


def network_config(folder: Path, facts: Json, family: Family) -> tuple[PretrainedConfig, Texts]:
    """Return the network's configuration as an object of transformers, and the names of unknown fields."""
    config_class: Any = family.network.config_class
    assert config_class is not None, f"{family.network.__name__} has no configuration class"
    with refuse_errors(f"{folder / 'config.json'}, read as {family.name}"):
        stated = Stated(facts)
        try:
            arguments = family.config(stated)
        except Exception as error:  # the function of a user's family may raise anything
            raise ValueError(f"{describe_error(error)}{user_place(error)}") from error
        config = config_class(**arguments)
    return config, unknown_fields(stated, arguments, config)


def _training(own: Facts, family: Family) -> str | None:
    """Return how the network was trained, as an option or the `dlstep` section of config.json states it, or else the family."""
    training: Any = own.get("training", family.training)
    if training is not None and training not in list(TRAININGS):
        raise Refused("training", "invalid_value", f"must be one of {'; '.join(TRAININGS)}, got {training!r}")
    return training


def _tokenizer(folder: Path, embedded: int) -> tuple[PreTrainedTokenizerBase, dict[str, int], tuple[bytes, ...]]:
    """Return the tokenizer in a folder, its vocabulary and the bytes of its ids, which must be below `embedded`."""
    with refuse_errors(f"the tokenizer in {folder} cannot be read"):
        for file in folder.glob("*.json"):
            check_size(file)
        tokenizer = load_tokenizer(folder)
        vocabulary = tokenizer.get_vocab()
        largest = max(vocabulary.values())
        if largest >= embedded:  # before `pieces`, which has this many entries
            raise ValueError(f"it has ids up to {largest}, but the network embeds only {embedded}")
        return tokenizer, vocabulary, pieces(tokenizer)


def _strategy(folder: Path, own: Facts, family: Family) -> str | None:
    """Return the strategy that `own` names; else the first of a training other than the family's, else the family's."""
    training = _training(own, family)
    of_training = family.decoding_strategy if training in (None, family.training) else TRAININGS[training][0]
    declared: Any = own.get("decoding_strategy", of_training)
    if not isinstance(declared, str | None):
        raise ValueError(f"{folder / 'config.json'}: decoding_strategy of its section dlstep must be a name, got {declared!r}")
    return declared


def _max_tokens(sources: _Sources) -> int | None:
    """Return `max_new_tokens` of generation_config.json, or else 512, if the network's canvas may be as long as the answer."""
    if _training(sources.own, sources.family) not in (BIDIRECTIONAL, RESIZES, None):
        return None
    stated = sources.generation.get("max_new_tokens")
    if stated is None:
        return SamplingParams().max_tokens
    if type(stated) is not int or stated < 1:
        raise ValueError(f"{sources.folder / 'generation_config.json'}: max_new_tokens must be at least 1, got {stated!r}")
    return stated


def _spec(sources: _Sources, canvas_length: int | None) -> Spec:
    """Return the facts for the core, each from the most specific source that states it."""
    own, family = sources.own, sources.family
    if (mask_id := own.get("mask_token_id")) is not None and not family.masked:
        raise ValueError(f"mask_token_id={mask_id} is given, but networks of the family {family.name} have no mask token")
    return Spec(
        mask_id=_mask_id(sources) if family.masked else None,
        eos_ids=_eos_ids(sources),
        vocab_size=len(sources.pieces),
        head_shift=own.get("head_shift", family.head_shift),
        accept_rule=own.get("accept_rule", family.accept_rule),
        pieces=sources.pieces,
        canvas_length=canvas_length,
    )


def _mask_id(sources: _Sources) -> int:
    """Return the mask id that an option or the files state, or else that of the tokenizer or of the family's authors.

    Raises ValueError if there is none, and Refused if nothing states the shift of a network with a mask: with the wrong
    shift, its answers would be nonsense.
    """
    mask_id: Any = next((index for index in _mask_ids(sources) if index is not None), None)
    if mask_id is None:
        known = "" if sources.family.mask is None else f"; its tokenizer has no {' or '.join(sources.family.mask.texts)}"
        raise ValueError(
            f"{sources.folder}, read as {sources.family.name}, names no mask token, so it does not look like a diffusion "
            f"language model: if it is one, give mask_token_id, or set it in its config.json{known}"
        )
    if sources.family.training is None and "head_shift" not in sources.own:
        raise Refused(
            "head_shift",
            "missing",
            "give 1 if row p-1 of the network predicts position p, else 0, as an option or in the section dlstep of "
            f"config.json, and training likewise (one of {'; '.join(TRAININGS)}): {sources.folder}, read as "
            f"{sources.family.name}, has the mask token {mask_id}, but nothing states how it was trained",
        )
    return _embedded(sources, "mask_token_id", mask_id)


def _embedded(sources: _Sources, name: str, index: Any) -> int:
    """Return `index` if it is an id that the network embeds. Raises ValueError with `name` for any other value."""
    if index not in range(sources.text.vocab_size):
        size = sources.text.vocab_size
        raise ValueError(f"{name}={index!r} is not an id of {sources.folder}, whose network embeds ids 0 to {size - 1}")
    return index


def _mask_ids(sources: _Sources) -> Iterator[Any]:
    for facts in (sources.own, sources.facts, sources.generation):
        yield facts.get("mask_token_id")
    yield sources.tokenizer.mask_token_id
    if sources.family.mask is not None:
        yield sources.id_of(sources.family.mask)


def _eos_ids(sources: _Sources) -> Ids:
    """Return the ids that the files state and those that end a turn in the family.

    If there are none, return the ids of the text configuration, or else of the tokenizer.
    """
    ends = [sources.id_of(token) for token in sources.family.ends]
    stated = [sources.facts.get("eos_token_id"), sources.generation.get("eos_token_id"), *ends]
    for source in (stated, [sources.text.eos_token_id], [sources.tokenizer.eos_token_id]):
        ids: list[Any] = []
        for value in source:
            ids += value if isinstance(value, list) else [value]
        if ids := [index for index in ids if index is not None]:
            return tuple(dict.fromkeys(_embedded(sources, "eos_token_id", index) for index in ids))
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


def _options(sources: _Sources) -> Json:
    """Return the strategy options that the sources state.

    Each source overrides those before it: the family's authors; the block size in the checkpoint's name, or else in
    config.json, and the options in generation_config.json; the `dlstep` section of config.json.
    """
    facts, generation, block = sources.facts, sources.generation, sources.family.block_option
    named = block_size_of_name(sources.folder, facts) if sources.family.training == BLOCK_CAUSAL else None
    with refuse_errors(str(sources.folder / "generation_config.json")):
        sampler = part(generation, "sampler_config")
    stated = {block: named or facts.get(block)}
    stated |= {name: generation.get(name) for name in GENERATION_OPTIONS} | {"entropy_bound": sampler.get("entropy_bound")}
    stated[EXPAND] = _expand_id(sources)
    own = {name: value for name, value in sources.own.items() if name not in SPEC_FACTS}
    return {**sources.family.options, **{name: value for name, value in stated.items() if value is not None}, **own}


def _expand_id(sources: _Sources) -> int | None:
    """Return the id of the expansion token; None if the family has none. Raises ValueError if nothing states the id."""
    if (token := sources.family.expand) is None:
        return None
    stated = (sources.own.get(EXPAND), sources.generation.get(EXPAND), sources.facts.get(EXPAND))
    found: Any = next((index for index in stated if index is not None), None)
    if found is None:
        found = sources.id_of(token)
    if found is None:
        raise ValueError(f"{sources.folder} names no {EXPAND}: set it in its generation_config.json")
    return _embedded(sources, EXPAND, found)


def _parts(description: object) -> set[str]:
    """Return the `type` of every part of a tokenizer's description, nested parts included."""
    kinds: set[str] = set()
    if isinstance(description, dict):
        if isinstance(kind := description.get("type"), str):
            kinds.add(kind)
        for part in description.values():
            kinds |= _parts(part)
    elif isinstance(description, list):
        for part in description:
            kinds |= _parts(part)
    return kinds


def _piece(token: str, kinds: set[str]) -> bytes:
    """Return the bytes of one token, for a decoder with these parts."""
    if "ByteLevel" in kinds:
        known = all(character in BYTE_OF for character in token)
        return bytes(BYTE_OF[character] for character in token) if known else token.encode()
    if "ByteFallback" in kinds and len(token) == 6 and token.startswith("<0x") and token.endswith(">"):
        return bytes([int(token[3:5], 16)])
    if "Replace" in kinds or "Metaspace" in kinds:
        return token.replace("\u2581", " ").encode()
    return token.encode()


def pieces(tokenizer: PreTrainedTokenizerBase) -> tuple[bytes, ...]:
    """Return the bytes of each id up to the largest one; b"" for special tokens and unused ids."""
    kinds: set[str] = set()
    if isinstance(tokenizer, PreTrainedTokenizerFast):
        backend = json.loads(tokenizer.backend_tokenizer.to_str())
        kinds = _parts([backend.get("decoder"), backend.get("pre_tokenizer")])
    silent = set(tokenizer.all_special_ids)
    added = dict(tokenizer.added_tokens_decoder)
    # Ids may have gaps, so the number of tokens can be smaller.
    names = tokenizer.convert_ids_to_tokens(list(range(max(tokenizer.get_vocab().values()) + 1)))
    result: list[bytes] = []
    for index, name in enumerate(names):
        token = added.get(index)
        if index in silent or name is None or (token is not None and token.special):
            result.append(b"")
        else:
            result.append(name.encode() if token is not None else _piece(name, kinds))
    return tuple(result)
