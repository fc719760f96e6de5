"""What a terminal shows after an output with control sequences."""

import re

PART = re.compile(r"\x1b\[([\d;?]*)([A-Za-z])|([\r\n])|([^\x1b\r\n]+)")


def screen(output: str) -> list[str]:
    """The lines of a terminal of any size, without blank lines at the end. Knows the sequences that rich writes."""
    lines, row, column = [""], 0, 0
    for number, command, control, text in PART.findall(output):
        match command or control:
            case "A":
                row = max(0, row - int(number or 1))
            case "K":
                lines[row] = ""
            case "\r":
                column = 0
            case "\n":
                row, column = row + 1, 0
                lines += [""] * (row + 1 - len(lines))
            case "":
                line = lines[row].ljust(column)
                lines[row] = line[:column] + text + line[column + len(text) :]
                column += len(text)
            case _:
                assert command in "mhl", f"unknown sequence {number}{command}"
    shown = [line.rstrip() for line in lines]
    while shown and not shown[-1]:
        shown.pop()
    return shown
