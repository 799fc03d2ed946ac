"""The mock cluster of librdkafka in a process of its own: it speaks Kafka's protocol, and keeps its topics in memory.

It has one broker, four partitions to a topic, and about 5 MB for each of them: it deletes older messages then. It
cannot ask for a password, delete a topic, add partitions, or find an offset by time.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Self

__all__ = ["KafkaServer"]

ROOT = Path(__file__).parents[2]


class KafkaServer:
    """Started by `with`. Its port is another after each start, and its topics are gone."""

    address = ""

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._process:
            self.stop()

    def start(self) -> None:
        # it ends with us: the end of its input is its sign
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.servers.kafka"],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdout is not None
        self.address = self._process.stdout.readline().strip()
        assert self.address, "the mock cluster did not start"

    def stop(self) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.communicate(timeout=120)
        self._process = None

    def freeze(self) -> None:
        """Let it answer nothing, with all connections open."""
        self._signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self._signal(signal.SIGCONT)

    def _signal(self, number: signal.Signals) -> None:
        assert self._process is not None
        os.kill(self._process.pid, number)


def main() -> None:
    from confluent_kafka import Producer

    # a client that brings its cluster with it; the address is not used
    client = Producer({"bootstrap.servers": "127.0.0.1:1", "test.mock.num.brokers": 1, "log_level": 0})
    [broker] = client.list_topics(timeout=60).brokers.values()
    sys.stdout.write(f"{broker.host}:{broker.port}\n")
    sys.stdout.flush()
    sys.stdin.read()


if __name__ == "__main__":
    main()
