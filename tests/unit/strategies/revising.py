"""An answer that may be `ab` or `ba`, decoded by strategies that revise their blocks."""

from dlstep.core import Config, Request, SamplingParams, Span, SpanSamples, Spec
from dlstep.strategies.dmax import DMax
from dlstep.strategies.multi_bd_edit import MultiBDEdit
from dlstep.testing.scripted import ScriptedDriver
from dlstep.text.dfa import regex
from dlstep.text.token_automaton import token_automaton

from ...helpers.decoding import passes

VOCABULARY, EOS, MASK = 12, 10, 11
SPEC = Spec(MASK, (EOS,), VOCABULARY)
CONFIG = Config(SPEC, 4, 100, 64, 200, 1)
AB_OR_BA = token_automaton("ab|ba", regex("ab|ba"), (b"a", b"b", *[b""] * 10), (EOS, MASK))


def under_a_constraint(
    strategy: MultiBDEdit | DMax, answers: list[tuple[tuple[int, ...], tuple[float, ...]]]
) -> list[tuple[int, ...]]:
    """The two tokens of the answer after each of these forwards, whose tokens the masks allow."""
    script = iter(answers)

    def say(span: Span) -> SpanSamples:
        tokens, chances = next(script)
        allowed = [mask.ids() for mask in span.wanted.masks]
        assert all(token in ids for token, ids in zip(tokens, allowed, strict=True)), allowed
        return SpanSamples(tokens, chances)

    request = Request(0, (5, 5), SamplingParams(max_tokens=2, stop_token_ids=()), automaton=AB_OR_BA)
    found = [after.tokens(2, 4) for _, _, after in passes(CONFIG, strategy, request, ScriptedDriver(say))]
    assert next(script, None) is None, "it needs fewer forwards"
    return found
