"""A model's own script and dlstep, on one device and with random weights in one shape.

`--path` is the file of the script, which you fetch; it is imported, so only give code that you trust. It runs over the
transformers class of the family, with torch's attention and the caches that the script expects, not compiled. Both decode
one request of `context` tokens. The script unmasks `tokens_per_pass` tokens per forward pass, and dlstep as many as the
script had on average with all of its passes counted, but at least 1.

Files: `generate.py` of ML-GSAI/LLaDA (llada) and of JetAstra/SDAR (sdar); `llada/generate.py` (fast_dllm, its dual cache;
imports einops) and `dream/model/generation_utils.py` (dream) of NVlabs/Fast-dLLM. diffusion_gemma runs transformers' loop.
"""

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from runpy import run_path
from time import perf_counter
from types import SimpleNamespace
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from transformers import AttentionInterface, PreTrainedModel

from dlstep.engine.devices import find_device
from dlstep.models.families import FAMILIES
from dlstep.models.transformers_internals import NO_MASK, cache_argument, new_model

from . import entry
from .decode import DecodeLoad, measure_shape
from .device import Ceilings
from .shapes import SHAPES, Shape

ATTENTION = "own_script"  # the name that is registered with transformers


def attend(
    module: nn.Module, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, **named: Any
) -> tuple[Tensor, None]:
    """Attend to all keys, or to those that `visible` marks, a mask [batch, 1, rows, keys]."""
    del module, mask
    product, visible = nn.functional.scaled_dot_product_attention, named.get("visible")
    return product(query, key, value, attn_mask=visible, scale=named["scaling"], enable_gqa=True).transpose(1, 2), None


class ScriptCache:
    """Keys and values as scripts use them: appended and kept, appended and forgotten, or replaced at some positions."""

    is_compileable = False

    def __init__(self) -> None:
        self.held: dict[int, tuple[Tensor, Tensor]] = {}
        self.stores = True
        self.replaced: Tensor | None = None

    def update(self, keys: Tensor, values: Tensor, layer: int, *_: object, **__: object) -> tuple[Tensor, Tensor]:
        """Return all keys and values [batch, heads, positions, head_dim] of a layer; layers call this with new ones."""
        held = self.held.get(layer)
        if held is not None and self.replaced is not None:
            where = self.replaced
            keys, values = held[0].index_copy_(2, where, keys), held[1].index_copy_(2, where, values)
        elif held is not None:
            keys, values = torch.cat((held[0], keys), dim=2), torch.cat((held[1], values), dim=2)
        if self.stores:
            self.held[layer] = keys, values
        return keys, values

    def get_seq_length(self, layer: int = 0) -> int:
        """Return the number of stored positions."""
        return self.held[layer][0].shape[2] if layer in self.held else 0


class ScriptNetwork:
    """A transformers network that is called as scripts call their models; `passes` counts the calls."""

    def __init__(self, network: PreTrainedModel, mask_id: int) -> None:
        self.network, self.config, self.device = network, network.config, network.device
        self.mask_id, self.passes = mask_id, 0
        self._caches: WeakKeyDictionary[Any, ScriptCache] = WeakKeyDictionary()

    def eval(self) -> "ScriptNetwork":
        """Return the network itself, which never trains."""
        return self

    def __call__(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | str | None = None,
        position_ids: Tensor | None = None,
        past_key_values: Any = None,
        *,
        use_cache: bool = False,
        store_kv: bool = True,
        replace_position: Tensor | None = None,
    ) -> SimpleNamespace:
        """Return logits [batch, rows, vocabulary] and the cache. Only masks of three dimensions, [1, rows, keys], are read."""
        self.passes += 1
        cache, past = None, 0
        if use_cache and (past_key_values is None or isinstance(past_key_values, ScriptCache)):
            cache = past_key_values or ScriptCache()
        elif use_cache:  # a cache of transformers, which the script made
            cache = self._caches.setdefault(past_key_values, ScriptCache())
        if cache is not None:
            cache.stores, cache.replaced = store_kv, None
            past = cache.get_seq_length()
            if replace_position is not None:
                cache.replaced = position_ids = replace_position[0].nonzero()[:, 0]
        if position_ids is None:
            position_ids = torch.arange(past, past + input_ids.shape[1], device=self.device)
        mask = attention_mask if isinstance(attention_mask, Tensor) and attention_mask.ndim == 3 else None
        answer = self.network(
            input_ids=input_ids,
            attention_mask=NO_MASK,
            position_ids=position_ids.view(1, -1),
            use_cache=use_cache,
            visible=None if mask is None else mask.bool()[:, None],
            **{cache_argument(self.network): cache},
        )
        answer.logits[..., self.mask_id] = -torch.inf  # no script ends if the mask itself is predicted
        return SimpleNamespace(logits=answer.logits, past_key_values=cache)


@dataclass(frozen=True, slots=True)
class ScriptLoad:
    """One answer of `answer` tokens after `prompt` [1, context], `tokens_per_pass` of them per forward pass."""

    prompt: Tensor
    answer: int
    tokens_per_pass: int
    mask_id: int

    @property
    def steps(self) -> int:
        """Return the number of passes that unmask."""
        return self.answer // self.tokens_per_pass


def _llada(module: Any, network: ScriptNetwork, load: ScriptLoad, name: str = "generate") -> None:
    sizes = {"steps": load.steps, "gen_length": load.answer, "block_length": min(32, load.answer)}
    getattr(module, name)(network, load.prompt, **sizes, mask_id=load.mask_id)


def _dream(module: Any, network: ScriptNetwork, load: ScriptLoad) -> None:
    module.DreamGenerationConfig.validate = lambda *_, **__: None  # does nothing, without later arguments of transformers
    runner = type("Runner", (ScriptNetwork, module.DreamGenerationMixin), {})(network.network, load.mask_id)
    special = {"mask_token_id": load.mask_id, "pad_token_id": -1, "bos_token_id": -1, "eos_token_id": -1}
    length = load.prompt.shape[1] + load.answer
    config = module.DreamGenerationConfig(max_length=length, steps=load.steps, alg="maskgit_plus", **special)
    runner.diffusion_generate(load.prompt, config, max_length=length)
    network.passes += runner.passes


def _sdar(module: Any, network: ScriptNetwork, load: ScriptLoad) -> None:
    blocks = {"block_length": 4 * load.tokens_per_pass, "denoising_steps": 4, "remasking_strategy": "low_confidence_static"}
    module.block_diffusion_generate(network, {"input_ids": load.prompt}, load.mask_id, gen_length=load.answer, **blocks)


def _gemma(module: Any, network: ScriptNetwork, load: ScriptLoad) -> None:
    del module

    def count(*_: object) -> None:
        network.passes += 1

    model: Any = network.network
    hook = model.model.decoder.register_forward_pre_hook(count)
    canvas = network.config.canvas_length
    model.generate(load.prompt, max_new_tokens=load.answer, max_denoising_steps=max(1, canvas // load.tokens_per_pass))
    hook.remove()


Run = Callable[[Any, ScriptNetwork, ScriptLoad], None]
SCRIPTS: dict[str, tuple[str, Run]] = {
    "llada": ("llada-8b", _llada),
    "fast_dllm": ("llada-8b", partial(_llada, name="generate_with_dual_cache")),
    "dream": ("dream-7b", _dream),
    "sdar": ("sdar-1.7b", _sdar),
    "diffusion_gemma": ("diffusion-gemma-26b", _gemma),
}


def imported(path: Path) -> SimpleNamespace:
    """Run a file of fetched code, which may import files next to it, and return its names."""
    sys.path.insert(0, str(path.parent))
    return SimpleNamespace(**run_path(str(path), run_name="fetched_script"))


def script_network(shape: Shape, device: torch.device, dtype: torch.dtype, mask_id: int) -> ScriptNetwork:
    """Return a network of this shape with random weights."""
    family = FAMILIES[shape.family]
    config_class: Any = family.network.config_class
    AttentionInterface.register(ATTENTION, attend)
    attention = ATTENTION if family.masked else "sdpa"
    network = new_model(family.network, config_class(**family.config(shape.facts)), dtype, attention, device)
    return ScriptNetwork(network.eval(), mask_id)


@torch.no_grad()
def timed(run: Run, module: Any, network: ScriptNetwork, load: ScriptLoad) -> tuple[float, int]:
    """Return the seconds and the forward passes of a script's loop, after a shorter run that warms up."""
    run(module, network, replace(load, answer=min(load.answer, 32)))
    network.passes = 0
    load.prompt.sum().item()  # waits for the device
    begin = perf_counter()
    run(module, network, load)
    load.prompt.sum().item()
    return perf_counter() - begin, network.passes


def measure_script(
    script: str, module: Any, shape: Shape, load: ScriptLoad, dtype: torch.dtype, ceilings: Ceilings | None = None
) -> dict[str, Any]:
    """Return the row of a script and of dlstep; `faster` compares tokens per second."""
    device, context = load.prompt.device, load.prompt.shape[1]
    seconds, passes = timed(SCRIPTS[script][1], module, script_network(shape, device, dtype, load.mask_id), load)
    if device.type == "cuda":
        torch.cuda.empty_cache()
    same = DecodeLoad(1, context, max(1.0, load.answer / passes))
    (row,) = measure_shape(shape, [same], device=device, dtype=dtype, ceilings=ceilings)
    return {
        "script": script,
        "shape": shape.name,
        "context": context,
        "answer": load.answer,
        "passes": passes,
        "script_pass_ms": 1e3 * seconds / passes,
        "step_ms": row["step_us"] / 1e3,
        "script_tokens_per_s": load.answer / seconds,
        "tokens_per_s": row["tokens_per_s"],
        "faster": row["tokens_per_s"] * seconds / load.answer,
    }


def measure(script: str, path: str, shape: str, context: int, answer: int, tokens_per_pass: int) -> Iterator[dict[str, Any]]:
    """Yield one row, measured on a CUDA device if there is one. Raises ValueError for a missing path."""
    if script not in SCRIPTS:
        raise ValueError(f"--script {script} is unknown: give one of {', '.join(SCRIPTS)}")
    if not path and script != "diffusion_gemma":
        raise ValueError(f"--script {script} needs the file of the script: fetch its code and give --path")
    device = torch.device(find_device(None))
    chosen = SHAPES[shape or SCRIPTS[script][0]]
    part = chosen.facts.get("text_config", chosen.facts)
    prompt = torch.randint(part["vocab_size"] - 2, (1, context), device=device)
    load = ScriptLoad(prompt, answer, tokens_per_pass, part["vocab_size"] - 1)
    dtype = torch.bfloat16 if device.type == "cuda" else torch.float32
    yield measure_script(script, imported(Path(path)) if path else None, chosen, load, dtype)


COLUMNS = ("script", "shape", "passes", "script_pass_ms", "step_ms", "script_tokens_per_s", "tokens_per_s", "faster")

if __name__ == "__main__":
    entry.run(
        __doc__,
        measure,
        COLUMNS,
        script=("llada", f"One of {', '.join(SCRIPTS)}."),
        path=("", "The file of the script."),
        shape=("", "A shape of the same family; empty: the script's."),
        context=(512, "Tokens of the prompt."),
        answer=(128, "Tokens of the answer."),
        tokens_per_pass=(1, "Tokens that the script unmasks per forward pass."),
    )
