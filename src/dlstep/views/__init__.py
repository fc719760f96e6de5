"""Views of the core's values: HTML for notebooks, rich renderables for terminals."""

from .cells import Stay as Stay, fill_order as fill_order, stays as stays
from .diffing import ValueDiff as ValueDiff, diff as diff
from .frames import recording as recording
from .html import (
    diff_html as diff_html,
    page_map_html as page_map_html,
    plan_html as plan_html,
    register as register,
    sequence_html as sequence_html,
    state_html as state_html,
    steps_html as steps_html,
    trace_html as trace_html,
)
from .observations import (
    Picture as Picture,
    candidates_picture as candidates_picture,
    entropy_picture as entropy_picture,
)
from .page import page_of as page_of
from .svg import filling_svg as filling_svg
from .terminal import (
    PHASE_STYLES as PHASE_STYLES,
    answer_text as answer_text,
    frames_view as frames_view,
    legend as legend,
    sequence_view as sequence_view,
    table as table,
)
