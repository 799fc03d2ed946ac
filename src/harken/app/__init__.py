"""Where the parts are joined: a running Harken, a process around it, and commands without one."""

from harken.app.application import App
from harken.app.commands_without_controller import open_factory, open_offline, rekey
from harken.app.run_until_signal import run, settle_memory

__all__ = ["App", "open_factory", "open_offline", "rekey", "run", "settle_memory"]
