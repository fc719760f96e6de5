"""An engine without a network that returns a scripted answer to each question, for tests of scores."""

import json
from collections.abc import Mapping
from pathlib import Path

from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from dlstep.core import Config, Span, SpanSamples, Spec, init
from dlstep.engine.loader import LoadedEngine
from dlstep.models.description import pieces
from dlstep.strategies.dual_cache import DualCache
from dlstep.testing.scripted import ScriptedDriver

END, MASK = "<end>", "<mask>"
LONGEST = 4096  # bytes of a prompt and its answer


def byte_tokenizer() -> PreTrainedTokenizerFast:
    """A tokenizer with a token for each byte, so that every text comes back as it was."""
    vocab = {token: number for number, token in enumerate([*sorted(pre_tokenizers.ByteLevel.alphabet()), END, MASK])}
    backend = Tokenizer(models.BPE(vocab=vocab, merges=[]))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    backend.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(tokenizer_object=backend, eos_token=END, mask_token=MASK)


def scripted_engine(answers: Mapping[str, str]) -> LoadedEngine:
    """Return an engine that answers each prompt that contains one of the questions, in one forward pass."""
    tokenizer = byte_tokenizer()
    end, mask = tokenizer.convert_tokens_to_ids([END, MASK])
    written = {question: [*tokenizer.encode(text), end] for question, text in answers.items()}

    def rows_of(span: Span) -> SpanSamples:
        prompt = tokenizer.decode(span.tokens[: span.sampled[0]])
        (tokens,) = [tokens for question, tokens in written.items() if question in prompt]
        assert len(tokens) <= len(span.sampled), "max_tokens leaves room for the answer"
        padded = tokens + [end] * (len(span.sampled) - len(tokens))
        return SpanSamples(tuple(padded), (1.0,) * len(padded))

    spec = Spec(mask_id=mask, eos_ids=(end,), vocab_size=len(tokenizer), pieces=pieces(tokenizer))
    config = Config(spec, num_pages=4096, max_model_len=LONGEST, max_num_batched_tokens=4 * LONGEST, max_num_reqs=16)
    strategy = DualCache(block_size=LONGEST, cache="none")
    return LoadedEngine(init(config, strategy), ScriptedDriver(rows_of), tokenizer, "scripted")


def scripted_from(path: Path) -> LoadedEngine:
    """Return the engine with the answers of a JSON file, by question."""
    return scripted_engine(json.loads(path.read_text()))
