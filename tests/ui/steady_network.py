"""Runs a program that learns nothing of changes in this machine's network: `python steady_network.py PROGRAM …`.

Chromium drops all requests that wait for a connection when a network interface comes or goes, also those to 127.0.0.1.
Tests of replicas that are cut off make such interfaces, and so do containers of anybody else. The kernel tells of them
by netlink, so it is asked to refuse that to the program, and to whatever the program starts.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import socket
import sys
from pathlib import Path

__all__ = ["SOCKET_CALL", "steady"]

SOCKET_CALL = {"x86_64": 41, "aarch64": 198}
"""The number of the system call `socket`."""
PR_SET_SECCOMP, PR_SET_NO_NEW_PRIVS = 22, 38
SECCOMP_MODE_FILTER = 2
LOAD, IF_EQUAL, RETURN = 0x20, 0x15, 0x06
CALL_NUMBER, FIRST_ARGUMENT = 0, 16
ALLOW, REFUSE = 0x7FFF0000, 0x00050000


class Instruction(ctypes.Structure):
    """Of the kernel's filters: what it does, how many to skip if true and if false, and its operand."""

    _fields_ = (("code", ctypes.c_ushort), ("jt", ctypes.c_ubyte), ("jf", ctypes.c_ubyte), ("k", ctypes.c_uint))


class Program(ctypes.Structure):
    _fields_ = (("len", ctypes.c_ushort), ("filter", ctypes.POINTER(Instruction)))


def steady(program: Path, into: Path) -> Path:
    """A command in this directory that runs the program so."""
    command = into / program.name
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{__file__}" "{program}" "$@"\n')
    command.chmod(0o755)
    return command


def refuse_netlink() -> None:
    """From now on. Where the kernel does not know how, nothing is refused."""
    call = SOCKET_CALL.get(platform.machine())
    if call is None:
        return
    instructions = (
        Instruction(LOAD, 0, 0, CALL_NUMBER),
        Instruction(IF_EQUAL, 0, 3, call),
        Instruction(LOAD, 0, 0, FIRST_ARGUMENT),
        Instruction(IF_EQUAL, 0, 1, socket.AF_NETLINK),
        Instruction(RETURN, 0, 0, REFUSE | errno.EAFNOSUPPORT),
        Instruction(RETURN, 0, 0, ALLOW),
    )
    program = Program(len(instructions), (Instruction * len(instructions))(*instructions))
    prctl = ctypes.CDLL(None).prctl
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, ctypes.byref(program), 0, 0)


if __name__ == "__main__":
    refuse_netlink()
    os.execv(sys.argv[1], sys.argv[1:])
