"""`dlstep generate`: answer prompts."""

import re
import sys
from dataclasses import KW_ONLY, asdict, dataclass, fields, replace
from pathlib import Path
from textwrap import fill
from typing import Any

from .. import tiny
from ..core import Json, Refused, SamplingParams, short
from ..engine.config import EngineConfig, engine_config
from ..llm import LLM
from ..text.chat import DROPS
from ..text.output import Output, Prompt
from ..text.prompts import ids_of
from ..text.words import WIDTH, harmless, printable
from ..views.progress_bars import drawing, waiting_line
from .options import OF_SESSIONS, OF_STRATEGY, ArgumentParser, Namespace, engine_options, json_text

EXAMPLES = """dlstep generate \\
  'Max has 53 shells. Later Max buys 39 more. How many shells does Max have?'
dlstep generate 'first prompt' 'second prompt' --json
dlstep generate 'a prompt' --decoding_strategy d2f --accept_threshold 0.7
dlstep generate 'a prompt' --rule quota --steps_per_block 4
dlstep generate --decoding_strategy dual_cache --rule quota --help
dlstep generate 'a prompt' --decoding_strategy multi_bd --sampling_mode edit
dlstep generate 'a prompt' --model /path/to/checkpoint --device cuda
dlstep generate 'a prompt' --temperature 0.8 --seed 1
dlstep generate 'a prompt' --config options.yaml --max_tokens 32
dlstep generate 'a question' --chat --system 'Answer briefly.' --model org/x
dlstep generate 'a prompt' --model org/x --lora_path /path/to/adapter
dlstep generate 'a prompt' --stop '[;, END]'
dlstep generate 'a prompt' --json_schema schema.json
dlstep generate 'a prompt' --pinned '{"5": 42, "9": " shells"}'
dlstep generate 'def add(a, b):' --suffix 'print(add(1, 2))' --model org/x"""


OF_REQUEST = (*OF_STRATEGY, "pinned", "suffix")  # both may be texts, so `--pinned` and `--suffix` are separate
PINS = '{"5": 42, "9": " shells"}'
RATIOS = ("tokens_per_forward", "tokens_per_step")  # properties of an output


@dataclass(frozen=True)
class GenerateCommand:
    """Answer prompts, all of them decoded together."""

    prompts: tuple[str, ...]
    """Texts to continue. For embedded models, a missing newline at the end is added."""
    _: KW_ONLY
    chat: bool = False
    """Treat each prompt as a user's message, not as text to continue."""
    system: str | None = None
    """With --chat: a system message before each prompt."""
    chat_template_kwargs: Json | None = None
    """With --chat: variables of the chat template, like '{"enable_thinking": false}'."""
    json: bool = False
    """Print a JSON list of the outputs, and nothing else, on stdout."""
    progress: bool = True
    """Draw a progress bar where stderr is a terminal."""
    pinned: Any = None
    """Pinned tokens: offsets in the answer, each with an id or a text, like '{"5": 42, "9": " shells"}'."""
    suffix: str | None = None
    """Text after the gap that the answer fills (dreamon)."""


COMMAND = GenerateCommand


def add_options(parser: ArgumentParser) -> None:
    """Add the options of the engine and of a request."""
    # `seed` and `processors` are set in the request: as there is only one, setting them in the engine would do the same.
    parser.add_options(EngineConfig, "engine", without=("seed", "processors", *OF_SESSIONS, *OF_STRATEGY))
    parser.add_options(SamplingParams, "sampling", without=OF_REQUEST)


def run(options: Namespace) -> int:
    """Print the answers. Return 1 if a request was rejected or failed, else 0."""
    params = sampling_params(options)
    if not options.chat and (options.system is not None or options.chat_template_kwargs is not None):
        raise ValueError("--system and --chat_template_kwargs apply only to conversations: add --chat")
    for name in ("top_logprobs", "step_map"):
        if getattr(options, name) and not options.json:
            raise ValueError(f"--{name} {getattr(options, name)} is printed only as JSON: add --json")
    pins = None if options.pinned is None else pins_of(options.pinned)
    config = engine_config(engine_options(options, GenerateCommand, SamplingParams))
    with drawing(enabled=options.progress):  # show something at once: the imports take seconds
        with waiting_line(f"loading {config.model or 'an embedded model'}"):
            llm = LLM.from_config(config)
        prompts = prompts_of(llm, options)
        if options.suffix:
            params = replace(params, suffix=llm.suffix(options.suffix))
        if options.max_tokens is None:
            params = replace(params, max_tokens=llm.engine.max_tokens)
        else:
            for prompt in prompts:
                ids_of(llm.engine, prompt, params, explicit=True)
        if pins is not None:
            params = replace(params, pinned=llm.pins(pins))
        outputs = llm.generate(prompts, params)
    if tiny.is_embedded(llm.engine.folder) and not all(map(tiny.is_story, options.prompts)):
        print(fill(f"dlstep: {tiny.PURPOSE}; {tiny.REMEDY}", WIDTH), file=sys.stderr)
    if options.json:
        print(json_text([*map(_as_dict, outputs)]))
    for number, output in enumerate(outputs, 1):
        if not options.json:
            print(shown(output.text))
        print(statistics(output, number if len(outputs) > 1 else None), file=sys.stderr)
    return int(any(output.finish_reason in ("rejected", "error") for output in outputs))


def _as_dict(output: Output) -> Json:
    """Return an output and its ratios as JSON data."""
    step_map = output.step_map and output.step_map.to_json()
    ratios = {name: getattr(output, name) for name in RATIOS}
    return asdict(replace(output, step_map=None)) | {"step_map": step_map} | ratios


def pins_of(pins: Any) -> dict[int, Any]:
    """Return the tokens of `--pinned` by offset, with JSON's text keys converted to int.

    Raises Refused if it is not a mapping of offsets.
    """
    if not isinstance(pins, dict) or not all(re.fullmatch("-?[0-9]{1,18}", str(offset)) for offset in pins):
        message = f"it takes offsets in the answer, each with a token id or a text, like '{PINS}', got {short(pins)}"
        raise Refused("pinned", "invalid_type", message)
    return {int(offset): token for offset, token in pins.items()}


def sampling_params(options: Namespace) -> SamplingParams:
    """Return the request options. Raises ValueError for values out of range."""
    values = {field.name: options[field.name] for field in fields(SamplingParams) if field.name not in OF_REQUEST}
    if values["max_tokens"] is None:
        del values["max_tokens"]
    for name, begin in (("json_schema", r"\s*\{"), ("grammar", r"(?s).*\n|.*::=|.*:\s")):
        if isinstance(values[name], str):
            values[name] = text_in(name, values[name], begin)
    return SamplingParams(**values)


def text_in(name: str, source: str, begin: str) -> str:
    """Return `source` if the regex `begin` matches at its start, otherwise the text of the file at this path.

    Raises Refused, for the option `name`, if the file cannot be read.
    """
    try:
        return source if re.match(begin, source) else Path(source).read_text("utf-8-sig")
    except (OSError, ValueError) as error:
        message = f"it takes a text or the path of a file; the file {short(source)} cannot be read: {error}"
        raise Refused(name, "invalid_value", message) from error


def shown(text: str) -> str:
    """Return an answer for printing: unchanged for files and pipes, without control characters on terminals."""
    return harmless(text) if sys.stdout.isatty() else text


def prompts_of(llm: LLM, options: Namespace) -> list[Prompt]:
    """Return the prompts; with `--chat`, each as a conversation in the format of the chat template."""
    if not options.chat:
        return options.prompts
    first = [] if options.system is None else [{"role": "system", "content": options.system}]
    if first and DROPS in (llm.engine.chat_template or ""):
        raise ValueError(f"--system: the chat template of {llm.engine.name} drops messages: leave --system out")
    conversations = [[*first, {"role": "user", "content": prompt}] for prompt in options.prompts]
    return [llm.chat_prompt(conversation, options.chat_template_kwargs) for conversation in conversations]


def statistics(output: Output, number: int | None) -> str:
    """Return one line about an output; an error names the number of its prompt, if there are several."""
    if output.error:
        place = "" if number is None else f"prompt {number} "
        return f"dlstep: {place}{output.finish_reason}: {printable(output.error)}"
    return ": ".join(filter(None, (output.cost, output.why_empty)))
