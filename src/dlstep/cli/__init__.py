"""The command `dlstep`. Options come from the config dataclasses; heavy imports happen inside the commands."""

from .main import main as main
