"""Train one of the tiny models: `python -m training.train NAME`.

This file owns the training loop, its saved state and the command line. A run is a function of the
recipe and the seed: stopping and resuming it changes nothing. It never measures accuracy; that is
the decoding engine's work.
"""

import argparse
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from torch import Tensor, nn
from transformers import DiffusionGemmaForBlockDiffusion, PreTrainedModel, Qwen3ForCausalLM

from dlstep.tiny import path
from training.batches import Cursor, fold_seed, stream
from training.canvas import fresh_canvas_model, load_canvas_model, save_canvas_model
from training.card import Reading, RunRecord, write_card
from training.layout import Sample
from training.lessons import lesson_loss
from training.model import fresh_model, load_model, save_checkpoint, save_tokenizer
from training.muon import Float32Muon
from training.recipes import RECIPES, Recipe
from training.tokenizer import build_tokenizer

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
    minutes: float | None = None  # as `clock_of` counts them
    device: str = "cpu"


class Trainer:
    """A model, its optimisers and the place in the stream of batches."""

    def __init__(self, recipe: Recipe, seed: int, device: str = "cpu") -> None:
        self.recipe = recipe
        self.seed = seed
        self.model = _starting_model(recipe, seed).train()
        nn.Module.to(self.model, torch.device(device))
        self.optimisers = _optimisers(self.model, recipe)
        self.cursor = Cursor()
        self.step = 0
        self.stories = 0
        self.seconds = 0.0
        self.losses: list[Tensor] = []  # since the last reading; on the device, as reading one waits for it
        self.readings: list[Reading] = []

    @property
    def record(self) -> RunRecord:
        """Return facts of the run for the model card."""
        device = self.model.device
        name = "cpu" if device.type == "cpu" else torch.cuda.get_device_name(device)
        return RunRecord(self.seed, self.step, self.stories, self.seconds / 60, name, tuple(self.readings))

    def advance(self, samples: tuple[Sample, ...], cursor: Cursor) -> None:
        """Take one optimiser step on one batch; `cursor` is the place after it."""
        stage, factor = self.recipe.place(self.step)
        for optimiser in self.optimisers:
            for group in optimiser.param_groups:
                group["lr"] = group["peak"] * factor
        # The same step draws the same noise.
        generator = torch.Generator().manual_seed(fold_seed(self.seed, "noise", self.step))
        loss = lesson_loss(self.recipe, stage, self.model, samples, generator)
        self.losses.append(_learn(self.model, self.optimisers, loss))
        self.step += 1
        self.stories += len(samples)
        self.cursor = cursor

    def read(self) -> Reading:
        """Close the current stretch of losses with a reading."""
        stage, _ = self.recipe.place(self.step - 1)
        mean = torch.stack(self.losses).mean().item()
        reading = Reading(self.step, stage.name, mean, self.seconds / 60)
        self.readings.append(reading)
        self.losses = []
        return reading

    def save(self, file: Path) -> None:
        """Write everything that a resumed run needs; an interrupted write leaves the older state
        intact."""
        state = {
            "run": _identity(self.recipe, self.seed),
            "model": self.model.state_dict(),
            "optimisers": [optimiser.state_dict() for optimiser in self.optimisers],
            "cursor": asdict(self.cursor),
            "step": self.step,
            "stories": self.stories,
            "seconds": self.seconds,
            "losses": [loss.cpu() for loss in self.losses],
            "readings": [asdict(reading) for reading in self.readings],
        }
        partial = file.with_suffix(".partial")
        torch.save(state, partial)
        partial.replace(file)

    def restore(self, file: Path) -> None:
        """Continue from a saved state. Raises ValueError if it belongs to another recipe or
        seed."""
        state = torch.load(file, weights_only=True, map_location=self.model.device)
        identity = _identity(self.recipe, self.seed)
        if state["run"] != identity:
            raise ValueError(f"{file} belongs to {state['run']}, not to {identity}: delete it or start elsewhere")
        self.model.load_state_dict(state["model"])
        for optimiser, saved in zip(self.optimisers, state["optimisers"], strict=True):
            optimiser.load_state_dict(saved)
        self.cursor = Cursor(**state["cursor"])
        self.step, self.stories, self.seconds = state["step"], state["stories"], state["seconds"]
        self.losses = [loss.to(self.model.device) for loss in state["losses"]]
        self.readings = [Reading(**reading) for reading in state["readings"]]


def train(recipe: Recipe, output: Path, run: Run, *, report: Report | None = None) -> Trainer:
    """Run a recipe until its end or a pause, and return the trainer.

    At the end `output` holds the checkpoint folder; until then it holds the saved state, from which
    a resuming run goes on. Raises ValueError if there is such a state and the run does not resume,
    or if it belongs to another run.
    """
    output.mkdir(parents=True, exist_ok=True)
    state = output / STATE_NAME
    if state.exists() and not run.resume:
        raise ValueError(f"{state} holds a paused run: resume it, delete it or choose another output folder")
    trainer = Trainer(recipe, run.seed, run.device)
    if state.exists():
        trainer.restore(state)
    read_clock = clock_of(run.device)
    clock = read_clock()
    deadline = None if run.minutes is None else clock + 60 * run.minutes
    last_step = recipe.steps if run.steps is None else min(recipe.steps, trainer.step + run.steps)
    batches = stream(recipe, build_tokenizer(), seed=run.seed, cursor=trainer.cursor)
    while trainer.step < last_step and (deadline is None or clock < deadline):
        samples, cursor = next(batches)
        trainer.advance(samples, cursor)
        before, clock = clock, read_clock()
        trainer.seconds += clock - before
        reading = trainer.read() if trainer.step % READ_EVERY == 0 or trainer.step == recipe.steps else None
        if trainer.step % SAVE_EVERY == 0:
            trainer.save(state)
        if report is not None:
            report(trainer.step, reading)
    if trainer.step < recipe.steps:
        trainer.save(state)
    else:
        _save(trainer.model, recipe, output)
        write_card(recipe, trainer.record, output)
        state.unlink(missing_ok=True)
    return trainer


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="python -m training.train", description="Train a tiny model.")
    parser.add_argument("name", choices=tuple(RECIPES))
    parser.add_argument("--output", type=Path, help="checkpoint folder to write (default: ./NAME)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--resume", action="store_true", help="go on from the state saved in the output folder")
    parser.add_argument("--minutes", type=float, help="pause after so many minutes; --resume goes on later")
    parser.add_argument("--steps", type=int, help="pause after so many steps; --resume goes on later")
    parser.add_argument("--threads", type=int, default=1, help="CPU threads (default: 1)")
    parser.add_argument("--device", default="cpu", help="where to train (default: cpu)")
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
                figures = f"step {reading.step:5d}  loss {reading.loss:.4f}  {reading.minutes:5.1f} min"
                console.print(f"{figures}  {reading.stage}")

        run = Run(arguments.seed, arguments.resume, arguments.steps, arguments.minutes, arguments.device)
        trainer = train(recipe, output, run, report=report)
    finished = trainer.step == recipe.steps
    console.print(f"{'finished' if finished else 'paused'} at step {trainer.step} of {recipe.steps}: {output}")


def clock_of(device: str) -> Callable[[], float]:
    """Return the clock whose seconds count: processor time of this process on a CPU, wall time on
    another device."""
    return time.process_time if torch.device(device).type == "cpu" else time.perf_counter


def _starting_model(recipe: Recipe, seed: int) -> PreTrainedModel:
    if recipe.lesson == "random canvas":
        fresh, load = fresh_canvas_model, load_canvas_model
    else:
        fresh, load = fresh_model, load_model
    return fresh(recipe, seed) if recipe.starts_from is None else load(path(recipe.starts_from))


def _save(model: PreTrainedModel, recipe: Recipe, folder: Path) -> None:
    match model:
        case Qwen3ForCausalLM():
            save_checkpoint(model, recipe, folder)
        case DiffusionGemmaForBlockDiffusion():
            save_canvas_model(model, recipe, folder)
            save_tokenizer(folder)
        case _:
            raise TypeError(f"no recipe trains a {type(model).__name__}")


def _optimisers(model: nn.Module, recipe: Recipe) -> tuple[torch.optim.Optimizer, ...]:
    """Return Muon for the matrices inside the layers, and AdamW for the embedding, the norms and
    stacked experts."""
    named = [(name, parameter) for name, parameter in model.named_parameters() if parameter.requires_grad]
    matrices = [parameter for name, parameter in named if parameter.ndim == 2 and "embed_tokens" not in name]
    others = [parameter for name, parameter in named if parameter.ndim != 2 or "embed_tokens" in name]
    kind = torch.optim.Muon if recipe.precision == "bfloat16" else Float32Muon
    muon = kind(matrices, lr=recipe.muon_rate, weight_decay=0.01, adjust_lr_fn="match_rms_adamw")
    adam = torch.optim.AdamW(others, lr=recipe.adam_rate, betas=(0.9, 0.98), weight_decay=0.0)
    for optimiser, peak in ((muon, recipe.muon_rate), (adam, recipe.adam_rate)):
        for group in optimiser.param_groups:
            group["peak"] = peak
    return muon, adam


def _learn(model: nn.Module, optimisers: tuple[torch.optim.Optimizer, ...], loss: Tensor) -> Tensor:
    """Take one optimiser step on the loss. Return the loss without its graph."""
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    for optimiser in optimisers:
        optimiser.step()
        optimiser.zero_grad(set_to_none=True)
    return loss.detach()


def _identity(recipe: Recipe, seed: int) -> str:
    return f"{recipe!r} with seed {seed}"


if __name__ == "__main__":
    main()
