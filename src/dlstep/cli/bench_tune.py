"""`dlstep bench tune`: the tuner against the whole grid."""

from contextlib import nullcontext
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory

from jsonargparse import ArgumentParser, Namespace

from .options import new_parser

EXAMPLE = "dlstep bench tune"
COLUMNS = ("seed", "sets", "problems", "forwards", "grid_forwards", "forwards_share", "area", "grid_area", "area_share", "good")
SUMMARY = (
    "Tune tiny-bd over 20 sets of options, then decode the whole grid: the search must take at most 25 % of the grid's "
    "forwards, and find a frontier whose hypervolume on held-out problems is at least 97 % of that of the whole grid. "
    "Takes minutes; the exit code is 1 where it does not."
)


def parser() -> ArgumentParser:
    """The options of `dlstep bench tune`."""
    options = new_parser("dlstep bench tune [options]", SUMMARY, f"{EXAMPLE}\n{EXAMPLE} --seeds [1,2,3] --out kept")
    options.add_argument("--problems", type=int, default=500, help="Problems of the search.")
    options.add_argument("--held_out", type=int, default=500, help="Problems that both are measured on.")
    options.add_argument("--seeds", type=list[int] | int, default=[1], help="Seeds of the problems, each a row.")
    options.add_argument("--out", type=str | None, default=None, metavar="DIR", help="Keep the answers here; it goes on there.")
    return options


def rows(chosen: Namespace) -> list[dict[str, object]]:
    """Rows of `bench.tune`."""
    from ..bench.tune import MODEL, measure_tuner
    from ..llm import LLM
    from ..progress import tuning_bar

    for name in ("problems", "held_out"):
        if chosen[name] < 1:
            raise ValueError(f"--{name} must be at least 1, got {chosen[name]}")
    seeds = chosen.seeds if isinstance(chosen.seeds, list) else [chosen.seeds]
    kept = TemporaryDirectory() if chosen.out is None else nullcontext(chosen.out)
    with kept as folder, tuning_bar(enabled=True) as show:
        measured = measure_tuner(
            LLM(**MODEL).engine, seeds, Path(folder), show, problems=chosen.problems, held_out=chosen.held_out
        )
        return [asdict(row) for row in measured]
