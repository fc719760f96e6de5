"""Shapes and dtypes are checked in these tests, unless other tests imported the packages first."""

from jaxtyping import install_import_hook

install_import_hook(["dlstep.driver", "dlstep.models", "dlstep_kernels"], "beartype.beartype")


# Imported below the hook, which refuses to check what is imported already.
from pathlib import Path  # noqa: E402

import pytest  # noqa: E402
import torch  # noqa: E402

from dlstep.models import Checkpoint, load_checkpoint  # noqa: E402

from ...helpers.random_checkpoints import write_checkpoint  # noqa: E402


@pytest.fixture(scope="session", autouse=True)
def one_thread():
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def folders(tmp_path_factory) -> dict[str, Path]:
    """Checkpoint folders with random weights: an ordinary one, one with a shift head, one with sliding layers."""
    base = tmp_path_factory.mktemp("checkpoints")
    return {
        "plain": write_checkpoint(base / "plain"),
        "shifted": write_checkpoint(base / "shifted", head_shift=1),
        "sliding": write_checkpoint(base / "sliding", window=6),
    }


@pytest.fixture(scope="session")
def checkpoints(folders) -> dict[str, Checkpoint]:
    return {name: load_checkpoint(folder) for name, folder in folders.items()}
