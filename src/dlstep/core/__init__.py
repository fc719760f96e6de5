"""The pure core: immutable values and functions, without tensors, clocks or random state.

Reading order: spec, request, block, plan, sequence, block_pass, rule, state, then schedule and commit. Then read a strategy,
such as `strategies._blocks`. `lifecycle` adds and ends requests; `contract` calls and checks user code. The other modules are
details.
"""

from .ahead import AheadDriver as AheadDriver, PlanAhead as PlanAhead, plan_ahead as plan_ahead
from .block import (
    Block as Block,
    Extra as Extra,
    Grid as Grid,
    Replacement as Replacement,
    open_block as open_block,
    positions as positions,
)
from .block_pass import (
    BlockPass as BlockPass,
    BlockSamples as BlockSamples,
    PlannedPass as PlannedPass,
    planned_pass as planned_pass,
    samples_of as samples_of,
)
from .checks import (
    Fields as Fields,
    Json as Json,
    TableRow as TableRow,
    Texts as Texts,
    check_ranges as check_ranges,
    short as short,
)
from .commit import Prepared as Prepared, commit as commit, prepare as prepare
from .config import Config as Config
from .errors import (
    STATUS as STATUS,
    CacheMismatch as CacheMismatch,
    Code as Code,
    DlstepError as DlstepError,
    Refusal as Refusal,
    Refused as Refused,
    ReplayDiverged as ReplayDiverged,
    RequestFault as RequestFault,
    SamplesMismatch as SamplesMismatch,
)
from .lifecycle import (
    Abort as Abort,
    Add as Add,
    Adopt as Adopt,
    Event as Event,
    Fail as Fail,
    Grow as Grow,
    Prune as Prune,
    Rebuild as Rebuild,
    abort as abort,
    add as add,
    adopt as adopt,
    fail as fail,
    init as init,
    least_pages as least_pages,
    probe as probe,
    prune as prune,
    rebuild as rebuild,
    refusal as refusal,
)
from .options import (
    Options as Options,
    StrategyOptions as StrategyOptions,
    options_of as options_of,
    with_options as with_options,
)
from .plan import (
    ALONE as ALONE,
    EMPTY_CACHE as EMPTY_CACHE,
    JOINS as JOINS,
    NO_SAMPLES as NO_SAMPLES,
    PLAIN as PLAIN,
    Admission as Admission,
    CachingDriver as CachingDriver,
    Driver as Driver,
    Grant as Grant,
    Merge as Merge,
    OverlappingDriver as OverlappingDriver,
    PendingSamples as PendingSamples,
    Plan as Plan,
    Rows as Rows,
    Samples as Samples,
    SampleSpec as SampleSpec,
    SoftTokens as SoftTokens,
    Span as Span,
    SpanSamples as SpanSamples,
    Statistic as Statistic,
    Storing as Storing,
    Ties as Ties,
    Wanted as Wanted,
    WeightsDriver as WeightsDriver,
    next_cache_digest as next_cache_digest,
    overlapping as overlapping,
)
from .request import (
    Context as Context,
    Probability as Probability,
    Processor as Processor,
    Request as Request,
    SamplingParams as SamplingParams,
    SoFar as SoFar,
    Who as Who,
)
from .rule import (
    CanvasRule as CanvasRule,
    Choice as Choice,
    Rule as Rule,
    check_chosen as check_chosen,
    check_committed as check_committed,
    needs_canvas as needs_canvas,
    sampled_by as sampled_by,
)
from .schedule import schedule as schedule
from .sequence import (
    AddedRequest as AddedRequest,
    FinishReason as FinishReason,
    Progress as Progress,
    SequenceState as SequenceState,
    Strategy as Strategy,
    TokenChange as TokenChange,
)
from .spec import (
    Ids as Ids,
    NonNegativeFloat as NonNegativeFloat,
    NonNegativeInt as NonNegativeInt,
    Positions as Positions,
    PositiveFloat as PositiveFloat,
    PositiveInt as PositiveInt,
    Probabilities as Probabilities,
    Share as Share,
    Spec as Spec,
)
from .state import (
    Cache as Cache,
    State as State,
    Update as Update,
    WaitingQueue as WaitingQueue,
    updates as updates,
)
from .step_map import StepMap as StepMap, TrainingExample as TrainingExample, examples as examples
from .trace import Trace as Trace
