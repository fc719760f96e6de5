"""Host cost of structured output: the same requests with and without a JSON schema, in one run.

The vocabulary is synthetic: every byte, and words made of letters and JSON punctuation. Samples are
drawn under the token masks, so that answers grow as those of a network would. Lowering includes the
upload of new token masks. Times are microseconds per request and step.

With `--schemas`, masks of answers to real schemas are measured instead (`benchmarks.schema_answers`),
at the 131,072 ids of a file of the package mistral-common: `--vocabulary .../data/tekken_240911.json`.
"""

from collections.abc import Iterator
from dataclasses import replace
from random import Random
from typing import Any

from dlstep.core import Span, SpanSamples, Spec
from dlstep.core.automaton import Automaton, members
from dlstep.core.constraint import Constraint, TokenMask
from dlstep.text.constraints import compiled

from . import entry
from .host import build, least_times, mean_us
from .schema_answers import measure_answers
from .scripts import EOS, MASK, SCRIPTS, RowsOf, StrategyScript, fed_tokens

SCHEMA = """{"type": "object", "required": ["title", "kind", "count", "tags", "authors"], "properties": {
    "title": {"type": "string"}, "kind": {"enum": ["book", "article", "talk"]}, "count": {"type": "integer"},
    "tags": {"type": "array", "items": {"type": "string"}}, "authors": {"type": "array",
    "items": {"type": "object", "required": ["name", "born"],
        "properties": {"name": {"type": "string"}, "born": {"type": "integer"}}}}}}"""
CONTEXT = 512  # tokens of a prompt
BUFFERS = (1, 4)
LETTERS = b"eeeettaaooiinnsshhrrddlucmfwygpbvk" + b' 0123456789"{}[],:.-'


def pieces(count: int) -> tuple[bytes, ...]:
    """Return the bytes of `count` synthetic tokens: each byte, then random words of 2 to 8 characters."""
    random = Random(0)
    words = (bytes(random.choices(LETTERS, k=random.randint(2, 8))) for _ in range(count - 256))
    return (*(bytes([byte]) for byte in range(256)), *words)


def spec_of_script(script: StrategyScript) -> Spec:
    """Return the spec of a script with the synthetic vocabulary."""
    return replace(script.spec, pieces=(*pieces(EOS), b"", b""))


def under_masks(automaton: Automaton, plain: RowsOf) -> RowsOf:
    """Return the samples of `plain`, with masked positions drawn again under their token masks."""
    of_class: dict[int, list[int]] = {}
    for token, letter in enumerate(automaton.class_of):
        of_class.setdefault(letter, []).append(token)

    def token_of(random: Random, mask: TokenMask) -> int:
        constraint = mask.constraint
        assert isinstance(constraint, Constraint)
        # All allowed ids are equally probable, and the answer ends only if nothing else is allowed.
        letters = members(mask.classes & ~(1 << constraint.stop_class))
        if not letters:
            return EOS
        (letter,) = random.choices(letters, [len(of_class[letter]) for letter in letters])
        return random.choice(of_class[letter])

    def rows(random: Random, span: Span) -> SpanSamples:
        samples = plain(random, span)
        if not span.wanted.masks:
            return samples
        fed = zip(fed_tokens(span), span.wanted.masks, strict=True)
        return replace(samples, tokens=tuple([token_of(random, mask) if token == MASK else token for token, mask in fed]))

    return rows


def measure_constraint(strategy: str, batches: tuple[int, ...], buffers: tuple[int, ...] = BUFFERS) -> Iterator[dict[str, Any]]:
    """Yield a row for each `buffer_size`, if the strategy has this option, and each batch size."""
    script = SCRIPTS[strategy]
    spec = spec_of_script(script)
    automaton = compiled("json_schema", SCHEMA, spec)
    for buffer in buffers if "buffer_size" in script.options else (1,):
        options = script.options | ({"buffer_size": buffer} if "buffer_size" in script.options else {})
        plain = replace(script, options=options, spec=spec)
        masked = replace(plain, steady=under_masks(automaton, plain.steady))
        for batch in batches:
            runs = [
                (build(plain, "prompt", CONTEXT, batch), plain),
                (build(masked, "prompt", CONTEXT, batch, constraint=automaton), masked),
            ]
            without, constrained = (round(sum(mean_us(steps, batch)), 2) for steps in least_times(runs))
            yield {
                "strategy": strategy,
                "buffer_size": buffer,
                "batch": batch,
                "states": automaton.state_count,
                "plain_us": without,
                "constrained_us": constrained,
                "added_us": round(constrained - without, 2),
            }


def measure(
    strategy: str, batches: tuple[int, ...], schemas: tuple[str, ...], vocabulary: str, every: int, record: str
) -> Iterator[dict[str, Any]]:
    """Yield the rows of `measure_answers` if there are schemas, otherwise those of `measure_constraint`."""
    return measure_answers(schemas, vocabulary, every, record) if schemas else measure_constraint(strategy, batches)


if __name__ == "__main__":
    entry.run(
        __doc__,
        measure,
        strategy=("multi_bd", "A strategy that takes constraints."),
        batches=((1, 8, 32), "Requests at a time."),
        schemas=((), "Files of schemas, with one JSON object a line."),
        vocabulary=("", "A file with the bytes of each id."),
        every=(1, "Only every n-th schema of a file."),
        record=("", "A folder for digests of the masks, to be compared with those of other versions."),
    )
