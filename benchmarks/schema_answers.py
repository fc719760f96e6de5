"""Masks of answers to real JSON schemas, at a real vocabulary: processor time, memory, and digests to compare.

Each line of a file is a JSON object with a `schema`, and may have `tests`: instances (`data`) that are `valid` or not. The
answers are two valid instances; a schema without tests gets random ones. They are decoded in blocks of 32: each pass
unmasks one to four positions, mostly those farther to the left. Its time has what the engine's process does for the
constraint: the masks of all masked positions, the bits of masks that are new, and the filter of the unmasked tokens.
"""

import gc
import json
import re
import sys
from base64 import b64decode
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from hashlib import blake2b
from math import ceil
from pathlib import Path
from random import Random
from time import process_time, thread_time
from types import FunctionType, ModuleType
from typing import Any, NamedTuple
from urllib.parse import unquote

from dlstep.core import Refused, Spec
from dlstep.core.automaton import Automaton
from dlstep.core.block import open_block
from dlstep.core.constraint import RequestConstraint, TokenMask, bound
from dlstep.core.filtering import WindowFilter
from dlstep.driver.tables import packed, prepare_constraint
from dlstep.text.constraints import compiled

VOCABULARY = 131_072
SPECIAL = 1_000  # ids without bytes, which come first in the file of the vocabulary
EOS, MASK = 2, 10  # of them
BLOCK = 32
ROOM = 512  # tokens of an answer, at least
WORDS = (
    "Update",
    "the",
    "parser",
    "of",
    "dates",
    "so",
    "that",
    "it",
    "reads",
    "every",
    "form:",
    "docs/guide.md,",
    "line",
    "42",
)


def pieces_of(path: Path) -> tuple[bytes, ...]:
    """Return the bytes of each id of a vocabulary in the format of the package mistral-common (`tekken_240911.json`)."""
    entries = json.loads(path.read_text(encoding="utf-8"))["vocab"][: VOCABULARY - SPECIAL]
    return (*[b""] * SPECIAL, *[b64decode(entry["token_bytes"]) for entry in entries])


def tokens_of(text: bytes, id_of: Mapping[bytes, int], longest: int) -> list[int]:
    """Return the ids of a text: each is the longest that fits."""
    found, place = [], 0
    while place < len(text):
        size = next(size for size in range(longest, 0, -1) if text[place : place + size] in id_of)
        found.append(id_of[text[place : place + size]])
        place += size
    return found


class Examples:
    """Random instances of a schema, which may violate keywords that are rare in tool schemas."""

    def __init__(self, root: Any, random: Random, words: int = 8) -> None:
        self._root, self._random, self._words = root, random, words

    def of(self, schema: Any, depth: int = 0) -> Any:
        """Return a value for a part of the schema."""
        if not isinstance(schema, dict):
            return "any"
        if "$ref" in schema:
            return self.of(self._target(schema["$ref"]), depth)
        if choices := [part for name in ("anyOf", "oneOf", "allOf") for part in schema.get(name, ())]:
            chosen = self._random.choice(choices if depth < 6 else choices[:1])
            rest = {name: part for name, part in schema.items() if name not in ("anyOf", "oneOf", "allOf")}
            return self.of({**rest, **chosen} if isinstance(chosen, dict) else rest, depth)
        if values := schema.get("enum", [schema["const"]] if "const" in schema else []):
            return self._random.choice(values)
        kind = schema.get("type", "object" if "properties" in schema else "string")
        return self._of_kind(self._random.choice(kind) if isinstance(kind, list) else kind, schema, depth)

    def _of_kind(self, kind: str, schema: Any, depth: int) -> Any:
        random = self._random
        match kind:
            case "object":
                required = schema.get("required", ())
                fields = schema.get("properties", {})
                return {
                    name: self.of(part, depth + 1)
                    for name, part in fields.items()
                    if name in required or random.random() < (0.8 if depth < 3 else 0.2)
                }
            case "array":
                count = max(schema.get("minItems", 0), min(schema.get("maxItems", 3), random.randint(1, 3) if depth < 6 else 0))
                return [self.of(schema.get("items"), depth + 1) for _ in range(count)]
            case "integer" | "number":
                return max(schema.get("minimum", 1), min(schema.get("maximum", 100), random.randint(1, 100)))
            case "boolean":
                return random.random() < 0.5
            case "null":
                return None
            case _:
                text = " ".join(random.choice(WORDS) for _ in range(random.randint(1, self._words)))
                return text[: schema.get("maxLength", 100 * self._words // 8)]

    def _target(self, reference: str) -> Any:
        target = self._root
        for name in reference.split("/")[1:]:
            target = target[name]
        return target


def target(root: Any, reference: str) -> Any:
    """Return the part of a schema to which a `$ref` leads; an empty schema if it is not found by its path."""
    for name in unquote(reference).split("/")[1:]:
        name = name.replace("~1", "/").replace("~0", "~")
        root = root.get(name, {}) if isinstance(root, dict) else root[int(name)]
    return root


def parts_of(schema: Any, value: Any, root: Any) -> Iterator[dict[str, Any]]:
    """Yield the schemas that apply to a value, in the order in which they are read.

    Of alternatives, the one that names most of its properties.
    """
    if not isinstance(schema, dict):
        return
    if "$ref" in schema:
        yield from parts_of(target(root, schema["$ref"]), value, root)
    yield schema
    for part in schema.get("allOf", ()):
        yield from parts_of(part, value, root)
    conditional = [schema[name] for name in ("then", "else") if name in schema]
    for alternatives in (schema.get("anyOf", ()), schema.get("oneOf", ()), conditional):
        found = [[*parts_of(part, value, root)] for part in alternatives]
        yield from max(found, key=lambda parts: len([name for name in names_in(parts) if name in value]), default=[])


def names_in(parts: Iterable[dict[str, Any]]) -> list[str]:
    """Return the names of the properties that schemas describe, in their order."""
    return [*dict.fromkeys(name for part in parts for name in part.get("properties", ()))]


def in_order(value: Any, schema: Any, root: Any) -> Any:
    """Return a value with the properties of its objects in the order of the schema."""
    if isinstance(value, list):
        parts = [*parts_of(schema, (), root)]
        found = []
        for place, item in enumerate(value):
            listed = [part.get("prefixItems", part.get("items")) for part in parts]
            own = [(each[place] if place < len(each) else {}) if isinstance(each, list) else each for each in listed]
            found.append(in_order(item, {"allOf": own}, root))
        return found
    if not isinstance(value, dict):
        return value
    parts = [*parts_of(schema, value, root)]
    names = names_in(parts)
    inner: dict[str, list[Any]] = {}
    for name in value:
        for part in parts:
            own = [part["properties"][name]] if name in part.get("properties", ()) else []
            own += [each for text, each in part.get("patternProperties", {}).items() if re.search(text, name)]
            inner.setdefault(name, []).extend(own or [part.get("additionalProperties")])
    known = [name for name in names if name in value]
    return {
        name: in_order(value[name], {"allOf": inner[name]}, root)
        for name in (*known, *(name for name in value if name not in known))
    }


def spelled(value: Any, schema: Any) -> bytes:
    """Return an instance as text, with its properties in the order of the schema."""
    return json.dumps(in_order(value, schema, schema), ensure_ascii=False).encode(errors="surrogatepass")


class Pass(NamedTuple):
    """The masks of one forward pass, and the processor time that they take in milliseconds."""

    ms: float
    masks: tuple[TokenMask, ...]


def passes(constraint: RequestConstraint, tokens: Sequence[int], random: Random, uploaded: set[int]) -> Iterator[Pass]:
    """Yield the passes of an answer with these tokens; `uploaded` has the masks whose bits are on the device."""
    settled, state, block = 0, 0, open_block(0, BLOCK, constraint.limit, (), MASK)
    while settled < len(tokens):
        begun = process_time()
        masks = constraint.window_masks(state, settled, (block,), block.masked)
        for mask in masks:
            if mask.id not in uploaded:
                packed(mask)
                uploaded.add(mask.id)
        spent = process_time() - begun
        order = sorted(block.masked, key=lambda position: position + random.uniform(0, BLOCK / 2))
        chosen = sorted(order[: random.randint(1, 4)])
        proposed = [tokens[position] if position < len(tokens) else EOS for position in chosen]
        begun = process_time()
        window_filter = WindowFilter(constraint, state, settled, (block,))
        entered = window_filter.enter(block)
        block = window_filter.leave(entered.unmask(chosen, proposed, [0.9] * len(chosen)), entered)
        if not block.masked:
            state, settled = constraint.run(state, block.tokens), block.end
        yield Pass(1e3 * (spent + process_time() - begun), masks)
        if not block.masked:
            block = open_block(settled, BLOCK, constraint.limit, (), MASK)


class Answers(NamedTuple):
    """The answers to one schema.

    `prepared` has the milliseconds of processor time that each request takes before the engine's thread sees it,
    `arrivals` those of the engine's thread until the first pass, and `passes` those of each pass.
    """

    prepared: list[float]
    arrivals: list[float]
    passes: list[list[float]]
    states: int
    table_bytes: int
    held_bytes: int
    digests: list[str]


def answered(automaton: Automaton, answers: Sequence[Sequence[int]], random: Random) -> Answers:
    """Return what the answers with these tokens cost, one after the other."""
    bound.cache_clear()  # of earlier schemas
    gc.collect()
    gc.freeze()  # as a server does, so that no pass waits for the vocabulary to be searched for garbage
    prepared, arrivals, spent, digests, uploaded = list[float](), list[float](), list[list[float]](), list[str](), set[int]()
    known, automaton = dict[int, str](), replace(automaton)  # without what checking the instances has cached
    for tokens in answers:
        begun = thread_time()
        request = RequestConstraint(automaton, (EOS,), 0, max(ROOM, len(tokens) + BLOCK))
        prepare_constraint(request)
        ready = thread_time()
        assert request.feasible, "an instance does not fit"
        prepared.append(1e3 * (ready - begun))
        arrivals.append(1e3 * (thread_time() - ready))
        spent.append([])
        for ms, masks in passes(request, tokens, random, uploaded):
            spent[-1].append(ms)
            chosen = random.sample(masks, min(2, len(masks)))
            known |= {mask.id: digest(mask) for mask in chosen if mask.id not in known}
            digests += [known[mask.id] for mask in chosen]
    return Answers(
        prepared, arrivals, spent, automaton.state_count, len(automaton.tables), held(bound(automaton, (EOS,))), digests
    )


def digest(mask: TokenMask) -> str:
    """Return a hash of the ids that a mask allows."""
    return blake2b(packed(mask).tobytes(), digest_size=8).hexdigest()


def held(root: object) -> int:
    """Return the bytes of the objects that an object refers to."""
    seen, stack, total = set[int](), [root], 0
    while stack:
        each = stack.pop()
        if id(each) in seen or isinstance(each, type | ModuleType):
            continue
        seen.add(id(each))
        total += sys.getsizeof(each)
        stack += each.__closure__ or () if isinstance(each, FunctionType) else gc.get_referents(each)
    return total


def instances(line: Mapping[str, Any]) -> Iterator[bytes]:
    """Yield the texts of valid instances of a schema."""
    from jsonschema import Draft202012Validator  # not installed wherever `benchmarks.constrained_step` runs
    from jsonschema.validators import validator_for

    schema, examples = line["schema"], Examples(line["schema"], Random(0))
    values = [test["data"] for test in line["tests"]] if "tests" in line else [examples.of(schema) for _ in range(8)]
    validator = validator_for(schema, default=Draft202012Validator)(schema)
    yield from (spelled(value, schema) for value in values if validator.is_valid(value))


def measure_answers(files: Sequence[str], vocabulary: str, every: int, record: str) -> Iterator[dict[str, Any]]:
    """Yield a row for each file and one for all. `record` is a folder for the digests of the masks, or empty."""
    pieces = pieces_of(Path(vocabulary))
    id_of = {piece: token for token, piece in enumerate(pieces) if piece}
    longest, spec = max(map(len, id_of)), Spec(MASK, (EOS,), VOCABULARY, pieces=pieces)
    every_answer, given, total = list[Answers](), 0, 0
    for file in map(Path, files):
        lines = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()][::every]
        kept, compiled_count = list[Answers](), 0
        for number, line in enumerate(lines):
            try:
                automaton = compiled("json_schema", json.dumps(line["schema"]), spec)
            except Refused:
                continue
            compiled_count += 1
            answers = [tokens for text in instances(line) if automaton.accepts(tokens := tokens_of(text, id_of, longest))]
            if answers:
                kept.append(answered(automaton, (answers * 2)[:2], Random(number)))
            if answers and record:
                text = "\n".join(kept[-1].digests)
                (Path(record) / f"{file.stem}-{number * every}").write_text(text, encoding="utf-8")
        yield {"schemas": file.stem, "given": len(lines), "compiled": compiled_count, **summary(kept)}
        every_answer, given, total = every_answer + kept, given + len(lines), total + compiled_count
    yield {"schemas": "all", "given": given, "compiled": total, **summary(every_answer)}


def summary(answers: Sequence[Answers]) -> dict[str, Any]:
    """Return the percentiles of all answers: milliseconds of arrivals and of passes, megabytes of constraints."""
    row: dict[str, Any] = {"answered": len(answers)}
    for number, name in enumerate(("first", "second")):
        spent = [ms for each in answers for ms in each.passes[number]]
        row |= {f"{name}_p50_ms": quantile(spent, 0.5), f"{name}_p90_ms": quantile(spent, 0.9), f"{name}_max_ms": max(spent)}
    for name in ("prepared", "arrivals"):
        row[f"{name}_max_ms"] = max(ms for each in answers for ms in getattr(each, name))
    for name in ("table", "held"):
        sizes = [getattr(each, f"{name}_bytes") / 1e6 for each in answers]
        row |= {f"{name}_p50_mb": quantile(sizes, 0.5), f"{name}_p90_mb": quantile(sizes, 0.9)}
    return row


def quantile(values: Sequence[float], share: float) -> float:
    """Return the smallest value that at least this share of the values does not exceed."""
    return sorted(values)[ceil(share * len(values)) - 1]
