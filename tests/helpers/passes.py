"""Forward passes of a block as a rule sees them, made by hand."""

from dlstep.core import Block, BlockPass, PlannedPass, Rule, SequenceState, SpanSamples, Spec


def pass_of(
    rule: Rule, sequence: SequenceState, block: Block, samples: SpanSamples, spec: Spec, *, must: bool = True
) -> BlockPass:
    """The pass that `sequence` has just counted, with samples of the positions that `rule` samples."""
    number, limit = sequence.steps - block.opened - 1, sequence.request.limit
    planned = PlannedPass(block=block, number=number, limit=limit, sequence=sequence)
    return BlockPass(
        block=block,
        number=number,
        limit=limit,
        sequence=sequence,
        sampled=rule.sampled(planned),
        samples=samples,
        must=must,
        spec=spec,
    )
