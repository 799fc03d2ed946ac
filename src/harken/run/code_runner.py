"""A program, not to be imported: it executes the code of a python step, with limits that the code cannot lift.

    python -I code_runner.py PARENT_PID MEMORY_MB NETWORK

The code and its input are one line of JSON on the input. The answer is one line of JSON on the output; what the code
prints goes to the error output. The process dies with its parent. On Linux the kernel refuses the code other
processes, signals to them, how they are scheduled, memory that is shared with them, modes and owners of files, and
the network unless NETWORK is 1 (seccomp), and every file but Python itself and the working directory (Landlock, where
the kernel has it). This file needs nothing but the standard library.
"""

from __future__ import annotations

import ctypes
import json
import os
import platform
import resource
import signal
import sys
import threading
import traceback

PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_SET_SECCOMP, PR_SET_NO_NEW_PRIVS, SECCOMP_MODE_FILTER = 1, 4, 22, 38, 2
FILE_SIZE, OPEN_FILES, CPU_SECONDS = 16_000_000, 64, 3_600
EPERM, ENOSYS = 1, 38
# numbers of system calls that are refused: processes, signals, the memory and limits of others, kernel interfaces
_REFUSED = {
    "x86_64": (57, 58, 59, 62, 101, 129, 160, 165, 200, 248, 249, 250, 272, 297, 298, 302, 308, 310, 311, 321, 322),
    "aarch64": (40, 97, 117, 129, 130, 138, 164, 217, 218, 219, 221, 240, 241, 261, 268, 270, 271, 280, 281),
}
_REFUSED_EVERYWHERE = (424, 425, 434, 438, 440)
# how others are scheduled, and memory and queues that they share and that stay when a process ends
_REFUSED_OF_OTHERS = {
    "x86_64": (29, 30, 64, 68, 141, 142, 144, 203, 240, 251, 256, 279, 312, 314),
    "aarch64": (30, 118, 119, 122, 140, 180, 186, 190, 194, 196, 238, 239, 272, 274),
}
# owners and attributes of files, which Landlock does not look at
_REFUSED_OF_FILES = {
    "x86_64": (92, 93, 94, 188, 189, 190, 197, 198, 199, 260, 463, 466, 469),
    "aarch64": (5, 6, 7, 14, 15, 16, 54, 55, 463, 466, 469),
}
# modes of files: without effect, as who copies a file of its own sets its mode too
_WITHOUT_EFFECT = {"x86_64": (90, 91, 268, 452), "aarch64": (52, 53, 452)}
_ARCHITECTURE = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
_SOCKET = {"x86_64": 41, "aarch64": 198}
_CLONE = {"x86_64": 56, "aarch64": 220}
_PRCTL = {"x86_64": 157, "aarch64": 167}
_TGKILL = {"x86_64": 234, "aarch64": 131}
_FCNTL = {"x86_64": 72, "aarch64": 25}
_IOCTL = {"x86_64": 16, "aarch64": 29}
# who gets a signal when something can be read: F_SETOWN, F_SETOWN_EX; FIOSETOWN, SIOCSPGRP
_FCNTL_OWNERS, _IOCTL_OWNERS = (8, 15), (0x8901, 0x8902)
_CLONE3, _CLONE_THREAD, _X32 = 435, 0x10000, 0x40000000
_LOAD, _EQUAL, _AT_LEAST, _BITS, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_ALLOW, _ERROR, _KILL = 0x7FFF0000, 0x00050000, 0x80000000
_NUMBER, _ARCH, _FIRST_ARGUMENT, _SECOND_ARGUMENT = 0, 4, 16, 24
_LANDLOCK_CREATE, _LANDLOCK_ADD, _LANDLOCK_RESTRICT = 444, 445, 446
_READ_FILE, _READ_DIRECTORY = 1 << 2, 1 << 3
_SYSTEM_FILES = ("/usr/lib", "/lib", "/lib64", "/usr/share/zoneinfo", "/etc/localtime", "/dev/urandom", "/dev/null")


class Instruction(ctypes.Structure):
    _fields_ = (("code", ctypes.c_ushort), ("jt", ctypes.c_ubyte), ("jf", ctypes.c_ubyte), ("k", ctypes.c_uint))


class Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("instructions", ctypes.POINTER(Instruction)))


class Beneath(ctypes.Structure):
    _pack_ = 1
    _fields_ = (("allowed", ctypes.c_uint64), ("folder", ctypes.c_int32))


def refusals(machine: str, network: bool) -> list[tuple[int, int, int, int]]:
    """The filter of system calls. Threads may be made and signalled, processes may not."""
    refuse, allow, pretend = (_RETURN, 0, 0, _ERROR | EPERM), (_RETURN, 0, 0, _ALLOW), (_RETURN, 0, 0, _ERROR)
    made = [
        (_LOAD, 0, 0, _ARCH),
        (_EQUAL, 1, 0, _ARCHITECTURE[machine]),
        (_RETURN, 0, 0, _KILL),
        (_LOAD, 0, 0, _NUMBER),
        (_AT_LEAST, 0, 1, _X32),
        refuse,
    ]
    refused = (*_REFUSED[machine], *_REFUSED_EVERYWHERE, *_REFUSED_OF_OTHERS[machine], *_REFUSED_OF_FILES[machine])
    for number in (*refused, *(() if network else (_SOCKET[machine],))):
        made += [(_EQUAL, 0, 1, number), refuse]
    for number in _WITHOUT_EFFECT[machine]:
        made += [(_EQUAL, 0, 1, number), pretend]
    # libraries fall back to clone, whose flags can be seen
    made += [(_EQUAL, 0, 1, _CLONE3), (_RETURN, 0, 0, _ERROR | ENOSYS)]
    first = (_LOAD, 0, 0, _FIRST_ARGUMENT)
    made += [(_EQUAL, 0, 4, _CLONE[machine]), first, (_BITS, 1, 0, _CLONE_THREAD), refuse, allow]
    # who is not dumpable hides which files are open
    kept = ((_EQUAL, 1, 0, PR_SET_PDEATHSIG), (_EQUAL, 0, 1, PR_SET_DUMPABLE))
    made += [(_EQUAL, 0, 5, _PRCTL[machine]), first, *kept, refuse, allow]
    made += [(_EQUAL, 0, 4, _TGKILL[machine]), first, (_EQUAL, 1, 0, os.getpid()), refuse, allow]
    second = (_LOAD, 0, 0, _SECOND_ARGUMENT)
    for call, (one, other) in ((_FCNTL[machine], _FCNTL_OWNERS), (_IOCTL[machine], _IOCTL_OWNERS)):
        made += [(_EQUAL, 0, 5, call), second, (_EQUAL, 1, 0, one), (_EQUAL, 0, 1, other), refuse, allow]
    return [*made, allow]


def filter_calls(libc: ctypes.CDLL, network: bool) -> bool:
    machine = platform.machine()
    if machine not in _ARCHITECTURE:
        return False
    written = refusals(machine, network)
    instructions = (Instruction * len(written))(*(Instruction(*one) for one in written))
    program = Program(len(written), instructions)
    return bool(libc.prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, ctypes.byref(program), 0, 0) == 0)


def confine_files(libc: ctypes.CDLL, folder: str) -> bool:
    """Only Python, the libraries of the system and the working directory can be opened from now on."""
    version = libc.syscall(_LANDLOCK_CREATE, None, ctypes.c_size_t(0), ctypes.c_uint(1))
    if version < 1:
        return False
    everything = (1 << min(13 + (version > 1) + (version > 2), 15)) - 1
    handled = ctypes.c_uint64(everything)
    rules = libc.syscall(_LANDLOCK_CREATE, ctypes.byref(handled), ctypes.c_size_t(8), ctypes.c_uint(0))
    if rules < 0:
        return False
    readable = {sys.prefix, sys.base_prefix, sys.exec_prefix, *sys.path, *_SYSTEM_FILES}
    for path, allowed in [(one, _READ_FILE | _READ_DIRECTORY) for one in readable] + [(folder, everything)]:
        try:
            handle = os.open(path, os.O_PATH | os.O_CLOEXEC)
        except OSError:
            continue
        rights = allowed if os.path.isdir(path) else _READ_FILE
        libc.syscall(_LANDLOCK_ADD, rules, 1, ctypes.byref(Beneath(rights, handle)), 0)
        os.close(handle)
    return bool(libc.syscall(_LANDLOCK_RESTRICT, rules, 0) == 0)


def limit(memory: int) -> None:
    for kind, most in (
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_FSIZE, FILE_SIZE),
        (resource.RLIMIT_NOFILE, OPEN_FILES),
        (resource.RLIMIT_CPU, CPU_SECONDS),
        (resource.RLIMIT_AS, memory * 1_000_000),
    ):
        _, hard = resource.getrlimit(kind)
        allowed = most if hard == resource.RLIM_INFINITY else min(most, hard)
        try:
            resource.setrlimit(kind, (allowed, allowed))
        except (OSError, ValueError):
            # macOS has no limit of address space
            if kind != resource.RLIMIT_AS:
                raise


def confine(memory: int, network: bool) -> list[str]:
    """Apply every limit, and return what the kernel keeps the code from. It cannot be undone."""
    limit(memory)
    if sys.platform != "linux":
        return []
    libc = ctypes.CDLL(None)
    libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    files = confine_files(libc, os.getcwd())
    calls = filter_calls(libc, network)
    named = (("files", files), ("processes", calls), ("network", calls and not network))
    return [name for name, kept in named if kept]


def die_with(parent: int) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)


def watch_input() -> None:
    """The end of the input means that the parent is gone."""
    while os.read(0, 4096):
        pass
    os._exit(1)


def execute(code: str, given: object) -> dict[str, object]:
    try:
        names: dict[str, object] = {"__name__": "step"}
        exec(compile(code, "code", "exec"), names)
        run = names["run"]
        assert callable(run)
        return {"ok": run(given)}
    except BaseException as error:
        # the innermost calls are enough, however deep it was
        traceback.print_exc(limit=-20)
        frames = traceback.extract_tb(error.__traceback__, limit=-20)
        lines = [frame.lineno for frame in frames if frame.filename == "code"]
        told = f"{type(error).__name__}: {error}"[:1_000].encode("utf-8", "backslashreplace").decode()
        return {"error": told, "line": lines[-1] if lines else None}


def main() -> None:
    parent, memory, network = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3] == "1"
    die_with(parent)
    asked = json.loads(sys.stdin.readline())
    # what the code prints must not be taken for its answer
    answer = os.dup(1)
    os.dup2(2, 1)
    if sys.platform != "linux":
        threading.Thread(target=watch_input, daemon=True).start()
    kept = confine(memory, network)
    if sys.platform == "linux" and not network and "network" not in kept:
        told: dict[str, object] = {"refused": "this machine cannot keep a program from the network"}
    else:
        told = execute(asked["code"], asked["input"])
    try:
        text = json.dumps(told, allow_nan=False, ensure_ascii=False).encode()
    except BaseException as error:
        text = json.dumps({"error": f"what it returns is no JSON: {type(error).__name__}: {error}"[:1_000]}).encode()
    sys.stdout.flush()
    sys.stderr.flush()
    data = json.dumps({"kept": kept}).encode() + b"\n" + text + b"\n"
    while data:
        data = data[os.write(answer, data) :]
    # threads of the code, and what it registered for the end, do not keep us
    os._exit(0)


if __name__ == "__main__":
    main()
