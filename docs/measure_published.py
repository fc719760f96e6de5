"""Measure where a rule decides otherwise than its authors' released code, and write the table of `docs/published_code.md`.

Each pair answers the same held-out stories on the same embedded model, once as here and once as the released code decides. The
classes below are that code's decisions, reimplemented; `tests/reference/test_published_rules.py` compares them with restated
loops.
"""

from dataclasses import dataclass
from math import fsum, inf
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any, final

import torch
from annotated_types import Gt
from rich.progress import track
from transformers import AutoModelForCausalLM, AutoTokenizer

from dlstep import LLM, SamplingParams, tiny
from dlstep.core import (
    Block,
    BlockPass,
    CanvasRule,
    Choice,
    Extra,
    PlannedPass,
    Probability,
    Rule,
    SampleSpec,
    check_ranges,
)
from dlstep.evaluate.checkpoint import read
from dlstep.evaluate.comparing import RUNS, ComparisonRow, compared, entries, folder_of
from dlstep.evaluate.options import EvalOptions
from dlstep.rules.credit import Credit
from dlstep.rules.dilated import Dilated
from dlstep.rules.quota import Quota
from dlstep.rules.running_confidence import RunningConfidence
from dlstep.rules.saber import Saber
from dlstep.rules.threshold import Threshold
from training.stories import score

PROBLEMS = 200
LENGTH = 32  # positions of a canvas
PAGE = Path(__file__).parent / "published_code.md"
BEGIN, LOOPS, END = "<!-- table -->\n", "<!-- loops -->\n", "<!-- end of table -->\n"
TINY_BLOCK = 8  # of `tiny-bd`
CUT_LENGTHS = (12, 20)  # shorter than most answers
ENDS, WORDS = (2,), 192  # of `tiny-llada`
Steps = Annotated[int, Gt(0)]


def highest(scores: dict[int, float], count: int) -> list[int]:
    """Return the `count` keys with the largest scores, ascending; of equal ones the lowest."""
    return sorted(sorted(scores, key=lambda key: (-scores[key], key))[:count])


@final
@dataclass(frozen=True, slots=True)
class QuotaWithoutEnds(Choice):
    """LLaDA with `confidence_eos_eot_inf`: the softmax that positions are ranked by leaves the `end_ids` out."""

    steps_per_block: Steps = 4
    end_ids: tuple[int, ...] = ()
    vocab_size: Annotated[int, Gt(0)] = 1

    @property
    def sample_spec(self) -> SampleSpec:
        """The probabilities of all ids, among them the ends."""
        return SampleSpec(best=self.vocab_size)

    def chosen(self, block_pass: BlockPass) -> list[int]:
        """The indices of the schedule by the probability among the other ids; that of an end is 0."""
        samples, number, width = block_pass.samples, block_pass.number, self.vocab_size
        size = len(block_pass.block.sampled(block_pass.limit))
        scores = dict.fromkeys(range(len(samples.tokens)), 0.0)
        for index in scores:
            if samples.tokens[index] not in self.end_ids:
                own = slice(index * width, (index + 1) * width)
                pairs = zip(samples.best_ids[own], samples.best_probabilities[own], strict=True)
                others = 1.0 - fsum(chance for token, chance in pairs if token in self.end_ids)
                scores[index] = samples.probabilities[index] / others
        return highest(scores, max(size // self.steps_per_block + (number < size % self.steps_per_block), 1))


@final
@dataclass(frozen=True, slots=True)
class QuotaOfBlock(Choice):
    """SDAR: shares of the whole block, also where the prompt ends in it. What it overwrites then is left out."""

    steps_per_block: Steps = 4

    def chosen(self, block_pass: BlockPass) -> list[int]:
        """The most probable indices."""
        scores = dict(enumerate(block_pass.samples.probabilities))
        share, over = divmod(len(block_pass.block.tokens), self.steps_per_block)
        return highest(scores, max(share + (block_pass.number < over), 1))


@final
@dataclass(frozen=True, slots=True)
class FallingWithSuffix(Choice):
    """Streaming-dLLM: the share of masks that lowers the threshold is that of the block and of the suffix that is fed."""

    accept_threshold: Probability = 0.9
    falling: Probability = 0.3
    suffix: Annotated[int, Gt(0)] = 33
    """Maximum number of positions after the block that are fed."""

    def chosen(self, block_pass: BlockPass) -> list[int]:
        """The indices at or above the threshold, or the best one."""
        block, limit = block_pass.block, block_pass.limit
        after = min(limit - min(block.end, limit), self.suffix)
        size, masks = len(block.sampled(limit)), len(block.masked)
        least = self.accept_threshold * (1.0 - self.falling * (1.0 - (masks + after) / (size + after)))
        scores = dict(enumerate(block_pass.samples.probabilities))
        return [index for index, chance in scores.items() if chance >= least] or highest(scores, int(block_pass.must))


@final
@dataclass(frozen=True, slots=True)
class Seen(Extra):
    """Confidence of each sampled position when last unmasked and in the last pass; the end of the current block."""

    unmasked: tuple[float | None, ...]
    before: tuple[float, ...]
    reach: int


@final
@dataclass(frozen=True, slots=True)
class SaberOverBlocks(CanvasRule):
    """Saber with several blocks: the mean covers all blocks so far, and their tokens may be remasked."""

    size: Annotated[int, Gt(0)] = 8
    least_taken: Annotated[int, Gt(0)] = 2

    def __post_init__(self) -> None:
        check_ranges(self)

    @property
    def whole(self) -> bool:
        """Tokens of all blocks."""
        return True

    @property
    def remasks(self) -> bool:
        """Tokens may be remasked."""
        return True

    def sampled(self, planned: PlannedPass) -> tuple[int, ...]:
        """All positions up to the end of the current block."""
        return planned.block.sampled(planned.limit)[: self._seen(planned.block, planned.limit).reach]

    def commit(self, block_pass: BlockPass) -> Block:
        """Unmask what is above the mean, then remask what fell most."""
        block, spec, tokens = block_pass.block, block_pass.spec, block_pass.samples.tokens
        sampled, least = block.sampled(block_pass.limit), self.least_taken
        seen = self._seen(block, block_pass.limit)
        now = block_pass.samples.probabilities
        masks = {place: now[place] for place in range(seen.reach) if sampled[place] in set(block.masked)}
        known = [chance for chance in seen.unmasked if chance is not None]
        mean = fsum(known) / len(known) if known else 1.0
        chosen = [place for place, chance in masks.items() if chance > mean]
        chosen = chosen if len(chosen) >= least else highest(masks, least)
        block = block.unmask([sampled[p] for p in chosen], [tokens[p] for p in chosen], [now[p] for p in chosen])
        unmasked = [now[place] if place in chosen else old for place, old in enumerate(seen.unmasked)]
        left, number = set(block.masked), max(least, len(chosen))
        reach = seen.reach
        if not left.intersection(sampled[:reach]):
            reach = min(reach + self.size, len(sampled))
        else:
            assert spec.mask_id is not None
            falls = {place: seen.before[place] - now[place] for place in range(reach) if sampled[place] not in left}
            back = highest(falls, min(max(least // 2, -(-number // 8)), number - 1))
            block = block.remask([sampled[place] for place in back], spec.mask_id)
        return block.with_extra(Seen(tuple(unmasked), (*now, *[-inf] * (len(sampled) - len(now))), reach))

    def _seen(self, block: Block, limit: int) -> Seen:
        count = len(block.sampled(limit))
        return block.extra if isinstance(block.extra, Seen) else Seen((None,) * count, (0.0,) * count, min(self.size, count))


# Rule, what differs, carrier, here, as released.
PAIRS: tuple[tuple[str, str, str, Rule, Rule], ...] = (
    ("quota", "end ids in the softmax of `eos_last`", "dual_cache", Quota(4, eos_last=True), QuotaWithoutEnds(4, ENDS, WORDS)),
    ("quota", "shares where the prompt ends in a block", "multi_bd", Quota(4), QuotaOfBlock(4)),
    ("running_confidence", "other blocks' tokens", "dual_cache", RunningConfidence(4), RunningConfidence(4, segment_size=8)),
    ("threshold", "what `falling` counts", "dual_cache", Threshold(inclusive=True, falling=0.3), FallingWithSuffix()),
    ("saber", "other blocks' tokens", "dual_cache", Saber(), SaberOverBlocks()),
    ("credit", "`inclusive`", "multi_bd", Credit(), Credit(inclusive=True)),
    ("dilated", "`keep`", "dual_cache", Dilated(), Dilated(keep=0.3)),
)


def measured(carrier: str, rule: Rule, problems: int) -> tuple[ComparisonRow, list[str]]:
    """Return the row of a rule on the embedded model of a carrier, and the answers."""
    options: dict[str, Any] = {"block_size": 8} | ({"buffer_size": 1} if carrier == "multi_bd" else {"cache": "none"})
    (entry,), _ = entries([rule], [carrier], grid={}, **options)
    with TemporaryDirectory() as folder:
        (row,) = compared([entry], EvalOptions(tasks=("shells",), dataset_limit=problems), Path(folder))
        (pairs,) = read(Path(folder) / RUNS / folder_of(entry)).groups.values()
    return row, [line["answer"] for line, _ in pairs]


def unsampled_shares(problems: int) -> tuple[list[float], list[float]]:
    """Return the probabilities of the mask id, and of all ids beyond the tokenizer, at each mask of fresh canvases."""
    folder = tiny.path("tiny-llada")
    network, tokenizer = AutoModelForCausalLM.from_pretrained(folder).float(), AutoTokenizer.from_pretrained(folder)
    mask_id, masks, beyond = network.config.mask_token_id, list[float](), list[float]()
    for problem in tiny.problems(problems, 0):
        canvas = [*tokenizer(problem.prompt)["input_ids"], *[mask_id] * LENGTH]
        sees = torch.ones(1, 1, len(canvas), len(canvas), dtype=torch.bool)
        with torch.no_grad():
            logits = network(torch.tensor([canvas]), attention_mask=sees, use_cache=False).logits[0, -LENGTH:]
        masks += logits.softmax(-1)[:, mask_id].tolist()
        beyond += logits.softmax(-1)[:, len(tokenizer) :].sum(-1).tolist()
    return masks, beyond


def loop_lines(problems: int) -> list[str]:
    """Return the rows about whole last blocks and about one block at a time, on `tiny-bd`.

    A loop that decodes its whole last block and then cuts gives the beginning of the answer that completes this block.
    """
    rows, stories = list[str](), tiny.problems(problems, 0)
    prompts = [story.prompt for story in stories]
    one, four = LLM("tiny-bd", buffer_size=1), LLM("tiny-bd")
    size, tokenizer = TINY_BLOCK, one.engine.tokenizer
    assert tokenizer is not None, "embedded models have one"
    starts = [len(tokenizer.encode(prompt, add_special_tokens=False)) for prompt in prompts]
    for length in CUT_LENGTHS:
        cut = one.generate(prompts, SamplingParams(max_tokens=length), progress=False)
        rounded = [SamplingParams(max_tokens=-(-(start + length) // size) * size - start) for start in starts]
        whole = one.generate(prompts, rounded, progress=False)
        differ = sum(here.token_ids != other.token_ids[:length] for here, other in zip(cut, whole, strict=True))
        ended = sum(output.finish_reason == "length" for output in cut)
        rows.append(f"| positions past `max_tokens={length}` | {differ} of {ended} that end by length |")
    outputs = [llm.generate(prompts, SamplingParams(max_tokens=64), progress=False) for llm in (one, four)]
    right = [sum(score(story, each.text).answer for story, each in zip(stories, some, strict=True)) for some in outputs]
    differ = sum(here.token_ids != other.token_ids for here, other in zip(*outputs, strict=True))
    rows.append(f"| `buffer_size=4` instead of 1 | {differ} of {problems}; right: {right[1]} instead of {right[0]} |")
    return rows


def cell(row: ComparisonRow) -> str:
    """Return accuracy with its interval of 95 % and tokens per forward pass with its standard error."""
    return (
        f"{row.accuracy:.1%} [{row.accuracy_low:.1%}, {row.accuracy_high:.1%}], {row.tokens_per_forward:.3f} ± "
        f"{row.tokens_per_forward_error or 0:.3f}"
    )


def main() -> None:
    """Write the table."""
    lines = ["| rule | what differs | model | here | as released | answers that differ |", "|---|---|---|---|---|---|"]
    for name, what, carrier, here, released in track(PAIRS, "measuring"):
        (one, answers), (other, others) = (measured(carrier, rule, PROBLEMS) for rule in (here, released))
        differ = sum(mine != theirs for mine, theirs in zip(answers, others, strict=True))
        cells = (f"[`{name}`](strategies/{name}.md)", what, f"`{one.model}`", cell(one), cell(other), f"{differ} of {PROBLEMS}")
        lines.append(f"| {' | '.join(cells)} |")
        print(lines[-1], flush=True)
    put(lines, BEGIN)
    write_loops()


def write_loops() -> None:
    """Write the second table, and the probabilities below it."""
    lines = ["| what differs, on `tiny-bd` with `multi_bd` | answers that differ |", "|---|---|", *loop_lines(PROBLEMS)]
    for what, shares in zip(("the mask id", "all ids beyond the tokenizer"), unsampled_shares(PROBLEMS), strict=True):
        lines.append(f"\nProbability of {what}: {fsum(shares) / len(shares):.1e} on average, {max(shares):.1e} at most.")
    put(lines, LOOPS)


def put(lines: list[str], begin: str) -> None:
    """Write lines into the page, between this mark and the next end of a table."""
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(begin)
    _, _, after = rest.partition(END)
    PAGE.write_text("".join((before, begin, "\n".join(lines), "\n", END, after)), encoding="utf-8")


if __name__ == "__main__":
    main()
