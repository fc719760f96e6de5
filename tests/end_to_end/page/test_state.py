"""The page's own state is what the engine's updates say, after every frame, for traces of every kind."""

import json
import random

from dlstep import strategies
from dlstep.views.frames import recording

from ...helpers.recorded import recorded
from ...unit.views.test_frames import by_updates

SEEDS = 15  # traces of each strategy; together more than a hundred
# Every run: what the reducer makes of its frames, one after the other; and the same from frames that the page would save, from
# a fork at some frame, and with the frames of a fork.
FOLDED = """async (text) => {
    const { parsed, written } = await import("./page/json.js");
    const { EMPTY, reduce, fold, framesOf, branch, cellAt } = await import("./page/state.js");
    const shown = (run, index) => {
        const moment = run.moments[index], tokens = run.tokens.slice(0, moment.settled);
        const finish = index === run.moments.length - 1 ? run.finish : null;
        return [tokens.map((each) => each[1]), tokens.map((each) => each[2]), moment.cells.map((each) => [each[1], each[2]]),
            moment.step, moment.nfe, finish];
    };
    const frozen = (value) => {
        if (value && typeof value === "object" && !Object.isFrozen(value)) Object.values(Object.freeze(value)).forEach(frozen);
        return value;
    };
    return written(parsed(text).map(({ frames, cut }) => {
        let run = EMPTY;
        const states = [];
        for (const frame of frames) {
            run = frozen(reduce(run, frozen(frame)));
            states.push(shown(run, run.moments.length - 1));
        }
        const again = fold(framesOf(run)), fork = branch(run, cut);
        const first = { ...frames[cut], tokens: run.tokens.slice(0, frames[cut].settled) };
        const forked = fold([first, ...frames.slice(cut + 1)], fork);
        const cells = run.moments.map((moment, index) => cellAt(run, index, moment.settled)?.[1] ?? null);
        return { states, past: run.moments.map((_, index) => shown(run, index)),
            again: again.moments.map((_, index) => shown(again, index)),
            forked: forked.moments.map((_, index) => shown(forked, index)), cells, saved: framesOf(run) };
    }));
}"""


def as_lists(stages):
    """Stages as JSON holds them."""
    return [[tokens, chances, [list(cell) for cell in window], *rest] for tokens, chances, window, *rest in stages]


def test_the_state_of_the_page_is_the_fold_of_the_updates(visit):
    page = visit().page
    draw, traces, frames = random.Random(5), 0, 0
    for name in strategies.own():
        runs, wanted = [], []
        for seed in range(SEEDS):
            trace, _ = recorded(name, seed)
            traces += 1
            for run, known in zip(recording(trace)["runs"], by_updates(trace).values(), strict=True):
                runs.append({"frames": run["frames"], "cut": draw.randrange(len(run["frames"]))})
                wanted.append(as_lists(known.stages))
        found = json.loads(page.evaluate(FOLDED, json.dumps(runs)))
        for run, told, stages in zip(runs, found, wanted, strict=True):
            assert told["states"][1:] == stages
            assert len(stages) == len(run["frames"]) - 1
            over = [state[:5] for state in told["states"]]
            assert [state[:5] for state in told["past"]] == over
            assert [state[:5] for state in told["again"]] == over and [state[:5] for state in told["forked"]] == over
            assert told["again"][-1] == told["states"][-1] == told["forked"][-1]
            assert told["cells"] == [state[2][0][0] if state[2] else None for state in over]
            assert told["saved"] == run["frames"]
            frames += len(stages)
    assert traces >= 100 and frames > 3000


PARTED = """async ([one, two]) => {
    const { fold } = await import("./page/state.js");
    const { differing, firstDifference, sameAnswer } = await import("./page/compare.js");
    const [first, second] = [fold(one), fold(two)];
    return [[...differing(first, second)], firstDifference(first, second), sameAnswer(first, second)];
}"""


def frame(seq, ids, settled, known=0, finish=None):
    """A frame of an answer; -1 is undecided."""
    cells = [[place, None if token < 0 else token, 0.5, f"t{token}"] for place, token in enumerate(ids)]
    told = {"seq": seq, "step": seq, "nfe": seq, "settled": settled, "tokens": cells[known:settled], "cells": cells[settled:]}
    return told if finish is None else told | {"finish_reason": finish}


def test_runs_are_compared_by_tokens(visit):
    page = visit().page
    one = [frame(0, [-1, -1], 0), frame(1, [5, -1], 0), frame(2, [5, 7], 2, finish="stop")]
    two = [frame(0, [-1, -1], 0), frame(1, [5, 8], 0), frame(2, [5, 8, 9], 3, finish="stop")]
    differs, first, same = page.evaluate(PARTED, [one, two])
    assert (differs, first["position"], first["index"], same) == ([1, 2], 1, 1, False)
    differs, first, same = page.evaluate(PARTED, [one, one])
    assert (differs, first, same) == ([], None, True)
    assert page.evaluate(PARTED, [one, one[:2]])[2] is None


SEEDED = """async (text) => {
    const { parsed, written } = await import("./page/json.js");
    return written(parsed(text));
}"""


def test_long_seeds_stay_whole(visit):
    page = visit().page
    for seed in (0, 2**53 - 1, 2**53 + 1, 2**64 - 1):
        text = f'{{"head":{{"prompt":"{{\\"seed\\":{2**60}","seed":{seed},"more":"1"}}}}'
        assert page.evaluate(SEEDED, text) == text
