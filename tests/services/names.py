"""Host names for tests: a name server that answers what a test wants, and something else the next time."""

from __future__ import annotations

import socket
from typing import Any

import pytest

_real = socket.getaddrinfo


class Names:
    """Each question about a name takes its next answer, which is one or more addresses; the last answer stays."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, **answers: list[list[str]]) -> None:
        self.asked: list[str] = []
        self._answers = {name.replace("_", "."): list(given) for name, given in answers.items()}
        monkeypatch.setattr(socket, "getaddrinfo", self._getaddrinfo)

    def _getaddrinfo(self, host: Any, port: Any, *args: Any, **more: Any) -> Any:
        answers = self._answers.get(host)
        if answers is None:
            return _real(host, port, *args, **more)
        self.asked.append(host)
        addresses = answers.pop(0) if len(answers) > 1 else answers[0]
        return [found for address in addresses for found in _real(address, port, *args, **more)]
