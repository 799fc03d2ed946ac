"""A program that is told nothing of changes in the network."""

from __future__ import annotations

import platform
import subprocess
import sys
from pathlib import Path

import pytest

from tests.ui.steady_network import SOCKET_CALL, steady

ASK = """
import socket
socket.socket(socket.AF_INET).close()
try:
    socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0)
except OSError as error:
    print(error.strerror)
"""


@pytest.mark.skipif(platform.machine() not in SOCKET_CALL, reason="the number of a system call is not known here")
def test_it_may_have_connections_and_no_news_of_the_network(tmp_path: Path) -> None:
    command = steady(Path(sys.executable), tmp_path)
    done = subprocess.run([command, "-c", ASK], capture_output=True, text=True, check=True)
    assert done.stdout == "Address family not supported by protocol\n"
