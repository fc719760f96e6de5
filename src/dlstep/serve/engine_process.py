"""The process of an engine."""

import gc
import logging
import os
from dataclasses import replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import NoReturn

from ..core import DlstepError
from ..core.options import searched
from ..distributed import RankLost
from ..engine.config import EngineConfig
from ..engine.decode import RanksDriver
from ..engine.devices import FIRST_DEVICE, device_of
from ..engine.loader import load_engine
from ..processes import Heart, Worker, last_words
from .engine_loop import execute_commands
from .log_lines import LineHandler
from .messages import EngineFailed


def start_engine(config: EngineConfig, number: int = 0) -> Worker:
    """Start the process of an engine. `number`, the replica's index, selects the CUDA device if there are enough devices."""
    return Worker(run_process, config, number, name=f"dlstep-engine-{number}")


def run_process(pipe: Connection, config: EngineConfig, number: int) -> None:
    """Run the engine process: start heartbeats, load the engine, then execute commands."""
    heart = Heart(pipe)
    logging.getLogger().addHandler(LineHandler(2))
    gc.disable()  # the millions of objects that loading creates stay: traversing them would only take time
    try:
        with searched(Path.cwd()):
            if config.tensor_parallel_size == 1:
                config = replace(config, device=device_of(config.device, number))
            else:  # each rank has a device; the rank processes inherit this variable
                os.environ[FIRST_DEVICE] = str(number * config.tensor_parallel_size)
            engine = load_engine(config)
    except RankLost as error:  # a restart may help, unlike for invalid options
        _end_with_rank(str(error))
    except (ValueError, OSError, DlstepError) as error:
        heart.send(EngineFailed.because(error))
        return
    finally:
        gc.enable()
    if isinstance(engine.driver, RanksDriver):
        engine.driver.when_lost(_end_with_rank)
    gc.freeze()  # collections between steps do not traverse them either
    execute_commands(engine, heart)


def _end_with_rank(reason: str) -> NoReturn:
    """End this process, so that its requests end and the server restarts it with all ranks."""
    last_words(reason)  # printed by the server
    os._exit(1)
