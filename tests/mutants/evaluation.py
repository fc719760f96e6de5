"""Mutants of the evaluation: scorers, files that are a checkpoint, figures, and the jail."""

from .catalogue import change

METRICS, CHECKPOINT, RUNNER = "evaluate/metrics.py", "evaluate/checkpoint.py", "evaluate/runner.py"
SCORING, PROGRAMS, JAIL, JAILED = "evaluate/scoring.py", "evaluate/programs.py", "evaluate/jail.py", "evaluate/_jailed.py"
SYSTEM_CALLS = "evaluate/system_calls.py"
ANSWERING, ITEMS, REPORT = "evaluate/answering.py", "evaluate/items.py", "evaluate/report.py"

MUTANTS = (
    change("ratios leave out forwards that only store", METRICS, 'forwards=beside["forwards"],', 'forwards=row["steps"],'),
    change("the standard error is that of one answer", METRICS, "/ (count - 1) / count)", "/ (count - 1))"),
    change("the standard error forgets how tokens and forwards go together", METRICS, "- 2 * rate * self.tokens_forwards", "- rate * self.tokens_forwards"),
    change("the two runs are resampled apart from one another", METRICS, "sums = drawn(count, resamples) @ table", "sums = np.hstack([drawn(count, resamples) @ table[:, :3], drawn(count, resamples)[::-1] @ table[:, 3:]])"),
    change("the interval leaves out one end only", METRICS, "order[len(order) - 1 - cut]", "order[len(order) - 1]"),
    change("gains of a ratio are compared as sums", METRICS, "np.divide(sums[:, 1], sums[:, 2], out=np.zeros(len(sums)), where=sums[:, 2] > 0)", "sums[:, 1] / len(sums)"),
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
    change("folders of the jail may be written", JAIL, '"--remount-ro", "/", ', ""),
    change("memory stays without a process", SYSTEM_CALLS, "access alarm", "access shmget alarm"),
    change("a program reads the keyrings of the user", SYSTEM_CALLS, "kill lgetxattr", "kill keyctl lgetxattr"),
    change("pairs of sockets are of any kind", SYSTEM_CALLS, '(1, 0xF, 1)', '(1, 0, 0)'),
    change("files without end", JAILED, ",nr_inodes={job['inodes']}", ""),
    change("a program may be root in a namespace of its own", SYSTEM_CALLS, "((0, NAMESPACES, 0),)", "()"),
    change("each process of a program says how it ended", JAILED, "if os.getpid() != first:", "if not first:"),
    change("programs meet other orders of sets", JAIL, ', "PYTHONHASHSEED": "0"}', "}"),
    change("the jail has the network", JAIL, "--unshare-net ", ""),
    change("root stays root in its jail", JAILED, 'if job["uid"] is not None:', 'if job["uid"] == 0:'),
    change("a program that ends early has passed", JAILED, "raised = type(error)", "raised = None if isinstance(error, SystemExit) else type(error)"),
    change("a report that always says passed is believed", JAIL, "return PASSED if ask(process, CONTROL.format(name), deadline) == name else FORGED", "return PASSED"),
    change("an exception may be called passed", JAIL, " and raised not in (PASSED, TIMEOUT)", ""),
    change("a program has no end", JAIL, "poll.poll(max(0.0, deadline - time.monotonic()) * 1000)", "poll.poll(None)"),
    change("padding and spans change places", ANSWERING, "int(samples), len(plan.spans), rows,", "int(samples), rows, len(plan.spans),"),
    change("steps are spent where the last undecided token is", REPORT, "accumulate(decided, max)", "decided"),
)  # fmt: skip
