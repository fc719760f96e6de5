"""Mutants of the rules that take back, of the rule that remembers, and of what carriers do with them."""

from .catalogue import change

RUNNING, SABER, REMDM, CREDIT = (f"rules/{name}.py" for name in ("running_confidence", "saber", "remdm", "credit"))
SCHEDULE, BLOCKS, CANVAS = "rules/_schedule.py", "strategies/_blocks.py", "strategies/_canvas.py"

MUTANTS = (
    change("what is left over of a share of a schedule comes last", SCHEDULE, "min(over, forwards)", "0"),
    change(
        "the surest tokens are taken back",
        RUNNING,
        "probabilities[position - start], reverse=True",
        "probabilities[position - start]",
    ),
    change("a schedule rounds its shares down", RUNNING, "before - (-size * forwards //", "before + (size * forwards //"),
    change(
        "the mean is that of the tokens that are there",
        SABER,
        "for confidence in memory.taken if confidence != NEVER]",
        "for confidence, place in zip(memory.taken, sampled, strict=True) if confidence != NEVER and place not in block.undecided]",
    ),
    change("one more is taken back than was taken", SABER, "number - 1)", "number)"),
    change(
        "the highest of equal gains is taken back", SABER, "(now[i] - before[i], position)", "(now[i] - before[i], -position)"
    ),
    change("what is least sure now is taken back", SABER, "now[i] - before[i]", "now[i]"),
    change("loops come at the end of the schedule", REMDM, "* 7 // 8, 1)", ", 1)"),
    change(
        "the surest tokens are masked in loops",
        REMDM,
        "key=lambda position: probabilities[position - start])[:count]",
        "key=lambda position: -probabilities[position - start])[:count]",
    ),
    change("a mask is taken as if no token became one", REMDM, "(1.0 - sigma) * share", "share"),
    change("tokens and masks share their draws", REMDM, '"remask", sigma)', '"choose", sigma)'),
    change("surer tokens are masked more often", REMDM, "exp(-block.probabilities", "exp(block.probabilities"),
    change(
        "steps without tokens mask nothing",
        REMDM,
        "            block = masked(block, self.unlucky(block, sampled, step, total, seed), spec)\n            step += 1",
        "            step += 1",
    ),
    change("a loop's share moves on while it masks", REMDM, "share if staying else", "share if not staying and share > 2 else"),
    change("the first forward gives no credit", CREDIT, "in held], best, gained)", "in held], best, gained if own else 0.0)"),
    change("credit raises nothing that is improbable", CREDIT, "raising * (1.0 - least)", "(1.0 - least)"),
    change(
        "where two ids take turns their credits do not change places",
        CREDIT,
        "two * decay + gained, one * decay",
        "one * decay + gained, two * decay",
    ),
    change(
        "only the best id keeps credit",
        CREDIT,
        "return (best, *others), (gained, *others.values())",
        "return (best,), (gained,)",
    ),
    change("credit does not fade", CREDIT, "one = held[0] * decay + gained", "one = held[0] + gained"),
    change("raised probabilities are not divided by their sum", CREDIT, "weighted[token] / total", "min(1.0, weighted[token])"),
    change(
        "a sampled token without credit never wins",
        CREDIT,
        "weighted.setdefault(rows.tokens[row], rows.probabilities[row])",
        "weighted.setdefault(ids[0], rows.probabilities[row])",
    ),
    change("credit goes to the positions in front", CREDIT, "del ids[place], amounts[place]", "del ids[-1], amounts[-1]"),
    change(
        "a full block is stable though it is not finished",
        BLOCKS,
        "return 0.0 if self._open(block, limit) else 1.0",
        "return 0.0 if block.undecided else 1.0",
    ),
    change(
        "tokens that may be taken back are settled",
        BLOCKS,
        "return block.first if self.rule.revokes else undecided[0]",
        "return [*block.undecided, block.end][0]",
    ),
    change(
        "a full block of a grid is finished",
        BLOCKS,
        "return bool(block.undecided) or still_open(self.rule, block, limit)",
        "return bool(block.undecided)",
    ),
    change(
        "a full block of a canvas is finished",
        CANVAS,
        "return bool(block.undecided) or still_open(self.rule, block, limit)",
        "return bool(block.undecided)",
    ),
    change(
        "tokens of a canvas that may be taken back are settled",
        CANVAS,
        "block.first if self.rule.revokes else block.undecided[0]",
        "[*block.undecided, block.end][0]",
    ),
)
