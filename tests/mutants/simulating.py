"""Mutants of simulations: fits to measured rows, scripted answers, placement and figures."""

from .catalogue import change

COSTS, WORK, FLEET = "simulate/costs.py", "simulate/work.py", "simulate/fleet.py"
FIGURES, SERVED, COLLECTIVES = "simulate/figures.py", "simulate/served.py", "simulate/collectives.py"

MUTANTS = (
    change("a fitted cost may be below nothing", COSTS, "            if answer.min() < -TINY:\n                continue\n", ""),
    change("rows cost what requests do", COSTS, "self.row * size.rows", "self.row * size.requests"),
    change("an answer is scripted to end late", WORK, "self._job.forwards - self._forwards + 1)", "self._job.forwards - self._forwards + 2)"),
    change("sure positions lie anywhere in the window", WORK, "REACH = 1.5", "REACH = 99.0"),
    change("no forward is kept for blocks that are not open yet", WORK, "left - later, ", "left, "),
    change("one replica more than needed is enough", "simulate/sizing.py", "while enough - short > 1:", "while enough - short > 2:"),
    change("arrivals are not those of the measurement", WORK, "now += random.expovariate(rate)", "now += 1 / rate"),
    change("beginnings are equally frequent", WORK, "1 / k**beginnings.exponent", "1.0"),
    change("a replica that knows a prefix is not found", FLEET, "            self._knowing[keys[0]].add(number)\n", "            pass\n"),
    change("a replica takes requests without bound", FLEET, "        if least >= self._room:\n            return None\n", ""),
    change("requests overtake one another in front", FLEET, "self._queue.popleft()", "self._queue.pop()"),
    change("what was found counts twice after a preemption", FLEET, "min(replica.found.pop(request_id), self._prompts.pop(request_id))", "2 * min(replica.found.pop(request_id), self._prompts.pop(request_id))"),
    change("idle replicas count as busy", FIGURES, "sum(course.busy) / (took * len(course.busy))", "sum(course.busy) / took"),
    change("a prediction knows what it is compared with", SERVED, "list(map(take, rows)), list(map(take, foreseen))", "list(map(take, rows)), list(map(take, rows))"),
    change("the time outside of the engine is forgotten", SERVED, "delay=max(0.0, fmean(late))", "delay=0.0"),
    change("slow requests are as near to the median as if all forwards were equal", SERVED, "tail=far / near if near > 0 else 1.0", "tail=1.0"),
    change("turns are fitted together", SERVED, "    return [list(turn) for turn in zip(*by_rate.values(), strict=True)]\n", "    return [list(rows)]\n"),
    change("an all-reduce a layer", COLLECTIVES, "REDUCES_A_LAYER = 2", "REDUCES_A_LAYER = 1"),
)  # fmt: skip
