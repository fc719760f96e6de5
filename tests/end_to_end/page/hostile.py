"""Texts that would do harm where a page, a terminal or an editor obeys them; and recordings made of them."""

from typing import Any

TEXTS = (
    "<script>window.hacked = true</script>",
    "<img src=x onerror='window.hacked = true'>",
    "</script><script>window.hacked = true</script><!--",
    "<!--<script>",
    "&lt;b&gt;&amp;",
    "javascript:window.hacked=true",
    "\x1b[2J\x1b]0;title\x07\x1b[31m",
    "\u202eevil\u202c\u2066x\u2069\u200f\u061c",
    "\u200b\u2060\ufeff\u00ad",
    "\x00\x08\x0d\x7f\x9b",
    "a\u0301" * 40,
    "x" * 5000,
    "\u2028\u2029",
    "\U000e0041\U000e0042",
    "${window.hacked = true}`'\"\\",
    "line\nbreak\ttab",
)
# What may not stand in the page as it is: it hides, reorders or steers what is around it.
UNSEEN = (
    "[\\u0000-\\u0008\\u000b-\\u001f\\u007f-\\u009f\\u00ad\\u061c\\u200b\\u200e\\u200f\\u2028-\\u202e\\u2060-\\u206f\\ufeff]"
)


def frame(seq: int, texts: tuple[str, ...], settled: int, known: int, **more: Any) -> dict[str, Any]:
    """A frame whose cells have these texts."""
    cells = [[place, 100 + place, 0.97 - 0.05 * place, text] for place, text in enumerate(texts)]
    plan = {"rows": 8, "start": 0, "cached": 0, "stored": 0, "sampled": [0], "pages": 1, "preempted": True}
    told = {
        "index": 0,
        "seq": seq,
        "step": seq,
        "nfe": seq,
        "settled": settled,
        "plan": plan | {"batch_requests": 1, "batch_rows": 8},
    }
    rivals = {str(place): [[7, 0.5, text]] for place, text in enumerate(texts)}
    return told | {"tokens": cells[known:settled], "cells": cells[settled:], "rivals": rivals, "seconds": 0.5} | more


def hostile_recording(texts: tuple[str, ...] = TEXTS) -> dict[str, Any]:
    """A run and a fork of it in which every text comes from an enemy."""
    name = texts[0]
    head = {
        "request": name,
        "kind": "completion",
        "model": name,
        "prompt": "".join(texts),
        "prompt_tokens": 3,
        "strategy": name,
    }
    head |= {
        "options": {text[:200]: text for text in texts},
        "seed": 1,
        "temperature": 0.0,
        "max_tokens": 64,
        "forked_from": None,
    }
    half = len(texts) // 2
    frames = [frame(0, texts, 0, 0, head=head), frame(1, texts, half, 0)]
    frames.append(frame(2, texts, len(texts), half, finish_reason="error", tokens_per_forward=8.0, error="".join(texts)))
    other = head | {"request": "fork", "forked_from": {"request": name, "index": 0, "seq": 1}, "options": {name: texts[1]}}
    ended = [frame(1, texts[::-1], half, 0, head=other), frame(2, texts[::-1], len(texts), half, finish_reason="stop")]
    runs = [{"head": each["head"], "frames": run, "text": "".join(texts)} for run in (frames, ended) for each in run[:1]]
    return {"dlstep_recording": 1, "runs": runs}
