"""A program, not to be imported: it asks Linux to kill it when its parent dies, then becomes the given program.

    python die_with_parent.py PARENT_PID PROGRAM [ARGUMENT…]

A function between fork and exec could do the same, but is not safe in a process with threads.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1
CANNOT_RUN = 126


def main() -> None:
    parent, command = int(sys.argv[1]), sys.argv[2:]
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        # the parent died before the call of prctl
        sys.exit(1)
    # Python ignores these signals, and an ignored signal stays ignored after exec
    for ignored in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(ignored, signal.SIG_DFL)
    try:
        os.execvp(command[0], command)
    except OSError as error:
        sys.stderr.write(f"it cannot be run: {error.strerror}\n")
        sys.exit(CANNOT_RUN)


if __name__ == "__main__":
    main()
