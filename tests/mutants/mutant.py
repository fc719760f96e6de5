"""A mutant: one fault in one function, found by a fragment of the function's normalized source.

Normalized source is `ast.unparse` of the function, so line breaks, comments and quotes of the file
do not matter. Where a fragment no longer occurs, `python -m tests.mutants.mutant FILE FUNCTION`
prints the normalized source to copy a new one from.
"""

import ast
import sys
from dataclasses import dataclass
from pathlib import Path
from textwrap import indent

SRC = Path(__file__).parents[2] / "src"
Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


@dataclass(frozen=True)
class Mutant:
    """A fault: `fragment`, which occurs once in `function` of `file`, becomes `replacement`.

    `file` is relative to `src/dlstep`, or to `src` for `dlstep_kernels`. `function` is a qualified
    name such as `Block.decide`; a class name or "" (the module) for code outside of functions.
    `noticed_by` names tests, relative to `tests`, that are not in the mirrored layout.
    """

    file: str
    function: str
    fault: str
    fragment: str
    replacement: str
    noticed_by: tuple[str, ...] = ()

    def __str__(self) -> str:
        """Return `core/block.py Block.decide: the fault`."""
        return f"{self.file} {self.function or '(module)'}: {self.fault}"

    @property
    def path(self) -> Path:
        """The file to change."""
        return path_of(self.file)


def in_file(file: str, *rows: tuple[str, str, str, str], noticed_by: tuple[str, ...] = ()) -> tuple[Mutant, ...]:
    """Return the mutants of one file: rows of function, fault, fragment and replacement."""
    return tuple(Mutant(file, *row, noticed_by) for row in rows)


def path_of(file: str) -> Path:
    """Return the path of a mutant's file."""
    return SRC / file if file.startswith("dlstep_kernels/") else SRC / "dlstep" / file


def definition(tree: ast.AST, qualified_name: str) -> ast.AST | None:
    """Return the function or class of this qualified name, the whole tree for an empty name."""
    for name in filter(None, qualified_name.split(".")):
        found = [node for node in _definitions(tree) if node.name == name]
        if not found:
            return None
        tree = found[-1]  # the last definition is the one that counts, e.g. behind overloads
    return tree


def applied(source: str, mutant: Mutant) -> str:
    """Return the text of a file with the mutant's fault in it.

    Raises ValueError with the remedy if the function or the fragment is not found, or if the result
    does not compile.
    """
    node = definition(ast.parse(source), mutant.function)
    if node is None:
        raise ValueError(f"{mutant}: {mutant.file} does not define {mutant.function!r}. Correct the mutant's file or function.")
    normalized = ast.unparse(node)
    if (count := normalized.count(mutant.fragment)) != 1:
        command = f"python -m tests.mutants.mutant {mutant.file} {mutant.function}".rstrip()
        raise ValueError(
            f"{mutant}: {mutant.fragment!r} occurs {count} times. Choose a fragment that occurs once; see `{command}`."
        )
    changed = normalized.replace(mutant.fragment, mutant.replacement) + "\n"
    if isinstance(node, Definition):
        lines = source.splitlines(keepends=True)
        first = min(part.lineno for part in (node, *node.decorator_list))
        changed = "".join([*lines[: first - 1], indent(changed, " " * node.col_offset), *lines[node.end_lineno :]])
    try:
        compile(changed, str(mutant.path), "exec", dont_inherit=True)
    except SyntaxError as error:
        raise ValueError(f"{mutant}: the result does not compile ({error}). Correct the replacement.") from error
    return changed


def _definitions(tree: ast.AST) -> list[Definition]:
    """Return the definitions directly in a module, class or function, also below `if` or `with`."""
    found: list[Definition] = []
    for node in ast.iter_child_nodes(tree):
        found += [node] if isinstance(node, Definition) else _definitions(node)
    return found


if __name__ == "__main__":
    file, *function = sys.argv[1:]
    node = definition(ast.parse(path_of(file).read_text()), "".join(function))
    print(ast.unparse(node) if node else f"{file} does not define {''.join(function)!r}")
