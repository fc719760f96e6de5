"""Forward passes of a block as a rule sees them, made by hand."""

from dlstep.core import Block, BlockPass, BlockSamples, PlannedPass, Rule, SequenceState, SpanSamples, Spec


def pass_of(
    rule: Rule, sequence: SequenceState, block: Block, samples: SpanSamples, spec: Spec, *, must: bool = True
) -> BlockPass:
    """The pass that `sequence` has just counted, with samples of the positions that `rule` samples."""
    sampled = rule.sampled(PlannedPass(block, sequence.steps - block.opened - 1, sequence.request.limit, sequence))
    return BlockPass(block, sequence, BlockSamples(sampled, samples, 0, len(sampled)), spec, must)
