"""`dlstep batch`: process an OpenAI batch file into an output file."""

import sys
from contextlib import AbstractContextManager, closing, nullcontext
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import Any

from ..batch.options import BatchOptions
from ..engine.config import EngineConfig, engine_config
from ..extras import require
from .options import OF_SESSIONS, OF_STRATEGY, ArgumentParser, Namespace, engine_options

EXAMPLES = """dlstep batch in.jsonl out.jsonl             an embedded model, in this process
dlstep batch in.jsonl out.jsonl             again after a kill: it resumes
dlstep batch in.jsonl big.jsonl --model org/name --max_num_reqs 64
dlstep batch in.jsonl two.jsonl --ray local --actors 2
dlstep batch in.jsonl all.jsonl --ray auto  engines on all GPUs of a cluster
echo '{"custom_id": "a", "method": "POST", "url": "/v1/completions",
  "body": {"prompt": "Max has 5 eggs. Now Max gets 2 more. How many eggs does
  Max have?"}}' | tr -d '\\n' | tr -s ' ' > in.jsonl"""


@dataclass(frozen=True)
class BatchCommand:
    """Answer a file of requests in OpenAI's batch format. Run it again to resume. See docs/scaling.md."""

    input: Path
    """File of requests, one a line."""
    output: Path
    """File of answers, in the order of the requests."""
    _: KW_ONLY
    progress: bool = True
    """Draw a progress bar where stderr is a terminal."""


COMMAND = BatchCommand


def add_options(parser: ArgumentParser) -> None:
    """Add the options of the batch and of the engine."""
    parser.add_options(BatchOptions, "batch")
    parser.add_options(EngineConfig, "engine", without=(*OF_SESSIONS, *OF_STRATEGY))


def run(options: Namespace) -> int:
    """Answer all requests. Return 1 if an answer is an error, else 0."""
    require("dlstep batch", "serve")
    if options.ray is not None:
        require("dlstep batch --ray", "ray")
    from ..batch.checkpoint import answer_all, folder_of
    from ..batch.lines import read_lines
    from ..engine.json_lines import check_free
    from ..views.progress_bars import counting_bar

    chosen, out = options.of(BatchOptions), options.output
    config = engine_config(engine_options(options, BatchCommand, BatchOptions))
    lines = read_lines(str(options.input), options.input.read_bytes())
    if out.resolve() == options.input.resolve():
        raise ValueError(f"{options.input} is both input and output: give another OUT")
    check_free(folder_of(out))  # before loading the engine, which may take minutes
    with pool_of(config, chosen) as pool, counting_bar(len(lines), enabled=options.progress) as show:
        failed = answer_all(pool, lines, out, show)
    if failed:
        print(f"dlstep: {failed} of {len(lines)} answers are errors, see response.status_code in {out}", file=sys.stderr)
    return int(bool(failed))


def pool_of(config: EngineConfig, chosen: BatchOptions) -> AbstractContextManager[Any]:
    """Return the workers that answer."""
    if chosen.ray is None:
        from ..batch.engine import BatchEngine
        from ..engine.loader import load_engine
        from ..engine.step_limit import StepLimit
        from ..serve.settings import template_in

        limit = StepLimit(chosen.engine_timeout)
        return nullcontext(BatchEngine(load_engine(config), chosen.served_model_name, template_in(chosen.chat_template), limit))
    from ..batch.ray_pool import RayPool

    return closing(RayPool(config, chosen))
