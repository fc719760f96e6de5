"""Decodes under a constraint whose rows propose the first allowed id everywhere, the leftmost with most confidence."""

from dlstep.core import Config, Request, SamplingParams, Span, SpanSamples, Spec, Strategy
from dlstep.core.automaton import Automaton
from dlstep.testing.generators import EOS, MASK, PIECES, VOCABULARY
from dlstep.testing.scripted import ScriptedDriver
from dlstep.text.dfa import regex
from dlstep.text.token_automaton import token_automaton

from ...helpers.decoding import passes

PAIRS = token_automaton("(ab|ba)*", regex("(ab|ba)*"), PIECES, (MASK, EOS))
ONE_PAIR = token_automaton("(ab|ba)a*", regex("(ab|ba)a*"), PIECES, (MASK, EOS))
ORDERS = "(abc|acb|bac|bca|cab|cba)*"
TRIPLES = token_automaton(ORDERS, regex(ORDERS), PIECES, (MASK, EOS))
ONLY_A = token_automaton("a*", regex("a*"), (b"a", *PIECES[1:4], *[b""] * (VOCABULARY - 4)), (MASK, EOS))


def left_after_each_pass(strategy: Strategy, automaton: Automaton, size: int, seed: int = 0) -> list[tuple[int, ...]]:
    """Return the offsets that are masked after each pass of an answer of `size` tokens, which has no stop id."""

    def rows(span: Span) -> SpanSamples:
        ids = [mask.ids() for mask in span.wanted.masks]
        tokens, chances = tuple([allowed[0] for allowed in ids]), tuple([0.9 - 0.01 * row for row in range(len(ids))])
        best = [(allowed[0], allowed[min(1, len(allowed) - 1)]) for allowed in ids]
        seconds = [chance / 2 if len(allowed) > 1 else 0.0 for chance, allowed in zip(chances, ids, strict=True)]
        pairs = zip(chances, seconds, strict=True)
        return SpanSamples(tokens, chances, (), (), tuple(sum(best, ())), tuple(sum(pairs, ())))

    request = Request(0, (0,), SamplingParams(max_tokens=size, seed=seed), automaton=automaton)
    config = Config(Spec(MASK, (), VOCABULARY, pieces=PIECES))
    return [
        tuple([offset for offset, token in enumerate(after.tokens(1, size + 1)) if token == MASK])
        for _, _, after in passes(config, strategy, request, ScriptedDriver(rows))
    ]
