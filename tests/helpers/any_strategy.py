"""A model for each strategy, also for those that no embedded model was trained for."""

import atexit
from functools import cache
from pathlib import Path
from shutil import rmtree
from tempfile import mkdtemp

from dlstep import EngineConfig
from dlstep.core.spec import TRAININGS
from dlstep.engine.strategy_choice import embedded_models_for

from .tiny_configs import FACTS


@cache
def model_of(strategy: str) -> str:
    """The embedded model of a strategy, else the folder of a random network of the family that it was made for."""
    if embedded := embedded_models_for(EngineConfig(decoding_strategy=strategy)):
        return embedded[0]
    from dlstep.models.families import FAMILIES

    from .tiny_families import write_checkpoint

    folder = Path(mkdtemp(prefix="dlstep-"))
    atexit.register(rmtree, folder)
    able = [name for name in FACTS if strategy in TRAININGS[FAMILIES[name].training]]
    family = next((name for name in able if FAMILIES[name].decoding_strategy == strategy), able[0])
    write_checkpoint(folder, family, max_position_embeddings=1024)
    return str(folder)
