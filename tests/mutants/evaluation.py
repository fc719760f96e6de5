"""Mutants of the evaluation: scorers, files that are a checkpoint, figures, and the jail."""

from .catalogue import change

METRICS, INTERVALS, CHECKPOINT, RUNNER = (
    "evaluate/metrics.py",
    "evaluate/intervals.py",
    "evaluate/checkpoint.py",
    "evaluate/runner.py",
)
SCORING, PROGRAMS, JAIL, JAILED = "evaluate/scoring.py", "evaluate/programs.py", "evaluate/jail.py", "evaluate/_jailed.py"
ANSWERING, ITEMS, REPORT = "evaluate/answering.py", "evaluate/items.py", "evaluate/report.py"

MUTANTS = (
    change("ratios leave out forwards that only store", METRICS, 'forwards=beside["forwards"],', 'forwards=row["steps"],'),
    change("the standard error is that of one answer", METRICS, "/ (count - 1) / count)", "/ (count - 1))"),
    change("the standard error forgets how tokens and forwards go together", METRICS, "- 2 * rate * self.tokens_forwards", "- rate * self.tokens_forwards"),
    change("an interval of a share collapses at 100 %", METRICS, "+ weight / count / 4)", ")"),
    change("the two runs are resampled apart from one another", INTERVALS, "drawn = ratios(draws(len(table), resamples) @ table)", "drawn = ratios(np.hstack([draws(len(table), resamples) @ table[:, :2], draws(len(table), resamples)[::-1] @ table[:, 2:]]))"),
    change("the interval is that of the percentiles", INTERVALS, 'tails, method = (NORMAL.cdf(moved[0]), NORMAL.cdf(moved[1])), "BCa"', 'method = "BCa"'),
    change("the acceleration is left out", INTERVALS, "/ (1 - skew * (bias + z))", ""),
    change("gains of a ratio are compared as sums", INTERVALS, "where=sums[:, at + 1] > 0)", "where=sums[:, at + 1] < 0)"),
    change("equal answers make a difference certain", INTERVALS, "spread = (better - worse) / (count + 2), (better + worse + 2) / (count + 2)", "spread = (better - worse) / count, (better + worse) / count"),
    change("p has one side", INTERVALS, "p = min(1.0, 2 * tail / 2**differing)", "p = min(1.0, tail / 2**differing)"),
    change("p may be 0", INTERVALS, "2 * (1 + min(", "2 * (0 + min("),
    change("a row is compared with one other row only", INTERVALS, "axis=1).max(axis=1)", "axis=1).max(axis=1) * 0"),
    change("rows are as certain as if asked other problems", INTERVALS, "- 2 * both + 1)", "+ 1)"),
    change("equal rows are equal for certain", INTERVALS, ", NORMAL.inv_cdf(1 - LEVEL))", ", 0.0)"),
    change("answers are written as they end", CHECKPOINT, "while (row := self._ahead.pop(len(self.rows), None)) is not None:", "while self._ahead and (row := self._ahead.pop(next(iter(self._ahead)))) is not None:"),
    change("a line that is not whole is kept", CHECKPOINT, "file.truncate(len(kept[0]) + len(kept[1]))", "file.seek(0)"),
    change("answers that wait are not found again", CHECKPOINT, "for row in ahead if key_of(row) in places}", "for row in ahead[:0] if key_of(row) in places}"),
    change("another run goes on in a folder", CHECKPOINT, '            raise ValueError(f"{named} {folder} holds a run with', '            return ValueError(f"{named} {folder} holds a run with'),
    change("equal requests have equal seeds", ITEMS, "                asked[same] += 1\n", ""),
    change("a run does not know its problems", RUNNER, '"digest": digest(found)', '"digest": ""'),
    change("any braces are a box", SCORING, "if start in starts and (last is None", "if (last is None"),
    change("the first box counts", SCORING, "start > last[0]", "start < last[0]"),
    change("the sign of a number is an operator", SCORING, "(?:-?\\$?|\\$-)", "(?:\\$?)"),
    change("numbers are nearly equal", SCORING, "found is not None and found == expected)", "found is not None and expected is not None and int(found) == int(expected))"),
    change("the last block of code counts, whatever it defines", PROGRAMS, "(fitting or blocks or [text])", "(blocks or [text])"),
    change("the beginning of a program is left out", PROGRAMS, 'return f"{beginning}\\n\\n{code}" if', "return code if"),
    change("a program may become many", JAIL, '"RLIMIT_NPROC": self.processes', '"RLIMIT_NPROC": 4096'),
    change("a program may take all memory", JAIL, '"RLIMIT_AS": self.memory', '"RLIMIT_AS": self.memory << 8'),
    change("a loop is killed before its time is over", JAIL, '"RLIMIT_CPU": int(self.seconds) + 2', '"RLIMIT_CPU": int(self.seconds)'),
    change("a loop is killed without a word", JAILED, "most + later", "most"),
    change("devices may be written beside", JAIL, '        "--remount-ro",\n        "/dev",\n', ""),
    change("memory stays without a process", JAILED, 'b"shmget", ', ""),
    change("a program may be root in a namespace of its own", JAILED, '(*refused, (errno.EPERM, b"clone", 1, new_user))', "refused"),
    change("each process of a program says how it ended", JAILED, "if os.getpid() == first:", "if first:"),
    change("programs meet other orders of sets", JAIL, ', "PYTHONHASHSEED": "0"}', "}"),
    change("the jail has the network", JAIL, '"--net", ', ""),
    change("root stays root in its jail", JAILED, 'if job["uid"] is not None:', 'if job["uid"] == 0:'),
    change("a program that ends early has passed", JAILED, '"passed" if error is None else error.__name__', '"passed" if error in (None, SystemExit) else error.__name__'),
    change("a program has no end", JAILED, 'select.select([os.pidfd_open(started)], [], [], job["seconds"])[0]', "select.select([os.pidfd_open(started)], [], [])[0]"),
    change("padding and spans change places", ANSWERING, "int(samples), len(plan.spans), rows,", "int(samples), rows, len(plan.spans),"),
    change("steps are spent where the last undecided token is", REPORT, "accumulate(decided, max)", "decided"),
)  # fmt: skip
