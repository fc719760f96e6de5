"""The tiny models' vocabulary as a Hugging Face fast tokenizer.

This module defines the order of the symbols, and so every id in the shipped checkpoints: three
special symbols, newline and printable ASCII, then the story template's words. Encoding takes the
longest symbol at each place, so digits stay single and printable ASCII text round-trips unchanged.
"""

import re

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from dlstep.tiny.task import GAIN_VERBS, LEADS, LOSE_VERBS, NAMES, THINGS

PAD, MASK, EOS = "<pad>", "<mask>", "<eos>"
PAD_ID, MASK_ID, EOS_ID = 0, 1, 2
SPECIAL = (PAD, MASK, EOS)
CHARACTERS = ("\n", *map(chr, range(32, 127)))
# Multi-character units of the template; each is one symbol of the tokenizer's vocabulary.
TEMPLATE_WORDS = (
    *NAMES,
    *(f" {thing}" for thing in THINGS),
    *(f" {verb} " for verb in ("has", *GAIN_VERBS, *LOSE_VERBS)),
    *(f"{lead} " for lead in (*LEADS, "So")),
    " now has ",
    " more",
    "How many",
    " does ",
    " have",
    " doubles the number",
    ". ",
    "?\n",
    " left",
)
VOCABULARY = (*SPECIAL, *CHARACTERS, *sorted(TEMPLATE_WORDS))
EMBEDDING_ROWS = 192  # embedding rows; ids past the vocabulary never occur


def build_tokenizer() -> PreTrainedTokenizerFast:
    """Return the tokenizer of every checkpoint. Characters outside printable ASCII become `?`."""
    vocabulary = {symbol: index for index, symbol in enumerate(VOCABULARY)}
    backend = Tokenizer(models.WordLevel(vocabulary, unk_token="?"))
    # An alternation takes its first matching branch, so the longest symbols come first.
    longest_first = sorted((*CHARACTERS, *TEMPLATE_WORDS), key=lambda symbol: (-len(symbol), symbol))
    pattern = Regex("|".join(map(re.escape, longest_first)))
    backend.pre_tokenizer = pre_tokenizers.Split(pattern, behavior="isolated")
    backend.decoder = decoders.Fuse()
    backend.add_special_tokens([AddedToken(symbol, special=True, normalized=False) for symbol in SPECIAL])
    return PreTrainedTokenizerFast(
        tokenizer_object=backend,
        pad_token=PAD,
        mask_token=MASK,
        eos_token=EOS,
        clean_up_tokenization_spaces=False,
        model_max_length=512,
    )
