"""Train one of the tiny models: `python -m dlstep.tiny.train NAME`.

This file owns the training loop, its saved state and the command line. A run is a function of the recipe and the seed:
stopping and resuming it changes nothing. It never measures accuracy; that is the decoding engine's work.
"""

import argparse
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from transformers import Qwen3ForCausalLM

from dlstep.tiny import path
from dlstep.tiny.batches import Cursor, noisy_rows, stream
from dlstep.tiny.card import Reading, RunRecord, write_card
from dlstep.tiny.layout import Rows, attention
from dlstep.tiny.model import fresh_model, load_model, logits_at, save_checkpoint
from dlstep.tiny.recipes import RECIPES, Recipe
from dlstep.tiny.tokenizer import build_tokenizer

STATE_NAME = "training.pt"
SAVE_EVERY = 250  # steps
READ_EVERY = 100  # steps between two readings of the loss

Report = Callable[[int, Reading | None], None]


@dataclass(frozen=True, slots=True)
class Run:
    """How to run a recipe; a run with `steps` or `minutes` pauses there, to be resumed later."""

    seed: int = 0
    resume: bool = False
    steps: int | None = None
    minutes: float | None = None  # CPU minutes of this process


class Trainer:
    """A model, its optimisers and the place in the stream of batches."""

    def __init__(self, recipe: Recipe, seed: int) -> None:
        self.recipe = recipe
        self.seed = seed
        self.model = _starting_model(recipe, seed).train()
        self.optimisers = _optimisers(self.model, recipe)
        self.cursor = Cursor()
        self.step = 0
        self.stories = 0
        self.cpu_seconds = 0.0
        self.losses: list[float] = []  # since the last reading
        self.readings: list[Reading] = []

    @property
    def record(self) -> RunRecord:
        """What the model card tells about the run."""
        return RunRecord(self.seed, self.step, self.stories, self.cpu_seconds / 60, tuple(self.readings))

    def advance(self, rows: Rows, stories: int, cursor: Cursor) -> None:
        """One optimiser step on one batch; `cursor` is the place after it."""
        _, factor = self.recipe.place(self.step)
        for optimiser in self.optimisers:
            for group in optimiser.param_groups:
                group["lr"] = group["peak"] * factor
        self.losses.append(_learn(self.model, self.optimisers, rows))
        self.step += 1
        self.stories += stories
        self.cursor = cursor

    def read(self) -> Reading:
        """Close the current stretch of losses with a reading."""
        stage, _ = self.recipe.place(self.step - 1)
        mean = sum(self.losses) / len(self.losses)
        reading = Reading(self.step, stage.name, mean, self.cpu_seconds / 60)
        self.readings.append(reading)
        self.losses = []
        return reading

    def save(self, file: Path) -> None:
        """Write all that a resumed run needs; an interrupted write leaves the older state whole."""
        state = {
            "run": _identity(self.recipe, self.seed),
            "model": self.model.state_dict(),
            "optimisers": [optimiser.state_dict() for optimiser in self.optimisers],
            "cursor": asdict(self.cursor),
            "step": self.step,
            "stories": self.stories,
            "cpu_seconds": self.cpu_seconds,
            "losses": self.losses,
            "readings": [asdict(reading) for reading in self.readings],
        }
        partial = file.with_suffix(".partial")
        torch.save(state, partial)
        partial.replace(file)

    def restore(self, file: Path) -> None:
        """Continue from a saved state. Raises ValueError if it belongs to another recipe or seed."""
        state = torch.load(file, weights_only=True)
        wanted = _identity(self.recipe, self.seed)
        if state["run"] != wanted:
            raise ValueError(f"{file} belongs to {state['run']}, not to {wanted}: delete it or start elsewhere")
        self.model.load_state_dict(state["model"])
        for optimiser, saved in zip(self.optimisers, state["optimisers"], strict=True):
            optimiser.load_state_dict(saved)
        self.cursor = Cursor(**state["cursor"])
        self.step, self.stories, self.cpu_seconds = state["step"], state["stories"], state["cpu_seconds"]
        self.losses = state["losses"]
        self.readings = [Reading(**reading) for reading in state["readings"]]


def train(recipe: Recipe, output: Path, run: Run, *, report: Report | None = None) -> Trainer:
    """Run a recipe until its end or a pause, and return the trainer.

    At the end `output` holds the checkpoint folder; until then it holds the saved state, from which a resuming run
    goes on. Raises ValueError if there is such a state and the run does not resume, or if it belongs to another run.
    """
    output.mkdir(parents=True, exist_ok=True)
    state = output / STATE_NAME
    if state.exists() and not run.resume:
        raise ValueError(f"{state} holds a paused run: resume it, delete it or choose another output folder")
    trainer = Trainer(recipe, run.seed)
    if state.exists():
        trainer.restore(state)
    clock = time.process_time()
    deadline = None if run.minutes is None else clock + 60 * run.minutes
    last_step = recipe.steps if run.steps is None else min(recipe.steps, trainer.step + run.steps)
    batches = stream(recipe, build_tokenizer(), seed=run.seed, cursor=trainer.cursor)
    while trainer.step < last_step and (deadline is None or clock < deadline):
        samples, cursor = next(batches)
        stage, _ = recipe.place(trainer.step)
        trainer.advance(noisy_rows(recipe, stage, samples, seed=run.seed, step=trainer.step), len(samples), cursor)
        before, clock = clock, time.process_time()
        trainer.cpu_seconds += clock - before
        reading = trainer.read() if trainer.step % READ_EVERY == 0 or trainer.step == recipe.steps else None
        if trainer.step % SAVE_EVERY == 0:
            trainer.save(state)
        if report is not None:
            report(trainer.step, reading)
    if trainer.step < recipe.steps:
        trainer.save(state)
    else:
        save_checkpoint(trainer.model, recipe, output)
        write_card(recipe, trainer.record, output)
        state.unlink(missing_ok=True)
    return trainer


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m dlstep.tiny.train", description="Train a tiny model on the CPU.")
    parser.add_argument("name", choices=tuple(RECIPES))
    parser.add_argument("--output", type=Path, help="checkpoint folder to write (default: ./NAME)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--resume", action="store_true", help="go on from the state saved in the output folder")
    parser.add_argument("--minutes", type=float, help="pause after so many CPU minutes; --resume goes on later")
    parser.add_argument("--steps", type=int, help="pause after so many steps; --resume goes on later")
    parser.add_argument("--threads", type=int, default=1, help="CPU threads (default: 1)")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    recipe = RECIPES[arguments.name]
    output = arguments.output or Path(recipe.name)
    console = Console()
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, TimeRemainingColumn(), console=console) as progress:
        bar = progress.add_task(recipe.name, total=recipe.steps)

        def report(step: int, reading: Reading | None) -> None:
            progress.update(bar, completed=step)
            if reading is not None:
                figures = f"step {reading.step:5d}  loss {reading.loss:.4f}  {reading.cpu_minutes:5.1f} CPU min"
                console.print(f"{figures}  {reading.stage}")

        run = Run(arguments.seed, arguments.resume, arguments.steps, arguments.minutes)
        trainer = train(recipe, output, run, report=report)
    finished = trainer.step == recipe.steps
    console.print(f"{'finished' if finished else 'paused'} at step {trainer.step} of {recipe.steps}: {output}")


def _starting_model(recipe: Recipe, seed: int) -> Qwen3ForCausalLM:
    return fresh_model(recipe, seed) if recipe.starts_from is None else load_model(path(recipe.starts_from))


def _optimisers(model: nn.Module, recipe: Recipe) -> tuple[torch.optim.Optimizer, ...]:
    """Muon for the matrices inside the layers, AdamW for the embedding and the norms."""
    named = list(model.named_parameters())
    matrices = [parameter for name, parameter in named if parameter.ndim > 1 and "embed_tokens" not in name]
    others = [parameter for name, parameter in named if parameter.ndim == 1 or "embed_tokens" in name]
    muon = torch.optim.Muon(matrices, lr=recipe.muon_rate, weight_decay=0.01, adjust_lr_fn="match_rms_adamw")
    adam = torch.optim.AdamW(others, lr=recipe.adam_rate, betas=(0.9, 0.98), weight_decay=0.0)
    for optimiser, peak in ((muon, recipe.muon_rate), (adam, recipe.adam_rate)):
        for group in optimiser.param_groups:
            group["peak"] = peak
    return muon, adam


def _learn(model: Qwen3ForCausalLM, optimisers: tuple[torch.optim.Optimizer, ...], rows: Rows) -> float:
    """One step on the cross entropy of the masked tokens; returns it."""
    # The fused CPU attention has a slow backward at this size: the plain one makes a step a quarter shorter.
    with torch.autocast("cpu", torch.bfloat16), sdpa_kernel(SDPBackend.MATH):
        logits = logits_at(model, rows.inputs, rows.positions, attention(rows), rows.masked)
    loss = nn.functional.cross_entropy(logits.float(), rows.targets[rows.masked])
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    for optimiser in optimisers:
        optimiser.step()
        optimiser.zero_grad(set_to_none=True)
    return loss.item()


def _identity(recipe: Recipe, seed: int) -> str:
    return f"{recipe!r} with seed {seed}"


if __name__ == "__main__":
    main()
