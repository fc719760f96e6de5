"""Structured output for real JSON schemas: how many compile, how fast, and whether what they allow conforms.

The schemas are those of the file `schemas_300.jsonl` in the folder DLSTEP_DATA: one JSON object a line with
`name`, `schema` and `tests`, instances (`data`) that are `valid` or not. Each schema is compiled with a
synthetic vocabulary, in a process with the limits of CPU time and memory that the server has. Of each
accepted schema, random texts are validated with `jsonschema`.

`--suite FOLDER` also reads a clone of JSON-Schema-Test-Suite: each of its groups is a schema with instances.
"""

import json
import os
import re
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from random import Random
from typing import Any

from jsonschema import Draft202012Validator
from jsonschema.validators import validator_for

from dlstep.core.automaton import Automaton, bitmap_of, members
from dlstep.testing.edges import edges_of
from dlstep.text.constraints import array_edges
from dlstep.text.limited_worker import LimitedWorker

from . import entry
from .constraint import pieces
from .schema_answers import spelled

VOCABULARY = 131_072
PIECES = (*pieces(VOCABULARY - 2), b"", b"")  # the last two are mask and end
TEXTS = 60  # of each accepted schema
FILE = "schemas_300.jsonl"
DRAFTS = {
    "draft7": "http://json-schema.org/draft-07/schema#",
    "draft2020-12": "https://json-schema.org/draft/2020-12/schema",
}


def instances(line: dict[str, Any]) -> list[tuple[bytes, bool]]:
    """Return the instances of a schema as text, with their properties in its order, and whether they are valid."""
    return [(spelled(test["data"], line["schema"]), test["valid"]) for test in line["tests"]]


def texts_of(automaton: Automaton, count: int, random: Random) -> Iterator[bytes]:
    """Yield random texts of an automaton whose first 256 ids are bytes."""
    of_class: dict[int, list[int]] = {}
    for byte in range(256):
        of_class.setdefault(automaton.class_of[byte], []).append(byte)
    spelled_letters = bitmap_of(of_class)
    rows: list[dict[int, int]] = [{} for _ in range(automaton.state_count)]
    for state, to, classes in edges_of(automaton):
        rows[state] |= dict.fromkeys(members(classes & spelled_letters), to)
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
    automaton = Automaton.of(line["name"], tables, array_edges)
    kind = validator_for(schema, default=Draft202012Validator)
    validator, counts = kind(schema), Counter[str]()
    for text, valid in instances(line):
        name = "valid" if valid else "invalid"
        counts.update({name: 1, f"{name} accepted": int(automaton.accepts(tuple(text)))})
    wrong = list[bytes]()
    try:
        wrong += [text for text in texts_of(automaton, TEXTS, Random(0)) if not validator.is_valid(json.loads(text))]
    except re.error:  # `jsonschema` reads patterns with Python's `re`, which lacks `\p`
        counts["unchecked"] = 1
    return {"seconds": float(seconds), "states": automaton.state_count, "wrong": len(wrong), **counts}


def measure_schemas(limit: int, suite: str, verbose: bool) -> Iterator[dict[str, Any]]:
    """Yield one row for each set of schemas."""
    folder = os.environ.get("DLSTEP_DATA")
    if folder is None:
        raise SystemExit(f"set DLSTEP_DATA to the folder of {FILE}")
    lines = [json.loads(line) for line in (Path(folder) / FILE).read_text(encoding="utf-8").splitlines()][:limit]
    groups = {draft: [*groups_of(Path(suite), draft)][:limit] for draft in DRAFTS if suite}
    for name, schemas in {FILE: lines, **groups}.items():
        with closing(LimitedWorker()) as worker:
            rows = [measured(line, worker) for line in schemas]
        for line, row in zip(schemas, rows, strict=True):
            if verbose and ("refused" in row or row["wrong"] or row.get("invalid accepted")):
                print(line["name"], row)
        yield {"schemas": name, **summary(rows)}


def groups_of(suite: Path, draft: str) -> Iterator[dict[str, Any]]:
    """Yield the groups of a draft in JSON-Schema-Test-Suite, without the optional ones, in the form of `measured`."""
    for path in sorted((suite / "tests" / draft).glob("*.json")):
        for group in json.loads(path.read_text(encoding="utf-8")):
            schema = group["schema"]
            if isinstance(schema, dict):
                schema = {"$schema": DRAFTS[draft], **schema}
            yield {"name": f"{draft}/{path.name}: {group['description']}", "schema": schema, "tests": group["tests"]}


def summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the figures of all schemas; of instances and texts, of those schemas that compile."""
    kept = [row for row in rows if "refused" not in row]
    total: Counter[str] = Counter()
    counted = ("valid", "valid accepted", "invalid", "invalid accepted", "wrong", "unchecked")
    for row in kept:
        total.update({name: row.get(name, 0) for name in counted})
    seconds = sorted(row["seconds"] for row in kept) or [0.0]
    return {
        "given": len(rows),
        "compiled": len(kept),
        "invalid": total["invalid"],
        "invalid_accepted": total["invalid accepted"],
        "valid": total["valid"],
        "valid_accepted": total["valid accepted"],
        "wrong_texts": total["wrong"],
        "unchecked": total["unchecked"],
        "median_s": round(seconds[len(seconds) // 2], 2),
        "p90_s": round(seconds[len(seconds) * 9 // 10], 2),
    }


if __name__ == "__main__":
    entry.run(
        __doc__,
        measure_schemas,
        limit=(1000, "Most schemas to read."),
        suite=("", "A clone of JSON-Schema-Test-Suite."),
        verbose=(False, "Print each schema that is refused."),
    )
