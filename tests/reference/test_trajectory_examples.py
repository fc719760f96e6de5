"""Training examples equal those that published trainers build from step maps, on random runs without remasking.

TraceRL (Wang et al., "Revolutionizing Reinforcement Learning Framework for Diffusion Large Language Models", 2025,
arXiv 2509.06949): the distinct steps of an answer, in order, are grouped by `shrink`; in a group, every position of this group
or of a later one is masked, and the positions of the group are the targets. diffu-GRPO (d1, arXiv 2504.12216) masks the whole
answer once.
"""

# pyright: reportOptionalMemberAccess=false, reportArgumentType=false

import pytest
from hypothesis import given, strategies as st

from dlstep import examples, strategies
from dlstep.core.step_map import step_map_of
from dlstep.testing.generators import cases
from dlstep.testing.harness import run_case

from ..property.test_step_maps import MANY, asking

FILLING = [name for name in strategies.available() if name not in ("diffusion_gemma", "dreamon", "multi_bd_edit", "dmax")]


def collapsed(steps, shrink):
    """The published shrinking: each step becomes the last one of its group of `shrink` distinct steps."""
    distinct = sorted(set(steps))
    ends = {step: distinct[min((at // shrink + 1) * shrink, len(distinct)) - 1] for at, step in enumerate(distinct)}
    return [ends[step] for step in steps]


def published(prompt, tokens, steps, mask, shrink):
    """Input and targets of each group; positions without a step were given or stay masked."""
    known = [at for at, step in enumerate(steps) if step is not None]
    groups = dict(zip(known, collapsed([steps[at] for at in known], shrink), strict=True))
    found = []
    for now in sorted(set(groups.values())):
        noisy = [mask if groups.get(at, -1) >= now or token is None else token for at, token in enumerate(tokens)]
        chosen = [at for at in known if groups[at] == now]
        found.append(((*prompt, *noisy), tuple(len(prompt) + at for at in chosen), tuple(tokens[at] for at in chosen)))
    return found


@pytest.mark.parametrize("name", FILLING)
@MANY
@given(data=st.data())
def test_examples_are_the_published_ones(name, data):
    run = run_case(asking(data.draw(cases(strategies.load(name)))))
    shrink = data.draw(st.integers(1, 5))
    for sequence in run.state.finished.values():
        found = step_map_of(sequence, run.case.config.spec)
        offsets = [change.offset for change in found.changes]
        if len(set(offsets)) < len(offsets):
            continue  # a proposal was dropped, or a rule remasked: published maps have one step for each position
        tokens, steps, mask = found.token_ids, found.steps, found.mask_id
        assert [example[:3] for example in examples(found, shrink)] == published(found.prompt_ids, tokens, steps, mask, shrink)
        once = [step if step is None else 0 for step in steps]
        whole = published(found.prompt_ids, tokens, once, mask, 1)
        assert [example[:3] for example in examples(found, "answer")] == whole
        ends = [*found.block_starts[1:], len(tokens)]
        by_block = [step if step is None else sum(at >= end for end in ends) for at, step in enumerate(steps)]
        assert [example[:3] for example in examples(found, "block")] == published(found.prompt_ids, tokens, by_block, mask, 1)
        plain = {len(found.prompt_ids) + own.offset: own.plain_log_probability for own in found.token_changes if own}
        for example in examples(found, shrink):
            assert [plain[at] for at in example.positions] == [*example.plain_log_probabilities]
