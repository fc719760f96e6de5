"""Forward passes of a block as a rule sees them, made by hand."""

from dlstep.core import Block, BlockPass, BlockSamples, PlannedPass, Rule, SequenceState, SpanSamples, Spec


def pass_of(
    rule: Rule, sequence: SequenceState, block: Block, samples: SpanSamples, spec: Spec, *, must: bool = True
) -> BlockPass:
    """The pass that `sequence` has just counted, with samples of the positions that `rule` samples."""
    planned = PlannedPass(block, sequence.steps - block.opened - 1, sequence.request.limit, sequence)
    own = BlockSamples(*[getattr(samples, name) for name in BlockSamples._fields])
    return BlockPass(*planned, rule.sampled(planned), own, must, spec)
