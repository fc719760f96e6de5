"""`dlstep batch`: process an OpenAI batch file into an output file."""

import sys
from contextlib import closing
from dataclasses import fields
from pathlib import Path
from typing import Any

from ..engine.config import EngineConfig, engine_config
from ..engine.option_help import field_help
from ..extras import require
from .options import OF_STRATEGY, add_config_option, add_options, new_parser
from .parser import ArgumentParser, Namespace

EXAMPLES = """
    dlstep batch in.jsonl out.jsonl               an embedded model, in this process
    dlstep batch in.jsonl out.jsonl               again, after it was killed: it resumes
    dlstep batch in.jsonl big.jsonl --model /path/to/checkpoint --device cuda --max_num_reqs 64
    dlstep batch in.jsonl two.jsonl --ray local --actors 2
    dlstep batch in.jsonl all.jsonl --ray auto    engines on all GPUs of the cluster that this machine is in
    echo '{"custom_id": "a", "method": "POST", "url": "/v1/completions",
      "body": {"prompt": "Max has 5 eggs. Now Max gets 2 more. How many eggs does
      Max have?"}}' | tr -d '\\n' | tr -s ' ' > in.jsonl
"""
ENGINE_FIELDS = tuple(field for field in fields(EngineConfig) if field.name not in OF_STRATEGY)
OWN = ("input", "output", "config", "progress")


def parser() -> ArgumentParser:
    """Return the parser of `dlstep batch`, without the options of the strategy."""
    from ..batch.options import BatchOptions

    options = new_parser(
        "dlstep batch IN.jsonl OUT.jsonl [options]",
        "Answer a file of requests in OpenAI's batch format. Run it again to resume. See docs/scaling.md.",
        EXAMPLES,
    )
    options.add_argument("input", type=str, metavar="IN.jsonl", help="File of requests, one a line.")
    options.add_argument("output", type=str, metavar="OUT.jsonl", help="File of answers, in the order of the requests.")
    add_config_option(options)
    add_options(options, "batch", BatchOptions, fields(BatchOptions), field_help(BatchOptions))
    options.add_argument("--progress", type=bool, default=True, help="Draw a progress bar where stderr is a terminal.")
    add_options(options, "engine", EngineConfig, ENGINE_FIELDS, field_help(EngineConfig))
    return options


def run(options: Namespace) -> int:
    """Answer all requests. Return 1 if an answer is an error, else 0."""
    require("dlstep batch", "serve")
    if options.ray is not None:
        require("dlstep batch --ray", "ray")
    from ..batch.checkpoint import folder_of
    from ..batch.lines import read_lines
    from ..batch.options import BatchOptions
    from ..batch.runner import answer_all
    from ..engine.run_lock import check_free
    from ..views.progress_bars import counting_bar

    names = [field.name for field in fields(BatchOptions)]
    chosen = BatchOptions(**{name: options[name] for name in names})
    config = engine_config({name: value for name, value in vars(options).items() if name not in (*names, *OWN)})
    lines = read_lines(options.input, Path(options.input).read_bytes())
    out = Path(options.output)
    if out.resolve() == Path(options.input).resolve():
        raise ValueError(f"{options.input} is both input and output: give another OUT")
    check_free(folder_of(out))  # before loading the engine, which may take minutes
    with closing(pool_of(config, chosen)) as pool, counting_bar(len(lines), enabled=options.progress) as show:
        failed = answer_all(pool, lines, out, show)
    if failed:
        print(f"dlstep: {failed} of {len(lines)} answers are errors, see response.status_code in {out}", file=sys.stderr)
    return int(bool(failed))


def pool_of(config: EngineConfig, chosen: Any) -> Any:
    """Return the workers that answer."""
    if chosen.ray is None:
        from ..batch.engine import BatchEngine
        from ..engine.loader import load_engine

        return BatchEngine(load_engine(config), chosen.served_model_name, chosen.template())
    from ..batch.ray_pool import RayPool

    return RayPool(config, chosen)
