"""A bucket of moto that notifies a queue of moto: the listing is what counts, and what was not announced is counted."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from itertools import count
from typing import Any

import pytest
from structlog.testing import capture_logs

from harken.services.aws import bucket_poll_wakeups
from harken.services.aws.bucket_poll_wakeups import GRACE_SECONDS, MOST_KEYS, Announcements, read_announcement
from harken.services.aws.s3 import S3Account, S3Query, plugin
from harken.source import AnnouncedSource, Host, PollSource, RingingSource
from harken.testing import START, HandClock
from tests.servers.moto import REGION, MotoServer

# its server is started once, and not by each worker
pytestmark = pytest.mark.worker_group("sqs")

numbers = count(1)


@pytest.fixture(scope="module")
def moto() -> Iterator[MotoServer]:
    with MotoServer() as server:
        yield server


class RingingBucket:
    """A bucket with a queue that it notifies, and the source that reads the two."""

    def __init__(self, server: MotoServer, host: Host) -> None:
        self.name, self.queue = f"orders-{next(numbers)}", f"bell-{next(numbers)}"
        self.s3, self.sqs, self.host = server.client("s3"), server.client("sqs"), host
        self.s3.create_bucket(Bucket=self.name, CreateBucketConfiguration={"LocationConstraint": REGION})
        self.url = self.sqs.create_queue(QueueName=self.queue)["QueueUrl"]
        account = S3Account(access_key_id="test", secret_access_key="test", region=REGION, endpoint=server.url)
        query = S3Query(bucket=self.name, prefix="in/", include="*.csv", doorbell=self.queue)
        assert plugin.source is not None
        self.source: Any = plugin.source(query, account, host)
        self.cursor: Any = None

    def notify(self, *, on: bool) -> None:
        arn = f"arn:aws:sqs:{REGION}:123456789012:{self.queue}"
        configured = {"QueueArn": arn, "Events": ["s3:ObjectCreated:*", "s3:ObjectRemoved:*"]}
        settings = {"QueueConfigurations": [configured]} if on else {}
        self.s3.put_bucket_notification_configuration(Bucket=self.name, NotificationConfiguration=settings)

    async def put(self, key: str) -> None:
        await asyncio.to_thread(self.s3.put_object, Bucket=self.name, Key=key, Body=b"x")

    async def read(self) -> list[str]:
        batch = await self.source.poll(self.cursor, START)
        self.cursor = batch.cursor
        return sorted(event.subject for event in batch.events)

    async def rung(self) -> None:
        async with asyncio.timeout(60):
            await self.source.rung()

    def waiting(self) -> int:
        names = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"]
        found = self.sqs.get_queue_attributes(QueueUrl=self.url, AttributeNames=names)["Attributes"]
        return sum(map(int, found.values()))

    async def until_waiting(self, messages: int) -> None:
        """Wait until the queue says that it has so many; what moto counts may be a moment old."""
        async with asyncio.timeout(60):
            while self.waiting() != messages:  # noqa: ASYNC110
                await asyncio.sleep(0.05)


@pytest.fixture
def bucket(moto: MotoServer, host: Host) -> RingingBucket:
    return RingingBucket(moto, host)


def test_only_with_a_queue_a_bucket_rings(bucket: RingingBucket) -> None:
    assert isinstance(bucket.source, PollSource)
    assert isinstance(bucket.source, RingingSource)
    assert isinstance(bucket.source, AnnouncedSource)
    assert plugin.source is not None
    plain = plugin.source(S3Query(bucket=bucket.name), S3Account(), bucket.host)
    assert not isinstance(plain, RingingSource)


async def test_what_was_not_announced_is_found_all_the_same_and_counted(
    bucket: RingingBucket, clock: HandClock
) -> None:
    assert await bucket.read() == []
    bucket.notify(on=True)
    await bucket.put("in/a.csv")
    await bucket.rung()
    assert await bucket.read() == ["in/a.csv"]
    bucket.notify(on=False)
    await bucket.put("in/quiet.csv")
    assert await bucket.read() == ["in/quiet.csv"]
    told = bucket.source.announced
    assert (told.announced, told.missed) == (1, 0), "it may still be announced"
    clock.advance(GRACE_SECONDS + 1)
    assert await bucket.read() == []
    told = bucket.source.announced
    assert (told.announced, told.missed) == (1, 1)


async def test_an_announcement_that_comes_after_the_read_counts(bucket: RingingBucket, clock: HandClock) -> None:
    assert await bucket.read() == []
    bucket.notify(on=True)
    await bucket.put("in/a b+ü.csv")
    assert await bucket.read() == ["in/a b+ü.csv"]
    await bucket.rung()
    clock.advance(GRACE_SECONDS + 1)
    assert await bucket.read() == []
    told = bucket.source.announced
    assert (told.announced, told.missed) == (1, 0)
    await bucket.until_waiting(0)


async def test_objects_that_do_not_count_ring_no_bell(bucket: RingingBucket) -> None:
    bucket.notify(on=True)
    await bucket.put("other/a.csv")
    await bucket.put("in/a.txt")
    ringing = asyncio.create_task(bucket.source.rung())
    while bucket.waiting():  # noqa: ASYNC110
        await asyncio.sleep(0.05)
    assert not ringing.done()
    await bucket.put("in/a.csv")
    async with asyncio.timeout(60):
        await ringing


def tired(clock: Any, naps: int, monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Let the wait for a bell end with so many naps; gives how long each would have been."""
    slept: list[float] = []

    async def nap(seconds: float) -> None:
        slept.append(seconds)
        if len(slept) == naps:
            raise asyncio.CancelledError

    monkeypatch.setattr(clock, "sleep", nap)
    return slept


async def test_messages_that_are_not_of_the_bucket_are_left_in_the_queue(
    bucket: RingingBucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    slept = tired(bucket.host.clock, 1, monkeypatch)
    bucket.sqs.send_message(QueueUrl=bucket.url, MessageBody='{"order": 7}')
    with capture_logs() as logs, pytest.raises(asyncio.CancelledError):
        await bucket.source.rung()
    [line] = logs
    assert line["event"] == "s3.doorbell"
    assert "left there" in line["reason"]
    assert slept == [bucket_poll_wakeups.FOREIGN_SECONDS]
    await bucket.until_waiting(1)


async def test_a_queue_that_is_not_there_is_said_once_and_asked_for_again(
    bucket: RingingBucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    slept = tired(bucket.host.clock, 3, monkeypatch)
    bucket.sqs.delete_queue(QueueUrl=bucket.url)
    with capture_logs() as logs, pytest.raises(asyncio.CancelledError):
        await bucket.source.rung()
    assert len(logs) == 1
    assert bucket.queue in logs[0]["reason"]
    assert slept == [bucket_poll_wakeups.AGAIN_SECONDS] * 3
    assert await bucket.read() == []


async def test_a_bucket_without_a_key_has_no_doorbell_and_says_so(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    assert plugin.source is not None
    source: Any = plugin.source(S3Query(bucket="public", doorbell="bell"), S3Account(), host)
    tired(host.clock, 1, monkeypatch)
    with capture_logs() as logs, pytest.raises(asyncio.CancelledError):
        await source.rung()
    assert "needs a key" in logs[0]["reason"]


def record(key: str, bucket: str = "orders") -> dict[str, Any]:
    return {"eventName": "ObjectCreated:Put", "s3": {"bucket": {"name": bucket}, "object": {"key": key, "size": 1}}}


def test_notifications_come_in_three_forms() -> None:
    direct = json.dumps({"Records": [record("in/a+b%C3%BC.csv"), record("c")]})
    topic = {"Type": "Notification", "MessageId": "m", "TopicArn": "arn:aws:sns:eu:1:t", "Message": direct}
    bridge = {"source": "aws.s3", "detail": {"bucket": {"name": "orders"}, "object": {"key": "in/a+b.csv"}}}
    keys = ["in/a bü.csv".encode(), b"c"]
    assert read_announcement(direct.encode(), "orders") == keys
    assert read_announcement(json.dumps(topic).encode(), "orders") == keys
    assert read_announcement(json.dumps(bridge).encode(), "orders") == [b"in/a+b.csv"]
    test = {"Service": "Amazon S3", "Event": "s3:TestEvent", "Bucket": "orders"}
    assert read_announcement(json.dumps(test).encode(), "orders") == []


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"null",
        b"[]",
        b'{"order": 7}',
        b"\xff\xfe",
        b"[" * 100_000,
        b'{"Records": 7}',
        b'{"Records": [{"s3": null}]}',
        json.dumps({"Records": [record("a", "others")]}).encode(),
        json.dumps({"Records": [record("a"), record("b", "others")]}).encode(),
        b'{"Event": "s3:TestEvent", "Bucket": "others"}',
        b'{"source": "aws.s3", "detail": {"bucket": {"name": "others"}, "object": {"key": "a"}}}',
    ],
)
def test_what_is_no_notification_of_this_bucket_is_not_ours(body: bytes) -> None:
    assert read_announcement(body, "orders") is None


def test_what_is_remembered_has_a_limit() -> None:
    kept = Announcements(START)
    kept.find([f"k{number}" for number in range(MOST_KEYS + 5)], 0.0)
    kept.hear([f"other{number}" for number in range(MOST_KEYS + 5)], 0.0)
    assert (kept.counts.announced, kept.counts.missed) == (0, 5)
    kept.settle(GRACE_SECONDS + 1)
    assert kept.counts.missed == MOST_KEYS + 5
    kept.find(["other9"], GRACE_SECONDS + 1)
    assert kept.counts.announced == 0, "an announcement that nobody needed is forgotten"
