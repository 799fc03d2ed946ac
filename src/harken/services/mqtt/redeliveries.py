"""Which messages of a session are repeats, and what they are called.

MQTT names no message. What a broker sends again on a new connection has its old packet number and a mark that it is a
repeat, but the broker cannot tell whether we had stored it. So the position has what was stored and is perhaps not yet
acknowledged. A broker that gives a number again at once, to an equal message without any id in its properties, could be
misunderstood: only if we die within the two seconds before the position is cleared, after such a message was received
and before it was stored. Most brokers count up to 65,535 before they begin again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import msgspec

__all__ = ["Deliveries", "Position", "mark_of"]


class Position(msgspec.Struct, frozen=True, kw_only=True):
    """How many messages of this session were stored. `session` tells it from the one before, which the broker lost.

    `unconfirmed` are marks of stored messages whose acknowledgement may not have arrived. `topics` are subscribed to.
    """

    session: str
    count: int = 0
    unconfirmed: tuple[str, ...] = ()
    topics: tuple[str, ...] = ()


def mark_of(number: int, topic: bytes, body: bytes, *properties: bytes) -> str:
    """What tells a message that is in flight from others: brokers use a number again once it is acknowledged.

    Of the properties only those count that brokers must pass on as they are; others change while a message waits.
    """
    parts = (topic, *properties, body)
    content = hashlib.blake2b(b"".join(b"%d:%b" % (len(part), part) for part in parts), digest_size=6).hexdigest()
    return f"{number}:{content}"


class Deliveries:
    """Follows one connection. `position` is what is stored with the next batch.

    The broker has an acknowledgement for certain when it answers a ping that was sent after it.
    """

    def __init__(self, position: Position) -> None:
        self.position = position
        self._before = list(position.unconfirmed)
        self._acknowledged: list[tuple[int, Sequence[str]]] = []

    def is_repeat(self, mark: str) -> bool:
        """Whether a message that the broker marks as a repeat was stored on a connection before this one."""
        return mark in self._before

    def take(self, marks: Sequence[str], new: int) -> None:
        """A batch with these marks is about to be stored, with so many messages that were not stored before."""
        acknowledged = [mark for _, group in self._acknowledged for mark in group]
        unconfirmed = dict.fromkeys([*self._before, *acknowledged, *marks])
        self._replace(self.position.count + new, tuple(unconfirmed))

    def acknowledge(self, marks: Sequence[str], ping: int) -> None:
        """They were acknowledged, and then the ping with this number was sent."""
        self._acknowledged.append((ping, marks))

    def confirm(self, pongs: int) -> None:
        """So many pings were answered."""
        self._acknowledged = [(ping, marks) for ping, marks in self._acknowledged if ping > pongs]

    def rest(self) -> None:
        """The broker answered and has nothing to send: what it had to repeat is repeated."""
        if not self._acknowledged:
            self._before = []
            self._replace(self.position.count, ())

    def _replace(self, count: int, unconfirmed: tuple[str, ...]) -> None:
        self.position = msgspec.structs.replace(self.position, count=count, unconfirmed=unconfirmed)
