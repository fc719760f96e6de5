"""lm_eval with dlstep as a model in its own process: `dlstep-lm-eval run --model dlstep ...`, its arguments unchanged.

lm_eval 0.4 looks for models in its own list only, so this command puts one there and then is `lm_eval`.
"""

import sys
from collections.abc import Mapping, Sequence as Items
from typing import Any

import torch
from lm_eval.api.model import LM  # pyright: ignore[reportMissingImports]
from lm_eval.api.registry import register_model  # pyright: ignore[reportMissingImports]

from ..chat import check_conversation
from ..config import engine_config
from ..core import DlstepError, SamplingParams
from ..core.checks import short
from ..llm import LLM
from ..rendering import render

OWN = ("batch_size", "max_batch_size")  # of lm_eval: dlstep batches all requests by itself, up to max_num_reqs
TOKENS = 256  # of an answer, where the task says nothing
NO_LIKELIHOOD = (
    "dlstep answers `generate_until` tasks only: a model that decodes in parallel gives a text no likelihood from left "
    "to right. Choose a task that generates, such as gsm8k"
)
TAKEN = ("temperature", "top_k", "top_p", "min_p", "seed", "ignore_eos", "max_nfe", "max_repetition_run")


@register_model("dlstep")
class DlstepLM(LM):
    """A model of lm_eval. `--model_args` are the options of `LLM`, as `model=/path/to/checkpoint,accept_threshold=0.9`."""

    def __init__(self, **options: Any) -> None:
        super().__init__()
        known = {name: value for name, value in options.items() if name not in OWN}
        if "pretrained" in known:  # lm_eval's own word
            known["model"] = known.pop("pretrained")
        if str(known.get("device")).startswith("cuda") and not torch.cuda.is_available():
            del known["device"]  # lm_eval says cuda:0 where nobody said anything
        self._llm = LLM.from_config(engine_config(known))
        self._chat = False

    def generate_until(self, requests: Items[Any], disable_tqdm: bool = False) -> list[str]:
        """The answers to all requests, decoded together."""
        asked = [request.args for request in requests]
        prompts = [self._ids(context) if self._chat else context for context, _ in asked]
        params = [params_of(wanted) for _, wanted in asked]
        outputs = self._llm.generate(prompts, params, progress=not disable_tqdm)
        for output in outputs:
            if output.finish_reason in ("rejected", "error"):
                raise ValueError(f"dlstep cannot answer {short(output.prompt)}: {output.error}")
        return [output.text for output in outputs]

    def loglikelihood(self, requests: Items[Any], disable_tqdm: bool = False) -> list[tuple[float, bool]]:
        """Raise: a diffusion language model has no probability of a given text at hand."""
        raise DlstepError(NO_LIKELIHOOD)

    def loglikelihood_rolling(self, requests: Items[Any], disable_tqdm: bool = False) -> list[float]:
        """Raise, as `loglikelihood` does."""
        raise DlstepError(NO_LIKELIHOOD)

    @property
    def tokenizer_name(self) -> str:
        """A name for the cache of requests."""
        return self._llm.engine.name

    def chat_template(self, chat_template: bool | str = False) -> str | None:
        """The template of the checkpoint or of its family; None unless conversations are asked for."""
        if chat_template is False:
            return None
        tokenizer = self._llm.engine.tokenizer
        own = (tokenizer.chat_template if tokenizer is not None else None) or self._llm.engine.chat_template
        if not isinstance(own, str):
            raise ValueError("--apply_chat_template needs a chat template, and this model has none")
        return own

    def apply_chat_template(self, chat_history: list[dict[str, str]], add_generation_prompt: bool = True) -> str:
        """A conversation as the text that the assistant's next turn follows."""
        del add_generation_prompt
        check_conversation(chat_history)
        self._chat = True  # the text has its special tokens already
        template, tokenizer = self.chat_template(True), self._llm.engine.tokenizer
        assert template is not None and tokenizer is not None, "there is a template"
        return render(template, chat_history, tokenizer.special_tokens_map)

    def _ids(self, text: str) -> list[int]:
        tokenizer = self._llm.engine.tokenizer
        assert tokenizer is not None, "there was a template"
        return tokenizer.encode(text, add_special_tokens=False)


def params_of(wanted: Mapping[str, Any]) -> SamplingParams:
    """Sampling parameters of a request of lm_eval. Raises ValueError for one that has no meaning here."""
    given = dict(wanted)
    until = given.pop("until", ())
    most = given.pop("max_gen_toks", given.pop("max_tokens", TOKENS))
    options = given.pop("dlstep", {})
    if given.pop("do_sample", True) is False:
        given["temperature"] = 0.0
    if unknown := sorted(set(given) - set(TAKEN)):
        raise ValueError(f"generation_kwargs: {unknown[0]}={short(given[unknown[0]])} means nothing to dlstep: leave it out")
    stop = (until,) if isinstance(until, str) else tuple(text for text in until if text)
    return SamplingParams(max_tokens=most, stop=stop, strategy_options=options, **given)


def main() -> None:
    """Be `lm_eval`; wrong values, and tasks that cannot be answered, end it with a sentence."""
    from lm_eval.__main__ import cli_evaluate  # pyright: ignore[reportMissingImports]

    try:
        cli_evaluate()
    except (ValueError, DlstepError) as error:
        sys.exit(f"dlstep-lm-eval: error: {error}")
