"""Compare sessions that step in turns with the same sessions run one after the other."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from time import perf_counter, process_time

from dlstep.core import SamplingParams
from dlstep.llm import LLM
from dlstep.session import Session
from dlstep.tiny import problems

from . import entry

PARAMS = SamplingParams(max_tokens=96, ignore_eos=True)
REPETITIONS = 5


@dataclass(frozen=True, slots=True)
class SessionsCost:
    """Seconds of sessions with one request each; `ratio` divides taking turns by running in
    sequence."""

    sessions: int
    steps: int
    turns_s: float
    one_by_one_s: float
    ratio: float


def measure_sessions(model: str, device: str, sessions: int) -> Iterator[SessionsCost]:
    """Yield the minimum times over interleaved repetitions. Raises ValueError for no session.

    On a CPU, which may be shared, the times are processor times of this process.
    """
    if sessions < 1:
        raise ValueError(f"--sessions must be at least 1, got {sessions}")
    clock = process_time if device == "cpu" else perf_counter
    llm = LLM(model, device=device, max_sessions=sessions)  # a place on the device for each session
    prompts = [problem.prompt for problem in problems(sessions, seed=3)]
    turns, one_by_one = float("inf"), float("inf")
    steps = 0
    for _ in range(REPETITIONS):
        seconds, steps = timed(llm, prompts, in_turns, clock)
        turns = min(turns, seconds)
        seconds, _ = timed(llm, prompts, after_another, clock)
        one_by_one = min(one_by_one, seconds)
    yield SessionsCost(sessions, steps, round(turns, 4), round(one_by_one, 4), round(turns / one_by_one, 3))


def timed(llm: LLM, prompts: list[str], run: Callable[[list[Session]], None], clock: Callable[[], float]) -> tuple[float, int]:
    """Return the seconds that new sessions take, one per prompt, and their total steps."""
    begin = clock()
    sessions = [llm.session() for _ in prompts]
    for session, prompt in zip(sessions, prompts, strict=True):
        session.submit(prompt, PARAMS)
    run(sessions)
    seconds = clock() - begin
    steps = sum(session.state.step for session in sessions)
    for session in sessions:
        session.close()
    return seconds, steps


def in_turns(sessions: list[Session]) -> None:
    """Step each unfinished session in turn until all are done."""
    while live := [session for session in sessions if not session.state.done]:
        for session in live:
            session.step()


def after_another(sessions: list[Session]) -> None:
    """Run each session to its end."""
    for session in sessions:
        session.run()


if __name__ == "__main__":
    places = {"model": ("tiny-bd", "Embedded model or checkpoint folder."), "device": ("cpu", "Device of the model.")}
    entry.run(__doc__, measure_sessions, **places, sessions=(8, "Sessions in turns, then one after the other."))
