"""Messages are pulled from a consumer, one request after the other, each of them up to its end.

The client's own `fetch` leaves requests open, whose messages come when nobody waits for them.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from harken.errors import RetryLater
from harken.services.nats.connection import ANSWER_SECONDS

if TYPE_CHECKING:
    from nats.aio.client import Client
    from nats.aio.msg import Msg
    from nats.aio.subscription import Subscription

__all__ = ["WAIT_SECONDS", "Pulls"]

WAIT_SECONDS = 2.0
"""How long one request waits for something new: so often we hear that the server is there."""
MOST_BYTES = 80_000_000
"""No more than so many bytes are taken at once; a single message of NATS has 64 MB at most."""
ENDS = ("batch completed", "exceeded max", "message size exceeds")
"""Why a request is over while the consumer is well."""


class Pulls:
    """The requests of one connection to one consumer."""

    def __init__(self, client: Client, subject: str, inbox: str, arrivals: Subscription) -> None:
        self._client = client
        self._subject = subject
        self._inbox = inbox
        self._arrivals = arrivals
        self._number = 0

    @classmethod
    async def opened(cls, client: Client, stream: str, consumer: str) -> Pulls:
        inbox = client.new_inbox()
        # no limits, as the client would throw away what exceeds them; what is asked for is the limit
        arrivals = await client.subscribe(f"{inbox}.*", pending_msgs_limit=0, pending_bytes_limit=0)
        return cls(client, f"$JS.API.CONSUMER.MSG.NEXT.{stream}.{consumer}", inbox, arrivals)

    async def fetch(self, count: int) -> list[Msg]:
        """What is there, or else what comes first within the wait and what came with it."""
        at_once = {"no_wait": True, "max_bytes": MOST_BYTES}
        found = await self._pull(count, at_once)
        if found:
            return found
        waiting = {"expires": _nanoseconds(WAIT_SECONDS), "idle_heartbeat": _nanoseconds(WAIT_SECONDS / 2)}
        found = await self._pull(1, waiting)
        if not found or count == 1:
            return found
        return found + await self._pull(count - 1, at_once)

    async def _pull(self, count: int, how: dict[str, Any]) -> list[Msg]:
        """So many messages, or those up to the server's word that there are no more."""
        self._number += 1
        reply = f"{self._inbox}.{self._number}"
        await self._client.publish(self._subject, json.dumps({"batch": count, **how}).encode(), reply=reply)
        found: list[Msg] = []
        while len(found) < count:
            message = await self._arrivals.next_msg(timeout=ANSWER_SECONDS)
            # headers prove nothing, as whoever sends a message writes them
            if message.reply.startswith("$JS.ACK."):
                found.append(message)
            elif message.subject == reply and _is_end(message):
                break
        return found


def _is_end(message: Msg) -> bool:
    headers = message.headers or {}
    status, text = headers.get("Status", ""), headers.get("Description", "").lower()
    if status == "100":
        return False
    if status in ("404", "408") or text.startswith(ENDS):
        return True
    # deleted, or its server is leaving: the next connection finds out
    raise RetryLater(f"the consumer of the stream has ended: {status} {text[:100]}")


def _nanoseconds(seconds: float) -> int:
    return int(seconds * 1_000_000_000)
