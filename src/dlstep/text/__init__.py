"""Text to tokens and back: tokenizers, chat templates, prompts, detokenization, outputs."""
