"""Run as a program of its own: it becomes the program that follows, which then ends when its parent does.

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
    parent, words = int(sys.argv[1]), sys.argv[2:]
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        # it ended before we had asked to be told
        sys.exit(1)
    # Python ignores these, and what is ignored stays so in the program that follows
    for ignored in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(ignored, signal.SIG_DFL)
    try:
        os.execvp(words[0], words)
    except OSError as error:
        sys.stderr.write(f"it cannot be run: {error.strerror}\n")
        sys.exit(CANNOT_RUN)


if __name__ == "__main__":
    main()
