"""Mutants of edit sampling, and of what all strategies share that revise their blocks."""

from .catalogue import change

FILE, MOVES = "strategies/multi_bd_edit.py", "strategies/_edit.py"

MUTANTS = (
    change("a probability equal to the threshold fills a mask", FILE, "- first] > accept]", "- first] >= accept]"),
    change(
        "the last of equally sure masks is filled",
        FILE,
        "if probability > most:",
        "if probability >= most:",
    ),
    change("tokens are edited whatever the edit threshold", FILE, "> rule.edit]\n    post", ">= 0.0]\n    post"),
    change(
        "tokens are edited only where no mask is left",
        FILE,
        "> rule.edit]\n    post",
        "> rule.edit and not undecided]\n    post",
    ),
    change(
        "edits that come too late are written",
        FILE,
        "return block.remembering(Edited(True, stable,",
        "return _rewritten(block, first, [], changes, rows, Edited(True, stable,",
    ),
    change(
        "forwards with masks count as edits of a full block",
        FILE,
        "before.post if undecided else before.post + 1",
        "before.post + 1",
    ),
    change("one edit step fewer is allowed", FILE, "post > rule.most_post", "post >= rule.most_post"),
    change("a block that is full is ready", FILE, "(post > rule.most_post or not (changes or unsure))", "(post or not unsure)"),
    change("a block's time is over one forward early", FILE, "self.max_post_edit_steps + 1", "self.max_post_edit_steps"),
    change("masks are left when the time is over", FILE, "list(block.undecided), edits", "list(block.undecided)[:-1], edits"),
    change(
        "what is ready and waits for the blocks before it is not revised",
        FILE,
        "            if calm and fills:",
        "            if block.extra and block.extra.ready:\n"
        "                revised.append(block)\n"
        "            elif calm and fills:",
    ),
    change("tokens of a calm block may become masks only with an edit", FILE, "not (changes or self.remasking)", "not changes"),
    change("where no token is, one was changed", FILE, "now[row] = mask", "now[row] = now[row]"),
    change(
        "a position may become a mask again and again", FILE, "and not done >> (position - block.start) & 1", "and done >= 0"
    ),
    change(
        "a token keeps its probability when it is edited",
        FILE,
        "        new_probabilities[position - start] = probabilities[position - first]\n    return",
        "    return",
    ),
    change("the penalty is not passed on", FILE, "return self.penalty_lambda", "return 0.0"),
    change(
        "a block that is full stands, ready or not",
        MOVES,
        "block.end if revision(block).ready else",
        "block.end if not block.undecided else",
    ),
    change(
        "the age of a block is not counted against its bound",
        MOVES,
        "remaining * self.most_forwards - age",
        "remaining * self.most_forwards",
    ),
    change("draws are numbered by the request", MOVES, "draws += (steps - block.opened,)", "draws += (steps,)"),
    change(
        "what is held is revised, too",
        MOVES,
        "if self.fold_commits:\n            return self.revised",
        "if window:\n            return self.revised",
    ),
    change("a new block counts as stable", MOVES, "stable: float = 0.0", "stable: float = 1.0"),
)
