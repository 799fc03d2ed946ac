"""Where the parts are joined: a running Harken, a process around it, and commands without one."""

from harken.app.command import run, settle_memory
from harken.app.engine import App
from harken.app.offline import lending, open_offline, rekey

__all__ = ["App", "lending", "open_offline", "rekey", "run", "settle_memory"]
