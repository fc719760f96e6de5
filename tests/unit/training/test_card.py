"""The figures of a model card."""

from pathlib import Path

from dlstep.evaluate.frontier import Accuracy
from training.card import Measured, write_figures

FIGURES = Accuracy(500, 0.987, 0.95, 2.25, 9.96, 12_000, 1.0)


def test_new_figures_replace_older_ones(tmp_path: Path) -> None:
    card = tmp_path / "README.md"
    card.write_text("# tiny\n\ntext\n", encoding="utf-8")
    write_figures(tmp_path, "tiny multi_bd", [Measured("multi_bd", FIGURES)])
    rows = [Measured("causal_blocks", FIGURES), Measured("causal_blocks", FIGURES, {"block_size": 1, "top": "a"})]
    write_figures(tmp_path, "tiny causal_blocks", rows)
    text = card.read_text(encoding="utf-8")
    assert text.startswith("# tiny\n\ntext\n\n## Measured\n\n500 held-out problems")
    assert "multi_bd" not in text and "`python -m training.measure tiny causal_blocks`" in text
    assert text.endswith("| `block_size=1`, `top=a` | 98.7% | 95.0% | 2.25 | 10.0 |\n")
