"""The client of the controller that runs for a configuration: found by its run file, and known to live by its pid."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from http.client import HTTPException
from pathlib import Path
from typing import Any

from harken.client import Client, Unreachable
from harken.errors import Refused

__all__ = ["ControllerClient", "Unreachable", "find"]

RECONNECT_SECONDS = 1.0


class ControllerClient(Client):
    def __init__(self, *, pid: int, url: str, token: str = "") -> None:
        super().__init__(url, token=token)
        self.pid = pid

    def follow(self, after: int | None = None) -> Iterator[dict[str, Any]]:
        """Events as they are committed, over every reconnect, until the controller is gone."""
        while is_alive(self.pid):
            try:
                for event in self.tail(after):
                    after = event["id"]
                    yield dict(event)
            except (Unreachable, HTTPException, OSError):
                # a dropped connection; the id we hold makes the next one go on where this ended
                time.sleep(RECONNECT_SECONDS)


def find(directory: Path) -> ControllerClient | None:
    """The controller that wrote its run file beside the store of this configuration and still lives."""
    from harken.operate.run_file import run_file_of

    path = run_file_of(directory)
    try:
        written = json.loads(path.read_text())
        controller = ControllerClient(pid=int(written["pid"]), url=str(written["url"]))
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError) as error:
        raise Refused(f"{path} is damaged", fix="Delete it if no controller is running") from error
    return controller if is_alive(controller.pid) else None


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        # it belongs to somebody else, so it lives
        return True
    return not _is_zombie(pid)


def _is_zombie(pid: int) -> bool:
    """Whether it has ended, and only its parent has not looked yet."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    # the name in front of the state is in parentheses and may hold anything
    return fields.rpartition(")")[2].split()[:1] == ["Z"]
