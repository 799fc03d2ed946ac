"""The client of the controller that runs for a configuration: found by its run file, and known to live by its pid."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from http.client import HTTPException
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from harken.client import Client, Unreachable
from harken.errors import Misconfigured, Refused

__all__ = ["ControllerClient", "Unreachable", "find", "remote"]

RECONNECT_SECONDS = 1.0
TOKEN, TOKEN_FILE = "HARKEN_TOKEN", "HARKEN_TOKEN_FILE"


class ControllerClient(Client):
    """A controller of this machine, or with the pid 0 one elsewhere."""

    def __init__(self, *, pid: int, url: str, token: str = "") -> None:
        super().__init__(url, token=token)
        self.pid = pid

    def follow(self, after: int | None = None) -> Iterator[dict[str, Any]]:
        """Events as they are committed, over every reconnect, until the controller is gone."""
        while self.pid == 0 or is_alive(self.pid):
            try:
                for event in self.tail(after):
                    after = event["id"]
                    yield dict(event)
            except (Unreachable, HTTPException, OSError):
                # a dropped connection; the id we hold makes the next one go on where this ended
                time.sleep(RECONNECT_SECONDS)


def find(directory: Path) -> ControllerClient | None:
    """The controller that wrote its run file beside the store of this configuration and still lives."""
    from harken.operate.controller_file import run_file_of

    path = run_file_of(directory)
    try:
        written = json.loads(path.read_text())
        controller = ControllerClient(
            pid=int(written["pid"]), url=str(written["url"]), token=str(written.get("token", ""))
        )
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError) as error:
        raise Refused(f"{path} is damaged", fix="Delete it if no controller is running") from error
    return controller if is_alive(controller.pid) else None


def remote(url: str) -> ControllerClient:
    """The controller at this URL, with the token of HARKEN_TOKEN or of a file that nobody else can read."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise Misconfigured("this is not the URL of a controller", fix="Write it like https://harken.example.com")
    token = _own_token()
    if not (token.isascii() and token.isprintable()):
        raise Misconfigured(
            "the token for the controller has characters that no token has", fix="Copy it whole, without dots"
        )
    return ControllerClient(pid=0, url=url, token=token)


def _own_token() -> str:
    if token := os.environ.get(TOKEN, "").strip():
        return token
    from harken.private_files import read_private

    settings = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config")
    path = Path(os.environ.get(TOKEN_FILE) or settings / "harken" / "token").expanduser()
    return (read_private(path) or b"").decode("utf-8", "replace").strip()


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
