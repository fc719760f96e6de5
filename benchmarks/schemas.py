"""Structured output for real JSON schemas: how many compile, how fast, and whether what they allow conforms.

The schemas are those of the file `schemas_300.jsonl` in the folder DLSTEP_DATA: one JSON object a line with
`name`, `schema` and `tests`, instances (`data`) that are `valid` or not. Each schema is compiled with a
synthetic vocabulary, in a process with the limits of time and memory that the server has. Of each
accepted schema, random texts are validated with `jsonschema`.

`--beside PYTHON` compiles the same schemas with llguidance and xgrammar, in an environment that has them.
"""

import json
import os
import pickle
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

from jsonschema import Draft202012Validator
from jsonschema.validators import validator_for

from dlstep.core.automaton import Automaton, members
from dlstep.text.limited_worker import JOB_SECONDS, LimitedWorker

from . import entry
from .constraint import pieces

VOCABULARY = 131_072
PIECES = (*pieces(VOCABULARY - 2), b"", b"")  # the last two are mask and end
TEXTS = 60  # of each accepted schema
FILE = "schemas_300.jsonl"


def in_order(value: Any, orders: list[list[str]]) -> Any:
    """Return a value with the properties of its objects in the order of the `properties` that name most of them."""
    if isinstance(value, list):
        return [in_order(part, orders) for part in value]
    if not isinstance(value, dict):
        return value
    names = max(orders, key=lambda order: len(value.keys() & {*order}), default=[])
    known = [name for name in names if name in value]
    return {name: in_order(value[name], orders) for name in (*known, *(name for name in value if name not in known))}


def orders_of(schema: Any) -> Iterator[list[str]]:
    """Yield the names of each `properties` in a schema."""
    for key, part in schema.items() if isinstance(schema, dict) else enumerate(schema) if isinstance(schema, list) else ():
        if key == "properties" and isinstance(part, dict):
            yield [*part]
        yield from orders_of(part)


def instances(line: dict[str, Any]) -> list[tuple[bytes, bool]]:
    """Return the instances of a schema as text, with their properties in its order, and whether they are valid."""
    orders = [*orders_of(line["schema"])]
    texts = [json.dumps(in_order(test["data"], orders), ensure_ascii=False) for test in line["tests"]]
    return [(text.encode(errors="surrogatepass"), test["valid"]) for text, test in zip(texts, line["tests"], strict=True)]


def texts_of(automaton: Automaton, count: int, random: Random) -> Iterator[bytes]:
    """Yield random texts of an automaton whose first 256 ids are bytes."""
    of_class: dict[int, list[int]] = {}
    for byte in range(256):
        of_class.setdefault(automaton.class_of[byte], []).append(byte)
    rows = [
        {letter: to for letter, to in automaton.row(state).items() if letter in of_class}
        for state in range(automaton.state_count)
    ]
    ends = {*members(automaton.accepting)}
    before: list[list[int]] = [[] for _ in rows]
    for state, row in enumerate(rows):
        for to in row.values():
            before[to].append(state)
    least, level = dict.fromkeys(ends, 0), [*ends]
    for state in level:  # grows while it is read
        for source in before[state]:
            if source not in least:
                least[source] = least[state] + 1
                level.append(source)
    for _ in range(count if 0 in least else 0):
        state, text, free = 0, bytearray(), random.randrange(200)
        while state not in ends or (free > 0 and random.random() < 0.9):
            letters = [letter for letter, to in rows[state].items() if to in least]
            if not letters:
                break
            letter = random.choice(letters) if free > 0 else min(letters, key=lambda letter: least[rows[state][letter]])
            text.append(random.choice(of_class[letter]))
            state, free = rows[state][letter], free - 1
        yield bytes(text)


def measured(line: dict[str, Any], worker: LimitedWorker) -> dict[str, Any]:
    """Return what became of one schema."""
    schema = line["schema"]
    try:
        answer = worker.ask("benchmarks.timed_tables:json_schema", json.dumps(schema), PIECES, (VOCABULARY - 2, VOCABULARY - 1))
    except ValueError as error:
        return {"refused": str(error)}
    seconds, _, tables = answer.partition(b" ")
    if float(seconds) > JOB_SECONDS:
        return {"refused": f"it takes {float(seconds):.1f} seconds"}
    automaton = Automaton.of(line["name"], tables)
    kind = validator_for(schema, default=Draft202012Validator)
    validator, counts = kind(schema), Counter[str]()
    for text, valid in instances(line):
        name = "valid" if valid else "invalid"
        counts.update({name: 1, f"{name} accepted": int(automaton.accepts(tuple(text)))})
    wrong = [text for text in texts_of(automaton, TEXTS, Random(0)) if not validator.is_valid(json.loads(text))]
    return {"seconds": float(seconds), "states": automaton.state_count, "wrong": len(wrong), **counts}


def measure_schemas(limit: int, beside: str | None, verbose: bool) -> Iterator[dict[str, Any]]:
    """Yield one row for each engine."""
    folder = os.environ.get("DLSTEP_DATA")
    if folder is None:
        raise SystemExit(f"set DLSTEP_DATA to the folder of {FILE}")
    path = Path(folder) / FILE
    lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()][:limit]
    worker = LimitedWorker(6 * JOB_SECONDS)  # of a machine that may be busy: the limit is one of CPU time
    rows = [measured(line, worker) for line in lines]
    for line, row in zip(lines, rows, strict=True):
        if verbose and ("refused" in row or row["wrong"] or row.get("invalid accepted")):
            print(line["name"], row)
    yield {"engine": "dlstep", **summary(rows)}
    if beside is not None:
        script = Path(__file__).with_name("schemas_beside.py")
        schemas = [(json.dumps(line["schema"]), instances(line)) for line in lines]
        job = pickle.dumps(([*PIECES[:-2], b"<mask>", b"<end>"], VOCABULARY - 1, schemas))
        done = subprocess.run([beside, str(script)], input=job, stdout=subprocess.PIPE, check=True)
        by_engine: dict[str, list[dict[str, Any]]] = json.loads(done.stdout.splitlines()[-1])
        for engine, others in by_engine.items():
            yield {"engine": engine, **summary(others)}


def summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the figures of all schemas."""
    kept = [row for row in rows if "refused" not in row]
    total: Counter[str] = Counter()
    for row in kept:
        total.update({name: row.get(name, 0) for name in ("valid", "valid accepted", "invalid", "invalid accepted", "wrong")})
    seconds = sorted(row["seconds"] for row in kept) or [0.0]
    return {
        "compiled": f"{len(kept)} of {len(rows)}",
        "invalid_accepted": f"{total['invalid accepted']} of {total['invalid']}",
        "valid_accepted": f"{total['valid accepted']} of {total['valid']}",
        "wrong_texts": total["wrong"] if any("wrong" in row for row in kept) else "",
        "median_s": round(seconds[len(seconds) // 2], 2),
        "p90_s": round(seconds[len(seconds) * 9 // 10], 2),
    }


if __name__ == "__main__":
    entry.run(
        __doc__,
        measure_schemas,
        limit=(1000, "Most schemas to read."),
        beside=(None, "A Python that has llguidance and xgrammar."),
        verbose=(False, "Print each schema that is refused."),
    )
