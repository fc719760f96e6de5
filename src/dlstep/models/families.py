"""The model families that can be decoded, one entry each, and the recognition of a checkpoint's family.

A family is recognised by config.json; if several fit, by tensors, other fields and names.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from transformers import (
    DiffusionGemmaForBlockDiffusion,
    Glm4MoeForCausalLM,
    LlamaForCausalLM,
    Ministral3ForCausalLM,
    PreTrainedModel,
    Qwen2ForCausalLM,
    Qwen3ForCausalLM,
    Qwen3MoeForCausalLM,
)

from ..core import Fields, Json, Refused, Texts
from ..core.checks import Checked, short
from ..core.options import Plugins
from ..core.spec import (
    BIDIRECTIONAL,
    BLOCK_CAUSAL,
    CAUSAL,
    EDITS,
    JOINT,
    PROMPT_IN_FULL,
    RANDOM_CANVAS,
    REORDERED,
    RESIZES,
    SUB_BLOCKS,
    TRAININGS,
    WINDOWS,
    AcceptRule,
)
from . import configs
from .configs import Arguments, Facts
from .reading import Source, read_object
from .weights import WeightRule, WeightRules

CHATML_TEMPLATE = (
    "{% for message in messages %}"
    "<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n"
    "{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)

LLADA_TEMPLATE = (
    "{% for message in messages %}"
    "{% if loop.first %}<|startoftext|>{% endif %}"
    "<|start_header_id|>{{ message['role'] }}<|end_header_id|>\n\n{{ message['content'] | trim }}<|eot_id|>"
    "{% endfor %}"
    "{% if add_generation_prompt %}<|start_header_id|>assistant<|end_header_id|>\n\n{% endif %}"
)

LLADA2_TEMPLATE = (
    "{% if messages[0]['role'] == 'system' %}"
    "<role>SYSTEM</role>{{ messages[0]['content'] }}\ndetailed thinking off<|role_end|>"
    "{% else %}<role>SYSTEM</role>detailed thinking off<|role_end|>{% endif %}"
    "{% for message in messages %}"
    "{% if message['role'] == 'user' %}<role>HUMAN</role>{{ message['content'] }}<|role_end|>"
    "{% elif message['role'] == 'assistant' %}<role>ASSISTANT</role>{{ message['content'] }}<|role_end|>{% endif %}"
    "{% endfor %}"
    "{% if add_generation_prompt %}<role>ASSISTANT</role>{% endif %}"
)


@dataclass(frozen=True, slots=True)
class Token(Checked):
    """A published special token."""

    texts: Texts
    """Texts under which tokenizers may have it."""
    id: int | None
    """Its published id; None if uncertain."""


@dataclass(frozen=True, slots=True)
class Signs(Checked):
    """Signs by which a checkpoint's family is recognised; if all are empty, only the option `family` selects it.

    `tensor`, `published` and `fact` distinguish families that share classes or model types.
    """

    classes: Texts = ()
    """Regexes for whole class and module names in `architectures` and `auto_map`."""
    model_types: Texts = ()
    """Values of `model_type`."""
    tensor: str | None = None
    """Regex for the whole name of a tensor in the files."""
    published: str | None = None
    """Regex for a part of the folder's name or of the original name."""
    fact: str | None = None
    """Field of config.json or generation_config.json that has a value other than false."""

    def __post_init__(self) -> None:
        Checked.__post_init__(self)
        for pattern in (*self.classes, self.tensor, self.published):
            re.compile(pattern or "")


@dataclass(frozen=True, slots=True)
class Family(Checked):
    """A kind of checkpoint: transformers class, tensor names, and its authors' decoding settings.

    Raises:
        Refused: For a field of a wrong type or value.
    """

    name: str
    """Name in listings and in the option `family`."""
    network: type[PreTrainedModel]
    """Class of transformers."""
    signs: Signs
    """How config.json shows the family."""
    config: Callable[[Facts], Arguments]
    """Function from config.json to the arguments of the configuration class."""
    weights: WeightRules = ()
    """Rules for tensors with other names than those of the class."""
    ignored: Texts = (r".*rotary_emb\.inv_freq",)
    """Regexes for names of tensors that are not needed."""
    mask: Token | None = None
    """Mask token of checkpoints that name none."""
    expand: Token | None = None
    """Expansion token, which becomes two masks, of checkpoints that name none; None: the network does not expand masks."""
    ends: tuple[Token, ...] = ()
    """End tokens in addition to those that the checkpoint names."""
    masked: bool = True
    """Without, there is no mask token, whatever the tokenizer says."""
    head_shift: Literal[0, 1] = 0
    """With 1, row p-1 of the network predicts position p."""
    accept_rule: AcceptRule = "A"
    """Accept rule of the authors, as in `Spec`."""
    block_option: str = "block_size"
    """Field of config.json with the block size."""
    decoding_strategy: str | None = None
    """Name of the authors' strategy; None: only the folder can tell."""
    training: str | None = None
    """One of `TRAININGS`; None: only the folder can tell."""
    options: Fields = field(default_factory=dict)
    """The authors' options of the strategy, which the checkpoint overrides."""
    chat_template: str | None = None
    """Chat template of checkpoints without one."""
    qkv_biased: type[PreTrainedModel] | None = None
    """Class of transformers for checkpoints with `include_qkv_bias`."""

    def __post_init__(self) -> None:
        Checked.__post_init__(self)
        object.__setattr__(self, "options", dict(self.options))  # raises for other values
        if self.training not in (None, *TRAININGS):
            known = ", ".join(map(repr, TRAININGS))
            raise Refused("training", "invalid_value", f"{short(self.training)} is no way of training: give one of {known}")


_LAYER = r"model\.layers\.(\d+)\."
_BLOCK = r"model\.transformer\.blocks\.(\d+)\."


def _renamed(names: Mapping[str, str]) -> WeightRules:
    """Return rules that only rename tensors."""
    return tuple(WeightRule(name, (target,)) for name, target in names.items())


SINGLE_EXPERTS = (
    WeightRule(_LAYER + r"mlp\.experts\.(?P<expert>\d+)\.gate_proj\.weight", (r"model.layers.\1.mlp.experts.gate_up_proj",), 0),
    WeightRule(_LAYER + r"mlp\.experts\.(?P<expert>\d+)\.up_proj\.weight", (r"model.layers.\1.mlp.experts.gate_up_proj",), 1),
    WeightRule(_LAYER + r"mlp\.experts\.(?P<expert>\d+)\.down_proj\.weight", (r"model.layers.\1.mlp.experts.down_proj",)),
)
LLADA_NAMES = _renamed(
    {
        r"model\.transformer\.wte\.weight": "model.embed_tokens.weight",
        r"model\.transformer\.ln_f\.weight": "model.norm.weight",
        r"model\.transformer\.ff_out\.weight": "lm_head.weight",
        _BLOCK + r"([qkv]_proj)\.(weight|bias)": r"model.layers.\1.self_attn.\2.\3",
        _BLOCK + r"attn_out\.weight": r"model.layers.\1.self_attn.o_proj.weight",
        _BLOCK + r"attn_norm\.weight": r"model.layers.\1.input_layernorm.weight",
        _BLOCK + r"ff_norm\.weight": r"model.layers.\1.post_attention_layernorm.weight",
        _BLOCK + r"ff_proj\.weight": r"model.layers.\1.mlp.gate_proj.weight",
        _BLOCK + r"up_proj\.weight": r"model.layers.\1.mlp.up_proj.weight",
        _BLOCK + r"ff_out\.weight": r"model.layers.\1.mlp.down_proj.weight",
    }
)
LLADA2_NAMES = (
    *SINGLE_EXPERTS,
    WeightRule(
        _LAYER + r"attention\.query_key_value\.(weight|bias)",
        tuple(rf"model.layers.\1.self_attn.{part}_proj.\2" for part in "qkv"),
    ),
    *_renamed(
        {
            r"model\.word_embeddings\.weight": "model.embed_tokens.weight",
            _LAYER + r"attention\.dense\.weight": r"model.layers.\1.self_attn.o_proj.weight",
            _LAYER + r"attention\.query_layernorm\.weight": r"model.layers.\1.self_attn.q_norm.weight",
            _LAYER + r"attention\.key_layernorm\.weight": r"model.layers.\1.self_attn.k_norm.weight",
            _LAYER + r"mlp\.gate\.expert_bias": r"model.layers.\1.mlp.gate.e_score_correction_bias",
        }
    ),
)
NEMOTRON_NAMES = _renamed(
    {
        r"encoder\.(embed_tokens|norm)\.weight": r"model.\1.weight",
        r"encoder\.layers\.(\d+)\.(.+)": r"model.layers.\1.\2",
        r"diffusion_head\.weight": "lm_head.weight",
    }
)

END_OF_TEXT = Token(("<|endoftext|>",), 151643)  # in tokenizers derived from Qwen's
END_OF_TURN = Token(("<|im_end|>",), 151645)
QWEN_ENDS = (END_OF_TEXT, END_OF_TURN)
DREAM = Family(  # a Qwen2 with bidirectional attention, whose row p-1 predicts position p
    "dream",
    Qwen2ForCausalLM,
    Signs(("DreamModel", "DreamForCausalLM"), ("Dream",)),
    configs.qwen2,
    mask=Token(("<|mask|>",), 151666),
    ends=QWEN_ENDS,
    head_shift=1,
    training=BIDIRECTIONAL,
    chat_template=CHATML_TEMPLATE,
)
DREAMON = replace(  # trained further to fill gaps, and to determine their length
    DREAM,
    name="dreamon",
    signs=replace(DREAM.signs, published=r"\bdreamon", fact=configs.EXPAND),
    expand=Token(("<|expand|>",), 151667),
    ends=(END_OF_TEXT,),
    training=RESIZES,
    chat_template=None,
)
QWEN3_MASK = Token(("<|mask|>", "<|MASK|>"), 151669)
SDAR = Family(  # a Qwen3 with small blocks; its authors accept at a fixed probability
    "sdar",
    Qwen3ForCausalLM,
    Signs(("SDARForCausalLM",), ("sdar",)),
    configs.qwen3,
    mask=QWEN3_MASK,
    ends=QWEN_ENDS,
    training=BLOCK_CAUSAL,
    options={"block_size": 4, "accept_threshold": 0.95},
    chat_template=CHATML_TEMPLATE,
)
WEDLM = Family(  # a Qwen2 or a Qwen3; its authors' engine uses id 151665 as mask, whatever its text is
    "wedlm",
    Qwen2ForCausalLM,
    Signs((r"WeDLMFor\w+",), ("wedlm",)),
    configs.wedlm,
    mask=Token(("<|mask|>", "<tool_response>"), 151665),
    ends=QWEN_ENDS,
    training=REORDERED,
    options={"block_size": 16},
    chat_template=CHATML_TEMPLATE,
)
CODA = replace(
    DREAM,
    name="coda",
    network=Qwen3ForCausalLM,
    signs=Signs(("CoDALanguageModel",), ("CoDA",)),
    config=configs.qwen3,
    mask=QWEN3_MASK,
)
SDLM = Family(  # a Qwen2 whose windows repeat the last token
    "sdlm",
    Qwen2ForCausalLM,
    Signs(("SDLMQwen2ForCausalLM",)),
    configs.sdlm,
    mask=Token(("<text_mask>",), 151665),
    ends=QWEN_ENDS,
    head_shift=1,
    training=WINDOWS,
    options={"block_size": 4},
    chat_template=CHATML_TEMPLATE,
)
LLADA2 = Family(  # a mixture of experts with blocks of 32
    "llada2",
    Glm4MoeForCausalLM,
    Signs(("LLaDA2MoeModelLM",), ("llada2_moe",)),
    configs.llada2,
    weights=LLADA2_NAMES,
    mask=Token(("<|mask|>",), 156895),
    ends=(Token(("<|endoftext|>",), 156892), Token(("<|role_end|>",), None)),
    training=BLOCK_CAUSAL,
    options={"block_size": 32},
    chat_template=LLADA2_TEMPLATE,
)


def _native(name: str, network: type[PreTrainedModel], config: Callable[[Facts], Arguments] = configs.native) -> Family:
    """Return a family of any network of this class. Its folder must name a mask token."""
    experts = SINGLE_EXPERTS if network is Qwen3MoeForCausalLM else ()
    return Family(name, network, Signs((network.__name__,)), config, weights=experts)


def _a2d(kind: str, network: type[PreTrainedModel], config: Callable[[Facts], Arguments], mask_id: int | None) -> Family:
    """Return the family of an autoregressive network without its causal mask, which was trained as MDLM.

    However such a network was trained, its config.json is the same: only the checkpoint's name shows it.
    """
    signs = Signs((f"A2D{kind}LMHeadModel",), (f"a2d-{kind.lower()}",), published="mdlm")
    return Family(
        f"a2d_{kind.lower()}",
        network,
        signs,
        config,
        mask=Token(("<|mask|>",), mask_id),
        ends=QWEN_ENDS,
        training=BIDIRECTIONAL,
    )


def _bd3lm(family: Family) -> Family:
    """Return the family of the same network that was trained as BD3LM, whose blocks begin at the prompt's end."""
    return replace(
        family,
        name=f"{family.name}_bd3lm",
        signs=replace(family.signs, published="bd3lm|distill"),
        training=BLOCK_CAUSAL,
        options={"block_size": 32, "grid_origin": "prompt_end"},
    )


A2D_QWEN3 = _a2d("Qwen3", Qwen3ForCausalLM, configs.qwen3, 151669)
A2D_QWEN2 = _a2d("Qwen2", Qwen2ForCausalLM, configs.qwen2, None)

_ENTRIES = (
    DREAM,
    DREAMON,
    replace(DREAM, name="diffucoder", signs=replace(DREAM.signs, published="diffucoder")),
    replace(
        DREAM, name="open_dcoder", signs=Signs(("Qwen2ForCausalLM",), published="open-?dcoder"), mask=Token(("<M>",), None)
    ),
    CODA,
    replace(  # a base model
        CODA,
        name="rnd1",
        network=Qwen3MoeForCausalLM,
        signs=Signs(("RND1LM",), ("rnd1",)),
        config=configs.qwen3_moe,
        weights=SINGLE_EXPERTS,
        chat_template=None,
    ),
    replace(
        SDAR,
        name="dream_reasoner",
        signs=replace(DREAM.signs, tensor=r"model\.layers\.0\.self_attn\.q_norm\.weight"),
        options={"block_size": 32},
    ),
    Family(
        "stable_diffcoder",
        LlamaForCausalLM,
        Signs((r"StableDiffcoder\w*", r"\w*stable_diffcoder")),
        configs.llama,
        mask=Token(("<[MASK_TOKEN]>",), 5),
        ends=(Token(("<[end▁of▁sentence]>",), 2),),
        accept_rule="B",
        training=BLOCK_CAUSAL,
        options={"block_size": 4, "accept_threshold": 0.95},
    ),
    Family(
        "illada",
        LlamaForCausalLM,
        Signs(("ILLaDAForCausalLM",)),
        configs.llama,
        mask=Token(("<[MASK]>",), 5),
        ends=(Token(("<[end▁of▁sentence]>",), 2),),
        training=BIDIRECTIONAL,
    ),
    replace(  # before `llada`, as its model_type is the same
        LLADA2,
        name="llada_moe",
        network=Qwen3MoeForCausalLM,
        signs=Signs(("LLaDAMoEModelLM",)),
        config=configs.llada_moe,
        weights=SINGLE_EXPERTS,
        training=BIDIRECTIONAL,
        options={},
    ),
    Family(
        "llada",
        LlamaForCausalLM,
        Signs(("LLaDAModelLM",), ("llada",)),
        configs.llada,
        weights=LLADA_NAMES,
        mask=Token(("<|mdm_mask|>",), 126336),
        ends=(Token(("<|endoftext|>",), 126081), Token(("<|eot_id|>",), 126348)),
        training=BIDIRECTIONAL,
        chat_template=LLADA_TEMPLATE,
        qkv_biased=Qwen2ForCausalLM,
    ),
    Family(
        "fast_dllm_v2",
        Qwen2ForCausalLM,
        Signs(("Fast_dLLM_QwenForCausalLM",), ("Fast_dLLM_Qwen",)),
        configs.qwen2,
        mask=Token(("|<MASK>|",), 151665),
        ends=(END_OF_TURN, END_OF_TEXT),
        head_shift=1,
        block_option="bd_size",
        training=SUB_BLOCKS,
        options={"bd_size": 32},
        chat_template=CHATML_TEMPLATE,
    ),
    SDAR,
    replace(
        SDAR,
        name="idlm",
        signs=replace(SDAR.signs, published=r"\bi-?dlm", fact=configs.CAUSAL_MASKS),
        config=configs.idlm,
        head_shift=1,
        training=CAUSAL,
        options={"block_size": 3},
    ),
    replace(WEDLM, name="wedlm_qwen3", network=Qwen3ForCausalLM, signs=replace(WEDLM.signs, fact=configs.QK_NORM)),
    WEDLM,
    SDLM,
    replace(
        SDAR,
        name="sdar_moe",
        network=Qwen3MoeForCausalLM,
        signs=Signs(("SDARMoeForCausalLM",), ("sdar_moe",)),
        config=configs.qwen3_moe,
        weights=SINGLE_EXPERTS,
    ),
    replace(
        SDAR,
        name="efficient_dlm",
        signs=Signs(("EfficientDLM",)),
        config=configs.efficient_dlm,
        weights=NEMOTRON_NAMES,
        mask=Token(("<|fim_pad|>",), 151662),
        training=PROMPT_IN_FULL,
        options={"block_size": 32, "buffer_size": 1, "inclusive": True},
    ),
    A2D_QWEN3,
    _bd3lm(A2D_QWEN3),
    A2D_QWEN2,
    _bd3lm(A2D_QWEN2),
    _a2d("Llama", LlamaForCausalLM, configs.llama, None),
    replace(  # trained from the same network, but with small blocks
        A2D_QWEN3,
        name="opdlm",
        signs=replace(A2D_QWEN3.signs, published="opdlm"),
        training=BLOCK_CAUSAL,
        options={"block_size": 4},
    ),
    LLADA2,
    replace(LLADA2, name="llada2_moe", signs=Signs()),
    replace(LLADA2, name="llada2_mini", signs=replace(LLADA2.signs, published=r"llada2\.0")),
    replace(
        LLADA2,
        name="llada2dot1_mini",
        signs=replace(LLADA2.signs, published=r"llada2\.1"),
        training=EDITS,
    ),
    replace(
        LLADA2,
        name="llada2_mini_dmax",
        signs=replace(LLADA2.signs, published="dmax"),
        decoding_strategy="dmax",
        training=EDITS,
    ),
    Family(
        "nemotron_labs_diffusion",
        Ministral3ForCausalLM,
        Signs(("NemotronLabsDiffusionModel",), ("nemotron_labs_diffusion",)),
        configs.nemotron_labs_diffusion,
        weights=NEMOTRON_NAMES,
        mask=Token(("<SPECIAL_100>",), 100),
        ends=(Token(("<|im_end|>",), 11), Token(("</s>",), 2)),
        training=JOINT,
        options={"block_size": 32, "accept_threshold": 0.9},
    ),
    Family(
        "diffusion_gemma",
        DiffusionGemmaForBlockDiffusion,
        Signs(("DiffusionGemmaForBlockDiffusion",), ("diffusion_gemma",)),
        configs.diffusion_gemma,
        ignored=(),
        masked=False,
        block_option="canvas_length",
        training=RANDOM_CANVAS,
    ),
    _native("qwen2", Qwen2ForCausalLM),
    _native("llama", LlamaForCausalLM),
    _native("qwen3", Qwen3ForCausalLM),
    _native("qwen3_moe", Qwen3MoeForCausalLM, configs.native_moe),
)
# Published networks that would be read as one of the families but decode differently: a regex for their names, classes
# and fields of config.json, and the reason.
UNSUPPORTED = {
    "ReFusion": (r"\brefusion", "it decodes slots of tokens in any order, at positions of their own"),
    "CDLM": (
        r"\bcdlm",
        "config.json describes a bidirectional network, but it was distilled to decode blocks after a cached prompt: to try "
        f"it, give its base as family, dream or llada, and training={PROMPT_IN_FULL!r}",
    ),
    "A2D-init": (r"-a2d-init\b", "it is an autoregressive network that was not yet trained with masks"),
    "LLaDA-V": (r"\bllava|\bllada-v\b", "it reads images"),
}
# An entry that names no strategy is decoded by the first one for its way of training.
FAMILIES: dict[str, Family] = {
    family.name: replace(family, decoding_strategy=family.decoding_strategy or TRAININGS[family.training][0])
    if family.training
    else family
    for family in _ENTRIES
}


@dataclass(frozen=True, slots=True)
class FamilyGroup(Plugins):
    """All families: those of this file, of installed entry points, and of users' files."""

    EXAMPLE = "Family(...)"

    def own(self) -> Texts:
        """Return the names in this file."""
        return tuple(FAMILIES)

    def values(self) -> tuple[Family, ...]:
        """Return all families except those of users' files. Those of entry points come first: they are more specific."""
        return (*[self.value(name) for name in self.available() if name not in FAMILIES], *FAMILIES.values())

    def value(self, given: object) -> Family:
        """Return a family.

        Args:
            given: A family, a name in this file, or a name that `found` accepts.

        Raises:
            ValueError: If it is none of these, or an error of the user's module.
        """
        if isinstance(given, str) and given in FAMILIES:
            return FAMILIES[given]
        constant, family = self.found(given) if isinstance(given, str) else ("it", given)
        if not isinstance(family, Family):
            raise ValueError(f"family {short(given)}: {constant} must be a name or a dlstep.models.Family, got {short(family)}")
        networks = dict.fromkeys(own.network for own in FAMILIES.values())
        if not issubclass(family.network, tuple(networks)):  # the attention of others may differ
            names = ", ".join(network.__name__ for network in networks)
            raise ValueError(
                f"family {family.name!r}: network must be one of {names}, or a class derived from one, got "
                f"{family.network.__name__}"
            )
        return family


PLUGINS = FamilyGroup("family", "FAMILY", "dlstep.models")


def read_facts(folder: Path) -> Json:
    """Return the content of config.json. Raises FileNotFoundError if the folder or the file is missing."""
    if not folder.is_dir():
        raise FileNotFoundError(f"checkpoint folder {str(folder)!r} does not exist: give the path of a local folder")
    path = folder / "config.json"
    if not path.is_file():
        raise FileNotFoundError(f"{folder} holds no config.json: it is not a checkpoint folder")
    return read_object(path)


def generation_facts(folder: Path) -> Json:
    """Return the content of generation_config.json; an empty dict if there is no such file."""
    path = folder / "generation_config.json"
    return read_object(path) if path.is_file() else {}


def name_of(folder: Path) -> str:
    """Return the folder's name, or `org/name` for a folder in the cache of a hub."""
    if folder.parent.name == "snapshots" and (parts := folder.parent.parent.name.split("--"))[0] == "models":
        return "/".join(parts[1:])
    return folder.name


def recognise(source: Source, facts: Json, given: object = None) -> Family:
    """Return the given family, which is a value or a name; if it is None, the family of the checkpoint.

    Raises ValueError for an unknown name, and for a folder that fits no family.
    """
    family = _detect(source, facts) if given is None else PLUGINS.value(given)
    if family.qkv_biased is not None and facts.get("include_qkv_bias"):
        return replace(family, network=family.qkv_biased)
    return family


def _detect(source: Source, facts: Json) -> Family:
    """Return the family that fits config.json.

    If several fit, return the one whose tensor the files contain, else the first whose field has a value, else the first
    that the checkpoint's name matches, else the first that requires none of these. Raises ValueError if there is none.
    """
    folder = source.path
    named = list(_class_names(facts))
    names = " ".join(_published_names(folder, facts))
    for known, (pattern, reason) in UNSUPPORTED.items():
        if re.search(pattern, " ".join((names, *named, *facts)), re.IGNORECASE):
            raise ValueError(f"{known} is not supported: {reason}. If {folder} holds another network, give family")
    candidates = [family for family in PLUGINS.values() if _fits(family.signs, facts.get("model_type"), named)]
    if not candidates:
        raise ValueError(
            f"model_type {facts.get('model_type')!r:.80} and architecture {', '.join(named)[:160] or 'none'} are "
            "not supported: choose a checkpoint of a family that `dlstep models` lists, or give one of these, or a file of "
            "yours, as family if it is built like them (code that a checkpoint brings is never run); the folder is "
            f"{folder}"
        )
    if (by_tensor := [family for family in candidates if family.signs.tensor]) and _holds(source, by_tensor[0]):
        return by_tensor[0]
    stated = {**generation_facts(folder), **facts}
    if stating := [family for family in candidates if stated.get(family.signs.fact or "") not in (None, False)]:
        return stating[0]
    for family in candidates:
        if family.signs.published and re.search(family.signs.published, names, re.IGNORECASE):
            return family
    if others := [family for family in candidates if not (family.signs.published or family.signs.tensor or family.signs.fact)]:
        return others[0]
    known = " or ".join(f"{family.name} (named {family.signs.published})" for family in candidates)
    raise ValueError(
        f"give family, which can be {known}: neither config.json nor the name of {folder}, of model_type "
        f"{facts.get('model_type')!r:.80}, shows how the network was trained"
    )


def _fits(signs: Signs, model_type: object, named: list[str]) -> bool:
    """Return whether config.json, with this `model_type` and these class names, fits the signs."""
    parts = [part for name in named for part in name.split(".")]
    return model_type in signs.model_types or any(re.fullmatch(sign, part) for sign in signs.classes for part in parts)


def _class_names(facts: Json) -> Iterator[str]:
    """Yield the class names in config.json; a class of the folder's own code has its module's name in front."""
    names = (*(facts.get("architectures") or ()), *(facts.get("auto_map") or {}).values())
    yield from (name for name in names if isinstance(name, str))


def _published_names(folder: Path, facts: Json) -> Iterator[str]:
    """Yield the names of the checkpoint: that in config.json, its folder's, and that of a download cache."""
    if isinstance(known := facts.get("_name_or_path"), str):
        yield known
    yield name_of(folder.resolve())
    yield from (part for part in folder.absolute().parts if part.startswith("models--"))


def block_size_of_name(folder: Path, facts: Json) -> int | None:
    """Return N of a checkpoint whose published name ends in -bN, such as SDAR-4B-Chat-b32; None for other names."""
    found = [re.search(r"-b([1-9]\d*)\b", name) for name in _published_names(folder, facts)]
    return next((int(match[1]) for match in found if match is not None), None)


def _holds(source: Source, family: Family) -> bool:
    """Return whether the files hold a tensor that is a sign of this family; False if there are no files."""
    try:
        tensors = source.contents().tensors
    except FileNotFoundError:
        return False
    return any(re.fullmatch(family.signs.tensor or "", name) for name in tensors)
