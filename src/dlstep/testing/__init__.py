"""Devices without a model, and the laws that every strategy must pass, also for user code.

`laws`, `generators` and `harness` need hypothesis; the drivers do not.
"""

from .scripted import ScriptedDriver as ScriptedDriver
from .shadow import ShadowDriver as ShadowDriver
