"""A process with everything imported, which forks a Harken whenever it is asked: a start without the second of imports.

Run as `python nursery.py DIRECTORY PORT`. `start` forks and answers with the pid, `reap` waits for the child's end.
"""

from __future__ import annotations

import os
import sys
from importlib import import_module
from pathlib import Path

NEEDED = (
    "harken.api.app",
    "harken.api.origin_guard",
    "harken.app.feed_alerts",
    "harken.app.stale_triggers",
    "harken.app.metrics_and_health",
    "harken.app.logs",
    "harken.app.server",
    "harken.app.housekeeping",
    "harken.app.file_watch",
    "harken.ingest.intake",
    "harken.ingest.internal_event_matcher",
    "harken.run.steps",
    "harken.run.worker",
    "harken.services.json",
    "harken.services.webhook",
    "aiohttp",
    "uvloop",
)


def main(directory: Path, port: int) -> None:
    from harken.app import run
    from harken.backends.sqlite import writer
    from harken.services import registry

    for name in NEEDED:
        import_module(name)
    # lives are short here: a database that is locked for a second counts as locked for long
    writer.BUSY_MS = 100
    # a child has better things to do with its short life than to import every service
    dict(registry())
    child = 0
    for line in sys.stdin:
        if line.strip() == "start":
            child = os.fork()
            if child == 0:
                os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
                os.dup2(2, 1)
                os._exit(run(directory, port=port))
            answer = child
        else:
            answer = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        sys.stdout.write(f"{answer}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
