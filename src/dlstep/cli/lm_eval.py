"""`dlstep-lm-eval`: the command of lm_eval, with dlstep as one of its models."""

import sys

from ..core import DlstepError
from ..extras import require


def main() -> None:
    """Run `lm_eval`, and end with a one-line error for invalid values and unsuitable tasks."""
    try:
        require("dlstep-lm-eval", "eval")
        from lm_eval.__main__ import cli_evaluate  # pyright: ignore[reportMissingImports]

        from ..evaluate import harness as harness  # registers dlstep as a model of lm_eval

        cli_evaluate()
    except (ValueError, DlstepError) as error:
        sys.exit(f"dlstep-lm-eval: error: {error}")
