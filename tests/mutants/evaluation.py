"""Mutants of the evaluation: scorers, files that are a checkpoint, figures, and the jail."""

from .catalogue import change

METRICS, CHECKPOINT, RUNNER = "evaluate/metrics.py", "evaluate/checkpoint.py", "evaluate/runner.py"
SCORING, PROGRAMS, JAIL, JAILED = "evaluate/scoring.py", "evaluate/programs.py", "evaluate/jail.py", "evaluate/_jailed.py"
DOCUMENTS, PROMPTS, MATHS = "evaluate/documents.py", "evaluate/prompts.py", "evaluate/_maths_worker.py"
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
    change("the first number counts", SCORING, "        last = found[0]\n", "        last = last or found[0]\n"),
    change("a number glued to a word is skipped", SCORING, '(r"(-?[$0-9.,]{2,})|(-?[0-9]+)")', '(r"(?<!\\w)((-?[$0-9.,]{2,})|(-?[0-9]+))")'),
    change("a full stop counts", SCORING, '_LAST_STOP.sub("", ', 'str.strip('),
    change("the strict reading comes first", SCORING, '"gsm8k": ("flexible-extract", "strict-match")', '"gsm8k": ("strict-match", "flexible-extract")'),
    change("the last block of code counts, whatever it defines", PROGRAMS, "(fitting or blocks[:1] or [text])", "(blocks or [text])"),
    change("the beginning of a program is left out", PROGRAMS, 'return "\\n".join([f"{beginning}\\n", *helpers, main])', 'return "\\n".join([*helpers, main])'),
    change("helpers in blocks of their own are lost", PROGRAMS, "if block not in fitting and block != main and (", "if block in fitting and ("),
    change("fences in docstrings end a block", PROGRAMS, "None if line is None or quote else", "None if line is None else"),
    change("a worked example of lm_eval is another", DOCUMENTS, "SHOT_SEED = 1234", "SHOT_SEED = 1235"),
    change("examples depend on what is asked first", DOCUMENTS, "range(last + 1)]", "documents]; samples = {each.number: shots for each, shots in zip(documents, samples)}"),
    change("the turn that lm_eval begins is lost", PROMPTS, '*([_turn("assistant", prefix)] if prefix else [])', ""),
    change("equal texts that sympy cannot read differ", MATHS, "if read and read == expected:", "if read is expected:"),
    change("the normal form keeps commas", MATHS, 'return answer.replace(",", "") if', "return answer if"),
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
