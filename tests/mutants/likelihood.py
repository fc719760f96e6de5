"""Mutants of likelihoods, and of prompts that continue a last turn."""

from .catalogue import Mutant, change

LIKELIHOOD, NETWORK, RENDERING = "evaluate/likelihood.py", "models/networks/network.py", "text/rendering.py"

MUTANTS = (
    change("the mask id has no share of a likelihood", LIKELIHOOD, "named=1, all_ids=True", "named=1"),
    change("all ids are those of the tokenizer", NETWORK, "if batch.sampler.all_ids:", "if False:"),
    change("each number of masks weighs alike", LIKELIHOOD, "length / len(own) * logs[own]", "logs[own]"),
    Mutant(
        "even numbers of masks are drawn more often", LIKELIHOOD,
        (("first = random.random() * length", "first = random.randrange(length)"), ("[int(first + number", "[round(first + number")),
    ),
    change("the same offsets are masked in every sample", LIKELIHOOD, "random.sample(range(length), count)", "range(count)"),
    change("samples of a batch count as independent", LIKELIHOOD, "stdev(means) / len(means) ** 0.5", "stdev(means) / len(weighed) ** 0.5"),
    change("equal masks are computed again", LIKELIHOOD, "asked = list(dict.fromkeys(each))", "asked = each"),
    change("greedy decoding goes on from its own token", LIKELIHOOD, "if same[number] else ()", ""),
    change("the least certain token is decided first", LIKELIHOOD, "best = max(range", "best = min(range"),
    change("figures depend on the order of requests", LIKELIHOOD, 'Random(f"{settings.seed} {pair}")', 'Random(f"{settings.seed} {id(pair)}")'),
    change("blocks of any size are exact", LIKELIHOOD, "and strategy.block_size == 1", ""),
    change("an answer that is too long is cut", LIKELIHOOD, "if len(prompt) + len(answer) > room:", "if False:"),
    change("blanks at the end of a last turn are lost", RENDERING, "return text[:end] if text.startswith(END_OF_LAST, end) else text[:end].rstrip()", "return text[:end].rstrip()"),
    change("a last turn that a template cut is continued", RENDERING, "if end < 0 or last.strip() not in text:", "if end < 0:"),
)  # fmt: skip
