"""Latency of other users' requests to a server on a CPU, while one user forces calls of a large tool.

The load of the other users is constant. Phases without and with tool calls alternate. The medians of their
maxima and 99th percentiles are compared, because other programs may disturb a single phase. The first request of
each phase with the tool has a schema that the server has not seen, so the server compiles it and prepares its masks.
The phase's later requests follow without a pause.

With `--vocabulary`, the model is a small one with random weights and a tokenizer of the 131,072 ids of a file of
the package mistral-common (`tekken_240911.json`), otherwise `tiny-bd`.
"""

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import replace
from itertools import count
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from threading import Event
from time import perf_counter
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import torch
from tokenizers import Tokenizer
from tokenizers.decoders import ByteLevel as ByteDecoder
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import ByteLevel
from transformers import PreTrainedTokenizerFast

from . import entry
from .schema_answers import VOCABULARY, pieces_of, quantile
from .serving import serving, write_folder
from .shapes import SHAPES, SMALL, Shape

NAME = "API-post-page"
PROMPT = "Max has 53 shells. Later Max buys 39 more. How many shells does Max have?\n"
USERS, SECONDS = 3, 12.0
TOKENS, TOOL_TOKENS = 32, 256


def small_shape(vocabulary: int) -> Shape:
    """Return the shape of a small SDAR network."""
    shape = SHAPES["sdar-1.7b"]
    return replace(shape, name="small", facts={**shape.facts, **SMALL, "vocab_size": vocabulary})


def byte_tokenizer(pieces: Sequence[bytes], special: Mapping[str, int]) -> PreTrainedTokenizerFast:
    """Return a tokenizer whose ids have the bytes `pieces`. It splits texts into bytes; ids without bytes have unused names."""
    shown = [*range(33, 127), *range(161, 173), *range(174, 256)]
    hidden = [byte for byte in range(256) if byte not in shown]  # written as the letters from 256 on
    letters = {byte: chr(byte) for byte in shown} | {byte: chr(256 + place) for place, byte in enumerate(hidden)}
    names = ["".join([letters[byte] for byte in piece]) or f"<unused {token}>" for token, piece in enumerate(pieces)]
    for name, token in special.items():
        names[token] = f"<{name}>"
    backend = Tokenizer(BPE({name: token for token, name in enumerate(names)}, []))
    backend.pre_tokenizer = ByteLevel(add_prefix_space=False)  # pyright: ignore[reportAttributeAccessIssue]
    backend.decoder = ByteDecoder()  # pyright: ignore[reportAttributeAccessIssue]
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, **{name: f"<{name}>" for name in special})
    tokenizer.add_special_tokens({"extra_special_tokens": [name for name in names if name.startswith("<unused ")]})
    return tokenizer


def write_model(folder: Path, pieces: Sequence[bytes]) -> None:
    """Write a small checkpoint with random weights and a tokenizer whose ids have the bytes `pieces`."""
    write_folder(folder, small_shape(len(pieces)), torch.device("cpu"), torch.float32)
    facts = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    special = {"mask_token": facts["dlstep"]["mask_token_id"], "eos_token": facts["eos_token_id"]}
    byte_tokenizer(pieces, special).save_pretrained(folder)


def seconds_of(url: str, body: Mapping[str, Any]) -> float:
    """Return the seconds that a request takes. Raises ValueError unless it succeeds."""
    begun = perf_counter()
    content, headers = json.dumps({"prompt": PROMPT, **body}).encode(), {"Content-Type": "application/json"}
    try:
        with urlopen(Request(f"{url}/v1/completions", content, headers), timeout=120.0) as answer:
            answer.read()
    except HTTPError as error:
        raise ValueError(f"the server answered {error.code}: {error.read().decode()}") from error
    return perf_counter() - begun


def phase(url: str, seconds: float, tool: Mapping[str, Any] | None) -> tuple[list[float], int]:
    """Return the seconds of each request of the other users, and the number of tool calls that were answered."""
    over, end = Event(), perf_counter() + seconds

    def user(number: int) -> list[float]:
        bodies = ({"max_tokens": TOKENS, "seed": 1000 * number + each} for each in count())
        return [seconds_of(url, next(bodies)) for _ in iter(lambda: perf_counter() < end, False)]

    def calls() -> int:
        made = 0
        while tool is not None and not (made and over.is_set()):
            seconds_of(url, {"max_tokens": TOOL_TOKENS, "seed": made, "structured_outputs": {"json": tool}})
            made += 1
        return made

    with ThreadPoolExecutor(USERS + 1) as threads:
        calling = threads.submit(calls)
        took = [each for part in threads.map(user, range(USERS)) for each in part]
        over.set()
        return took, calling.result()


def compared(url: str, schema: Mapping[str, Any], phases: int, seconds: float) -> dict[str, Any]:
    """Return the row of phases without and with calls of a tool."""
    phase(url, seconds / 2, None)  # warm up
    parts: dict[str, list[list[float]]] = {"alone": [], "beside": []}
    calls = 0
    for number in range(phases):
        parts["alone"].append(phase(url, seconds, None)[0])
        took, made = phase(url, seconds, {**schema, "title": f"Tool {number}"})
        parts["beside"].append(took)
        calls += made
    row: dict[str, Any] = {"requests": sum(map(len, parts["alone"] + parts["beside"])), "calls": calls}
    figures = {"p50": lambda each: quantile(each, 0.5), "p99": lambda each: quantile(each, 0.99), "max": max}
    for name, of in figures.items():
        alone, beside = (1e3 * median(map(of, parts[kind])) for kind in ("alone", "beside"))
        row |= {f"alone_{name}_ms": alone, f"beside_{name}_ms": beside, f"{name}_ratio": beside / alone}
    return row


def measure_neighbors(tools: str, name: str, vocabulary: str, phases: int, seconds: float) -> Iterator[dict[str, Any]]:
    """Yield one row."""
    lines = [json.loads(line) for line in Path(tools).read_text(encoding="utf-8").splitlines()]
    schema = next(line["schema"] for line in lines if line["name"] == name)
    with TemporaryDirectory() if vocabulary else nullcontext("") as place:
        options: dict[str, object] = {"device": "cpu"}
        if vocabulary:
            write_model(Path(place), pieces_of(Path(vocabulary)))
            options |= {"model": place, "max_model_len": 1024}
        with serving(options, os.environ) as (url, _):
            yield {"ids": VOCABULARY if vocabulary else 0, **compared(url, schema, phases, seconds)}


COLUMNS = ("requests", "calls", "alone_p99_ms", "beside_p99_ms", "p99_ratio", "alone_max_ms", "beside_max_ms", "max_ratio")

if __name__ == "__main__":
    entry.run(
        __doc__,
        measure_neighbors,
        COLUMNS,
        tools=("tool_schemas_200.jsonl", "A file with a JSON object a line: `name` and `schema` of a tool."),
        name=(NAME, "The tool that one user calls."),
        vocabulary=("", "A file with the bytes of each id."),
        phases=(5, "Phases of each kind."),
        seconds=(SECONDS, "Seconds of a phase."),
    )
