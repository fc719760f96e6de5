"""Traces with events of every kind, made at random on a shadow device."""

import random

from dlstep import strategies
from dlstep.core import (
    Abort,
    Add,
    Adopt,
    Config,
    Event,
    Fail,
    Grow,
    Prune,
    Rebuild,
    Request,
    SamplingParams,
    SequenceState,
    Spec,
    State,
    Strategy,
    Trace,
    add,
    commit,
    init,
    probe,
    schedule,
)
from dlstep.core.lifecycle import apply
from dlstep.testing.harness import shadow

SPECS = [Spec(mask_id=mask, eos_ids=(48,), vocab_size=50, head_shift=shift) for mask in (49, None) for shift in (0, 1)]
SIZES = {
    "block_size": 4,
    "buffer_size": 2,
    "canvas_length": 4,
    "max_denoising_steps": 4,
    "initial_masks": 6,
    "expand_token_id": 3,
}
CHOICES = ("add", "add", "abort", "fail", "prune", "adopt", "rebuild", "grow", "step", "step", "step", "step", "late abort")


def spec_for(value: Strategy) -> Spec:
    """The first specification that a strategy accepts."""
    return next(spec for spec in SPECS if not value.refusal(spec, probe(spec)))


def small(name: str) -> Strategy:
    """A strategy with small blocks and windows."""
    chosen = strategies.load(name)
    return chosen(**{size: number for size, number in SIZES.items() if size in chosen.__dataclass_fields__})


def setting(name: str, draw: random.Random) -> tuple[Config, Strategy]:
    """A small engine for a strategy."""
    value = small(name)
    spec = spec_for(value)
    page_size = draw.choice([1, 3, 4, 8])
    config = Config(spec, page_size, -(-48 // page_size) + draw.randint(0, 2), 40, draw.randint(41, 80), draw.randint(1, 4))
    return config, value


def asked(draw: random.Random, request_id: int) -> Request:
    """A random request; some are refused."""
    prompt = tuple(draw.randrange(48) for _ in range(draw.choice([1, 3, 5, 12, 12, 45])))
    params = SamplingParams(max_tokens=draw.randint(1, 12), temperature=draw.choice([0.0, 0.7]) if request_id % 2 else 0.0)
    return Request(request_id, prompt, params, index=draw.randint(0, 2))


def donated(config: Config, value: Strategy, draw: random.Random) -> SequenceState | None:
    """A sequence that is under way in another state."""
    state, device = add(init(config, value), Request(draw.randint(0, 9), (1, 2, 3), SamplingParams(max_tokens=12))), None
    device = shadow(config, value)
    for _ in range(draw.randint(0, 3)):
        state = commit(state, device.run(schedule(state)))
    return next(iter((*state.running, *state.waiting)), None)


def recorded(name: str, seed: int, choices: int = 30) -> tuple[Trace, State]:
    """A trace and the state that it leads to."""
    draw = random.Random(f"{name}{seed}")
    config, value = setting(name, draw)
    first = state = init(config, value)
    device, events = shadow(config, value), []

    def happen(event: Event) -> None:
        nonlocal state
        state = apply(state, event)
        events.append(event)

    def free_id() -> int:
        return next(number for number in range(1000) if state.find(number) is None)

    def some_id() -> int:
        return draw.choice([*sorted(state.live), 77])

    for choice in [*draw.choices(CHOICES, k=choices), *("step",) * 300]:
        sequence = donated(config, value, draw) if choice == "adopt" else None
        match choice:
            case "add":
                happen(Add(asked(draw, free_id())))
            case "abort":
                happen(Abort(some_id(), draw.choice(["", "the client is gone"])))
            case "fail":
                happen(Fail(some_id(), "a sentence"))
            case "prune":
                happen(Prune())
            case "adopt" if sequence is not None:
                happen(Adopt(sequence, free_id()))
            case "rebuild":
                happen(Rebuild())
            case "grow":
                happen(Grow(config.num_pages + draw.randint(0, 9)))
            case "step" | "late abort" if not state.done:
                samples = device.run(schedule(state))
                if choice == "late abort":
                    happen(Abort(some_id(), "late"))
                    happen(Prune())
                    happen(Add(asked(draw, free_id())))
                happen(samples)
            case _:
                pass
    assert state.done, "not finished"
    return Trace(first, tuple(events)), state
