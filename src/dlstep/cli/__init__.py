"""The command `dlstep`. Options come from dataclasses; heavy imports happen inside the commands."""

from .main import main as main
