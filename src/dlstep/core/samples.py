"""What a driver reports about sampled positions: the specification of the statistics, and their values."""

from collections.abc import Sequence
from typing import Literal

from .values import value

Statistic = Literal["entropy", "margin", "noise"]
Ties = Literal["highest", "lowest"]
FEW_BEST = 8  # smallest `best` of a plan with `top_logprobs`: if most plans share one value, a device captures fewer graphs


@value
class SampleSpec:
    """Statistics that a strategy needs for each sampled position, and its tie-breaking."""

    statistics: frozenset[Statistic] = frozenset()
    """`entropy` and `margin` of the sampled distribution; `noise`, a uniform random id."""
    ties: Ties = "highest"
    """Which of equally probable ids greedy sampling selects."""
    best: int = 0
    """How many of the most probable ids to report with their probabilities."""
    tempered: bool = True
    """Whether probabilities are those after temperature and filters, or those of the plain softmax."""
    scored: int = 0
    """Maximum number of ids per sampled position whose probabilities a span may request."""
    all_ids: bool = False
    """Also allow the mask id and ids beyond the vocabulary, as published likelihoods do."""

    def covers(self, other: "SampleSpec") -> bool:
        """Return whether rows with these statistics contain those of `other`.

        Args:
            other: The statistics that are needed.
        """
        alike = (self.ties, self.tempered, self.all_ids) == (other.ties, other.tempered, other.all_ids)
        enough = self.best >= other.best and self.scored >= other.scored
        return alike and enough and self.statistics >= other.statistics


PLAIN = SampleSpec()


@value
class SpanSamples:
    """Results of one span, one entry per sampled position."""

    tokens: tuple[int, ...]
    """Sampled token ids; -1 in a row with non-finite logits."""
    probabilities: tuple[float, ...]
    """Probability of each token; 0.0 in a row with non-finite logits."""
    entropies: tuple[float, ...] = ()
    """Entropies in nats; empty unless requested."""
    margins: tuple[float, ...] = ()
    """Best minus second-best probability; empty unless requested."""
    best_ids: tuple[int, ...] = ()
    """For each entry in turn, its `SampleSpec.best` most probable ids, the most probable first.
    Ids of probability 0 are arbitrary and may repeat."""
    best_probabilities: tuple[float, ...] = ()
    """Probabilities of `best_ids`."""
    noise: tuple[int, ...] = ()
    """One uniform random id per entry; empty unless requested."""
    scored_probabilities: tuple[float, ...] = ()
    """Probabilities of `Span.scored_ids`, under the distribution that `SampleSpec` selects. They are 0.0
    for the id -1; with `tempered`, for ids that a filter removed; and without `all_ids`, for the mask id
    and ids beyond the vocabulary."""

    def at(self, rows: Sequence[int], best: int) -> "SpanSamples":
        """Return some rows, in this order.

        Args:
            rows: Indices of the rows.
            best: Number of most probable ids per row.
        """
        within = [index for row in rows for index in range(row * best, row * best + best)]
        return SpanSamples(
            tuple([self.tokens[row] for row in rows]),
            tuple([self.probabilities[row] for row in rows]),
            tuple([self.entropies[row] for row in rows]) if self.entropies else (),
            tuple([self.margins[row] for row in rows]) if self.margins else (),
            tuple([self.best_ids[index] for index in within]),
            tuple([self.best_probabilities[index] for index in within]),
            tuple([self.noise[row] for row in rows]) if self.noise else (),
        )

    def trimmed(self, given: "SampleSpec", needed: "SampleSpec") -> "SpanSamples":
        """Return the rows with only the statistics of `needed`.

        The span requests the scored ids, so their probabilities stay.

        Args:
            given: The statistics with which the rows were made.
            needed: The statistics of the strategy, which `given` covers.
        """
        if given == needed:
            return self
        ids, probabilities = self.best_ids, self.best_probabilities
        if needed.best != given.best:
            width = given.best
            kept = [index for index in range(len(ids)) if index % width < needed.best]
            ids, probabilities = tuple([ids[index] for index in kept]), tuple([probabilities[index] for index in kept])
        return SpanSamples(
            self.tokens,
            self.probabilities,
            self.entropies if "entropy" in needed.statistics else (),
            self.margins if "margin" in needed.statistics else (),
            ids,
            probabilities,
            self.noise if "noise" in needed.statistics else (),
            self.scored_probabilities,
        )


NO_SAMPLES = SpanSamples((), ())
