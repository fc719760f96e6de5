"""Views of the core's values: lines of text, rich renderables for terminals, HTML for notebooks, pictures and pages."""

from .diffing import ValueDiff as ValueDiff, diff as diff
from .frames import framed as framed, recording as recording
from .notebook import state_html as state_html, steps_html as steps_html
from .observations import (
    Picture as Picture,
    candidates_picture as candidates_picture,
    entropy_picture as entropy_picture,
    filling_picture as filling_picture,
)
from .page import page_of as page_of
from .stays import Stay as Stay, stays as stays
from .terminal import (
    answer_text as answer_text,
    answer_title as answer_title,
    frames_view as frames_view,
    legend as legend,
    table as table,
)
