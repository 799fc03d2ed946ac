"""moto's SQS, SNS and IAM in a process of its own: `python -m tests.servers.moto_process PORT FILE`.

moto's queues are made for one thread: requests at the same time lose messages, and a FIFO group comes in the wrong
order after a visibility timeout. So one request at a time uses a queue here, and a request that waits for messages
asks again and again. moto also counts all messages several times for each that is sent or received; here the numbers
are up to COUNT_SECONDS old. FILE has the messages from one start to the next.
"""

from __future__ import annotations

import os
import pickle
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

from moto.server import main
from moto.sqs.models import Queue, SQSBackend, sqs_backends

ACCOUNT, REGION = "123456789012", "eu-central-1"
ASK_AGAIN_SECONDS = 0.02
COUNT_SECONDS = 0.1
KEPT = ("created_timestamp", "_messages", "_pending_messages", "deleted_messages")

_lock = threading.RLock()
_receive = SQSBackend.receive_message


def _receive_in_turn(
    self: SQSBackend, queue_name: str, count: int, wait_seconds: int, visibility_seconds: int, names: Any = None
) -> list[Any]:
    until = time.monotonic() + wait_seconds
    while True:
        with _lock:
            queue = self.get_queue(queue_name)
            queue._pending_messages = {one for one in queue._pending_messages if not one.visible}
            found = _receive(self, queue_name, count, 0, visibility_seconds, names)
        if found or time.monotonic() >= until:
            return found
        time.sleep(ASK_AGAIN_SECONDS)


def _in_turn(name: str) -> None:
    verb = getattr(SQSBackend, name)

    def alone(*args: Any, **options: Any) -> Any:
        with _lock:
            return verb(*args, **options)

    setattr(SQSBackend, name, alone)


def _count_seldom(name: str) -> None:
    count = getattr(Queue, name).fget
    known: dict[int, tuple[float, int]] = {}

    def counted(self: Queue) -> int:
        at, number = known.get(id(self), (0.0, 0))
        if time.monotonic() - at > COUNT_SECONDS:
            number = count(self)
            known[id(self)] = (time.monotonic(), number)
        return number

    setattr(Queue, name, property(counted))


def _save(path: Path) -> None:
    with _lock:
        queues = sqs_backends[ACCOUNT][REGION].queues
        kept = {
            name: ({key: str(value) for key, value in queue.attributes.items()}, [getattr(queue, at) for at in KEPT])
            for name, queue in queues.items()
        }
        path.write_bytes(pickle.dumps(kept))


def _load(path: Path) -> None:
    given = ("VisibilityTimeout", "FifoQueue", "ContentBasedDeduplication")
    for name, (attributes, values) in pickle.loads(path.read_bytes()).items():
        own = {key: value for key, value in attributes.items() if key in given}
        queue = sqs_backends[ACCOUNT][REGION].create_queue(name, **own)
        for at, value in zip(KEPT, values, strict=True):
            setattr(queue, at, value)


def _serve(port: str, path: Path) -> None:
    setattr(SQSBackend, "receive_message", _receive_in_turn)  # noqa: B010
    for name in ("send_message", "send_message_batch", "delete_message_batch", "change_message_visibility_batch"):
        _in_turn(name)
    for name in ("create_queue", "delete_queue", "get_queue_attributes", "purge_queue"):
        _in_turn(name)
    for name in ("", "_delayed", "_not_visible"):
        _count_seldom(f"approximate_number_of_messages{name}")
    setattr(SQSBackend, "is_message_valid_based_on_retention_period", lambda *_: True)  # noqa: B010
    if path.exists():
        _load(path)

    def end() -> None:
        # requests that still wait do not keep the process
        signal.sigwait({signal.SIGTERM})
        _save(path)
        os._exit(0)

    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    threading.Thread(target=end, daemon=True).start()
    main(["-H", "127.0.0.1", "-p", port])


if __name__ == "__main__":
    _serve(sys.argv[1], Path(sys.argv[2]))
