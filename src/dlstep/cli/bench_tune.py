"""`dlstep bench tune`: the tuner compared with other methods of choosing sets of options."""

from contextlib import nullcontext
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory

from jsonargparse import ArgumentParser, Namespace

from .options import new_parser

EXAMPLE = "dlstep bench tune"
COLUMNS = ("values", "sets", "method", "area", "worst_area", "forwards", "good")
SUMMARY = (
    "Decode whole grids of options of tiny-bd, then simulate `dlstep tune`, an even grid and the samplers of Optuna "
    "on the answers. Report the share of the grid's hypervolume on held-out problems that each finds, over many orders of the "
    "problems. Takes minutes; the exit code is 1 if another method finds more than `dlstep tune`."
)


def parser() -> ArgumentParser:
    """The options of `dlstep bench tune`."""
    options = new_parser("dlstep bench tune [options]", SUMMARY, f"{EXAMPLE}\n{EXAMPLE} --share 0.5 --out kept")
    options.add_argument("--problems", type=int, default=200, help="Problems of the search.")
    options.add_argument("--held_out", type=int, default=200, help="Held-out problems, on which the results are measured.")
    options.add_argument("--orders", type=int, default=20, help="Orders of the problems.")
    options.add_argument(
        "--share", type=float, default=0.2, help="Share of the grid's forward passes that each method may use."
    )
    options.add_argument("--out", type=str | None, default=None, metavar="DIR", help="Keep the answers here, and resume there.")
    return options


def rows(chosen: Namespace) -> list[dict[str, object]]:
    """Rows of `bench.tune`."""
    from ..bench.tune import MODEL, measure_tuner
    from ..evaluate.tuning import check_optuna
    from ..llm import LLM
    from ..views.progress_bars import tuning_bar

    check_optuna("dlstep bench tune")
    for name in ("problems", "held_out", "orders"):
        if chosen[name] < 1:
            raise ValueError(f"--{name} must be at least 1, got {chosen[name]}")
    asked = {name: chosen[name] for name in ("problems", "held_out", "orders", "share")}
    kept = TemporaryDirectory() if chosen.out is None else nullcontext(chosen.out)
    with kept as folder, tuning_bar(enabled=True) as show:
        return [asdict(row) for row in measure_tuner(LLM(**MODEL).engine, Path(folder), show, **asked)]
