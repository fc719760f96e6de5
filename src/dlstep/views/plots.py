"""What all plots have in common. Plots need matplotlib."""

from pathlib import Path

from ..core.checks import short
from ..extras import require

# Distinguishable with any colour vision.
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#8c6d31", "#7f7f7f")
OTHERS = "#a0a0a0"


def check_plot(option: str = "--plot", path: Path | None = None) -> None:
    """Raise ValueError if no plot can be written to `path`. Call this before a measurement."""
    require(option, "notebook")
    if path is None:
        return
    from matplotlib.backend_bases import FigureCanvasBase

    kinds = sorted(FigureCanvasBase.get_supported_filetypes())
    if path.suffix.removeprefix(".").lower() not in kinds:
        raise ValueError(f"{option} {short(str(path))} has no supported image format: end it with one of .{', .'.join(kinds)}")
    if not path.parent.is_dir():
        raise ValueError(f"{option} {short(str(path))} is in a folder that does not exist")
