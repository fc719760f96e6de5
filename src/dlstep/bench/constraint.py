"""Host cost of structured output: the same requests with and without a JSON schema, in one run.

The vocabulary is synthetic: every byte, and words made of letters and JSON punctuation. Samples are
drawn under the token masks, so that answers grow as those of a network would. Lowering includes the
upload of new token masks.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from random import Random

from ..core import Span, SpanSamples, Spec
from ..core.automaton import Automaton, members
from ..core.constraint import Constraint, TokenMask
from .answers import EOS, MASK, SCRIPTS, RowsOf, StrategyScript, fed_tokens
from .host import build_script, least_times, mean_us

SCHEMA = """{"type": "object", "required": ["title", "kind", "count", "tags", "authors"], "properties": {
    "title": {"type": "string"}, "kind": {"enum": ["book", "article", "talk"]}, "count": {"type": "integer"},
    "tags": {"type": "array", "items": {"type": "string"}}, "authors": {"type": "array",
    "items": {"type": "object", "required": ["name", "born"],
        "properties": {"name": {"type": "string"}, "born": {"type": "integer"}}}}}}"""
CONTEXT = 512  # tokens of a prompt
BUFFERS = (1, 4)
LETTERS = b"eeeettaaooiinnsshhrrddlucmfwygpbvk" + b' 0123456789"{}[],:.-'


@dataclass(frozen=True, slots=True)
class ConstraintCost:
    """Host microseconds per request and step with and without the constraint."""

    strategy: str
    buffer_size: int
    batch: int
    states: int
    plain_us: float
    constrained_us: float
    added_us: float


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
        if not span.masks:
            return samples
        fed = zip(fed_tokens(span), span.masks, strict=True)
        return replace(samples, tokens=tuple([token_of(random, mask) if token == MASK else token for token, mask in fed]))

    return rows


def measure_constraint(strategy: str, batches: Sequence[int], buffers: Sequence[int] = BUFFERS) -> Iterator[ConstraintCost]:
    """Yield a row for each `buffer_size` and each batch size.

    Args:
        strategy: Name of a script of `answers.SCRIPTS`.
        batches: Batch sizes, in requests.
        buffers: Values of `buffer_size`, for strategies that have this option.

    Raises:
        ValueError: If the strategy does not take constraints, or if `structured` is not installed.
    """
    from ..text.constraints import compiled

    script = SCRIPTS[strategy]
    spec = spec_of_script(script)
    automaton = compiled("json_schema", SCHEMA, spec)
    for buffer in buffers if "buffer_size" in script.options else (1,):
        options = script.options | ({"buffer_size": buffer} if "buffer_size" in script.options else {})
        plain = replace(script, options=options, spec=spec)
        masked = replace(plain, steady=under_masks(automaton, plain.steady))
        for batch in batches:
            runs = [
                (build_script(plain, "prompt", CONTEXT, batch), plain),
                (build_script(masked, "prompt", CONTEXT, batch, constraint=automaton), masked),
            ]
            without, constrained = (round(sum(mean_us(steps, batch)), 2) for steps in least_times(runs))
            yield ConstraintCost(
                strategy, buffer, batch, len(automaton.moves), without, constrained, round(constrained - without, 2)
            )
