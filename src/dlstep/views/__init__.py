"""Views of the core's values: HTML for notebooks, rich renderables for terminals."""

from .cells import Stay as Stay, stays as stays
from .diff_html import state_diff_html as state_diff_html, trace_diff_html as trace_diff_html
from .differences import StateDiff as StateDiff, TraceDiff as TraceDiff
from .diffing import diff as diff
from .html import (
    page_map_html as page_map_html,
    plan_html as plan_html,
    sequence_html as sequence_html,
    state_html as state_html,
    trace_html as trace_html,
)
from .notebook import register as register
from .steps import steps_html as steps_html
from .svg import filling_svg as filling_svg
from .terminal import (
    PHASE_STYLES as PHASE_STYLES,
    USE_STYLES as USE_STYLES,
    answer_text as answer_text,
    fill_order as fill_order,
    frames_view as frames_view,
    legend as legend,
    page_map as page_map,
    plan_view as plan_view,
    sequence_view as sequence_view,
    state_view as state_view,
    table as table,
    trace_view as trace_view,
)
