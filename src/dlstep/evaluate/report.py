"""The report of a run as text, and the trace of an answer that is decoded again alone."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from ..batch.facts import facts_of
from ..core import DlstepError, SamplingParams, Trace, short
from ..engine.config import engine_config
from ..engine.json_lines import Line, RunLock, check_free
from ..llm import LLM
from ..text.prompts import encode
from ..text.words import clipped, printable
from .checkpoint import EvalRun
from .items import Key

MOST_WRONG = 5  # answers in a text
TAIL = 57  # characters of a wrong answer


def names_of(run: EvalRun) -> dict[Key, str]:
    """Return the name of each answer for `--show`, such as `gsm8k/7` or `gsm8k/7/2`."""
    numbers = {text: number for number, text in enumerate(dict.fromkeys(options for _, _, options in run.rows), 1)}
    several = len(numbers) > 1
    return {key: f"{key[0]}/{key[1]}/{numbers[key[2]]}" if several else f"{key[0]}/{key[1]}" for key in run.rows}


def wrong(run: EvalRun) -> dict[str, Line]:
    """Return the answers with a score below 1 by name, the lowest score first, then in order."""
    names = names_of(run)
    missed = {names[key]: row for key, row in run.rows.items() if row["score"] < 1}
    return dict(sorted(missed.items(), key=lambda each: each[1]["score"]))


def report_lines(run: EvalRun) -> Iterator[str]:
    """Yield the wrong answers, at most 80 characters per line."""
    missed = wrong(run)
    yield f"Wrong answers: {len(missed)} of {len(run.rows)}"
    for name, row in [*missed.items()][:MOST_WRONG]:
        reason = str(row["error"] or row["note"]) or f"{row['found']} instead of {row['gold']}"
        yield clipped(f"  {name}: {printable(reason)}", 80)
        yield f"    ...{printable(str(row['answer']).strip())[-TAIL:]}"
    if missed:
        yield "Step into the first:"
        yield f"  dlstep report {run.folder} --show {next(iter(missed))}"


def shown(run: EvalRun, name: str) -> tuple[Line, Trace, Path]:
    """Decode an answer again, alone, and save the trace in the run's folder. Return the answer, the trace and its path.

    Raises ValueError for an unknown name, if the model or its options differ from those of the run, if
    these options were Python values, or if another process writes to the folder, and DlstepError if
    the answer differs.
    """
    check_free(run.folder)
    names = {name: key for key, name in names_of(run).items()}
    if name not in names:
        raise ValueError(f"--show {short(name)} is not an answer of {run.folder}: names are like {next(iter(names))}")
    row, given_options = run.rows[names[name]], run.settings["told"]
    if "engine" not in given_options:
        raise ValueError(f"{run.folder} was not written by the command `dlstep eval`, so --show cannot read its options")
    llm = LLM.from_config(engine_config(given_options["engine"]))
    stored, facts = run.settings["key"]["engine"], facts_of(llm.engine)
    if facts != stored:
        raise ValueError(f"engine of {run.folder} was {short(stored)} and is now {short(facts)}")
    with closing(RunLock(run.folder)), closing(llm.session()) as session:
        prompt = encode(llm.engine, row["prompt"], special=row["special"], ends=row["special"])
        session.submit(prompt, SamplingParams(**row["params"] | {"seed": row["seed"], "strategy_options": row["options"]}))
        session.run()
        tokens = list(session.output(0).token_ids)
        if tokens != row["tokens"]:
            raise DlstepError(f"{name} decoded alone gives {short(tokens)}, but {short(row['tokens'])} in the run")
        path = run.folder / "traces" / f"{name.replace('/', '-')}.jsonl"
        path.parent.mkdir(exist_ok=True)
        session.trace.save(path)
        return row, session.trace, path
