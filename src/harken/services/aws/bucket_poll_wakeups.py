"""A bucket's own notifications on a queue: they make the feed be read at once, and nothing is believed of them.

Amazon promises no notification that arrives, so what counts is the listing. How many of the changes that it finds were
announced is counted: https://docs.aws.amazon.com/AmazonS3/latest/userguide/EventNotifications.html
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from urllib.parse import unquote_to_bytes

import msgspec
import structlog

from harken.errors import HarkenError
from harken.kit.object_listing import BucketListing, shown_key
from harken.services.aws.sns_notification_in_sqs_message import read_notification
from harken.services.aws.sqs import MOST, Message, Queue
from harken.source import Announced, Batch, Cursor, Host

__all__ = ["Announcements", "RingingListing", "read_announcement"]

log = structlog.get_logger("harken.services.s3")

WAIT_SECONDS = 20
VISIBILITY_SECONDS = 30
RING_FLOOR_SECONDS = 5.0
AGAIN_SECONDS = 30.0
"""So long after a failure the queue is asked again."""
FOREIGN_SECONDS = 300.0
"""So long the queue is left alone when it has messages that are not ours."""
GRACE_SECONDS = 300.0
"""A change that was found first may be announced for so long; notifications take a minute sometimes."""
MOST_KEYS = 10_000


class _Named(msgspec.Struct, frozen=True):
    name: str = ""


class _Object(msgspec.Struct, frozen=True):
    key: str = ""


class _Record(msgspec.Struct, frozen=True):
    bucket: _Named = _Named()
    object: _Object = _Object()


class _S3Record(msgspec.Struct, frozen=True):
    s3: _Record


class _Notice(msgspec.Struct, frozen=True, kw_only=True):
    """What S3 sends itself, what it sends for a test, and what EventBridge makes of it."""

    records: list[_S3Record] = msgspec.field(default_factory=list, name="Records")
    event: str = msgspec.field(default="", name="Event")
    test_bucket: str = msgspec.field(default="", name="Bucket")
    source: str = ""
    detail: _Record | None = None


_decode = msgspec.json.Decoder(_Notice).decode


def read_announcement(body: bytes, bucket: str) -> list[bytes] | None:
    """The keys of the bucket that a message is about; None if it is no notification of this bucket."""
    envelope = read_notification(body)
    try:
        notice = _decode(envelope.message.encode() if envelope else body)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return None
    if notice.event == "s3:TestEvent" and notice.test_bucket == bucket:
        return []
    if notice.source == "aws.s3" and notice.detail is not None:
        # EventBridge has the key as it is
        return [notice.detail.object.key.encode()] if notice.detail.bucket.name == bucket else None
    if not notice.records or any(one.s3.bucket.name != bucket for one in notice.records):
        return None
    return [unquote_to_bytes(one.s3.object.key.replace("+", " ")) for one in notice.records]


class Announcements:
    """Compares what was announced with what was found, in whichever order they come."""

    def __init__(self, now: datetime) -> None:
        self.counts = Announced(announced=0, missed=0, since=now)
        self._heard: dict[str, float] = {}
        self._found: dict[str, float] = {}

    def hear(self, keys: Iterable[str], now: float) -> None:
        for key in keys:
            if self._found.pop(key, None) is not None:
                self._count(announced=1)
            else:
                _note(self._heard, key, now)

    def find(self, keys: Iterable[str], now: float) -> None:
        for key in keys:
            if self._heard.pop(key, None) is not None:
                self._count(announced=1)
            elif dropped := _note(self._found, key, now):
                self._count(missed=dropped)

    def settle(self, now: float) -> None:
        """Count as missed what nobody has announced by now; forget what nobody found."""
        self._count(missed=_expire(self._found, now))
        _expire(self._heard, now)

    def _count(self, *, announced: int = 0, missed: int = 0) -> None:
        before = self.counts
        self.counts = Announced(
            announced=before.announced + announced, missed=before.missed + missed, since=before.since
        )


def _note(noted: dict[str, float], key: str, now: float) -> int:
    """Note a key; return how many older ones had to go for it."""
    noted.pop(key, None)
    noted[key] = now
    if len(noted) <= MOST_KEYS:
        return 0
    del noted[next(iter(noted))]
    return 1


def _expire(noted: dict[str, float], now: float) -> int:
    old = [key for key, at in noted.items() if now - at > GRACE_SECONDS]
    for key in old:
        del noted[key]
    return len(old)


class RingingListing:
    """A bucket that is listed by its schedule, and when its queue says so. `queue` is called when it is first used."""

    ring_floor_seconds = RING_FLOOR_SECONDS

    def __init__(self, listing: BucketListing, bucket: str, queue: Callable[[], Queue], host: Host) -> None:
        self._listing, self._bucket, self._make_queue, self._host = listing, bucket, queue, host
        self._queue: Queue | None = None
        self._announcements = Announcements(host.clock.now())
        self._listed = False
        self._problem = ""

    @property
    def announced(self) -> Announced:
        """How many of the changes that were found were announced, since this process reads the bucket."""
        return self._announcements.counts

    async def poll(self, cursor: Cursor, since: datetime) -> Batch:
        batch = await self._listing.poll(cursor, since)
        now = self._host.clock.time()
        if self._listed:
            # what was found first may have been announced to the process before this one
            self._announcements.find([event.subject for event in batch.events], now)
        self._listed = self._listed or not batch.more
        self._announcements.settle(now)
        return batch

    async def rung(self) -> None:
        """Wait until the queue tells of an object that counts."""
        while True:
            try:
                rings = await self._hear()
            except HarkenError as error:
                self._say(str(error))
                await self._host.clock.sleep(AGAIN_SECONDS)
                continue
            if rings:
                return

    async def _hear(self) -> bool:
        """Receive and delete what is there. A ring that is lost here costs nothing: the schedule reads too."""
        queue = self._queue = self._queue or self._make_queue()
        messages = await queue.receive(MOST, WAIT_SECONDS, VISIBILITY_SECONDS)
        ours = [(one, keys) for one in messages if (keys := self._keys(one)) is not None]
        if ours:
            await queue.delete({one.message_id: one.receipt_handle for one, _ in ours})
        if len(ours) < len(messages):
            message = f"{queue.name} has messages that are no notifications of {self._bucket}; they are left there"
            self._say(message)
            await self._host.clock.sleep(FOREIGN_SECONDS)
        elif messages:
            self._problem = ""
        wanted = [key for _, keys in ours for key in keys if self._listing.counts(key)]
        self._announcements.hear([shown_key(key) for key in wanted], self._host.clock.time())
        return bool(wanted)

    def _keys(self, message: Message) -> Sequence[bytes] | None:
        return read_announcement(message.body.encode("utf-8", "replace"), self._bucket)

    def _say(self, problem: str) -> None:
        if problem != self._problem:
            self._problem = problem
            log.warning("s3.doorbell", bucket=self._bucket, reason=problem, instead="reads by interval")
