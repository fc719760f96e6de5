"""How answers under JSON schemas end: by `stop`, or by `length` because strings took all tokens.

The schemas are every third one of the file `tool_schemas_200.jsonl` in the folder DLSTEP_DATA: one JSON object a
line with `schema`, the parameters of a tool. An embedded model answers each with the default of `end_reserve` and with 1.
"""

import json
import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from dlstep import LLM, SamplingParams

from . import entry

FILE = "tool_schemas_200.jsonl"
PROMPT = "Max has 53 shells. How many? "


def strings_in(value: Any) -> Iterator[str]:
    """Yield the strings of a JSON value that are not names of properties."""
    if isinstance(value, str):
        yield value
    for part in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from strings_in(part)


def measure_endings(limit: int, max_tokens: int) -> Iterator[dict[str, Any]]:
    """Yield one row for each temperature and reserve."""
    folder = os.environ.get("DLSTEP_DATA")
    if folder is None:
        raise SystemExit(f"set DLSTEP_DATA to the folder of {FILE}")
    lines = (Path(folder) / FILE).read_text(encoding="utf-8").splitlines()[::3][:limit]
    llm = LLM()
    for temperature in (0.0, 1.0):
        for reserve in (None, 1):
            ends, strings = Counter[str](), list[str]()
            for seed, line in enumerate(lines):
                schema = json.loads(line)["schema"]
                params = SamplingParams(
                    max_tokens=max_tokens, temperature=temperature, seed=seed, json_schema=schema, end_reserve=reserve
                )
                (output,) = llm.generate(PROMPT, params)
                ends[str(output.finish_reason)] += 1
                strings += strings_in(output.parsed) if output.finish_reason in ("stop", "length") else ()
            yield {
                "temperature": temperature,
                "end_reserve": "default" if reserve is None else reserve,
                **ends,
                "strings": len(strings),
                "empty": strings.count(""),
            }


if __name__ == "__main__":
    entry.run(
        __doc__,
        measure_endings,
        limit=(60, "Most schemas to read."),
        max_tokens=(256, "Most tokens of an answer."),
    )
