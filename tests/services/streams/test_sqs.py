"""SQS and SNS on moto, with Amazon's own client as the other hand."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import aclosing
from itertools import count
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pytest
from structlog.testing import capture_logs

from harken.clock import SystemClock
from harken.errors import NeedsAttention, Refused, RetryLater
from harken.http import Client
from harken.services.aws import sns, sqs
from harken.services.aws.api import AwsAccount
from harken.services.aws.sqs import SqsQuery, SqsStream
from harken.source import Batch, Call, Host
from harken.testing.stream import Broker, Follower, StreamContract
from tests.servers.moto import COUNT_SECONDS, REGION, MotoServer

# its server is started once, and not by each worker
pytestmark = pytest.mark.worker_group("sqs")

numbers = count(1)


class SqsBroker(Broker):
    """A new queue, and one for what was received more often than three times."""

    suffix = ""
    # moto looks at all that it has for each request
    full = 600

    def __init__(self, server: MotoServer) -> None:
        self.server = server
        self.sqs = server.client("sqs")
        self.name = f"orders-{next(numbers)}{self.suffix}"
        self._clients: list[Client] = []
        self._sent = count()
        dead_name = f"dead-{self.name}"
        self._dead = self.sqs.create_queue(QueueName=dead_name, Attributes=self._settings())["QueueUrl"]
        self.url = self._create()

    def _settings(self) -> dict[str, str]:
        return {"FifoQueue": "true"} if self.suffix else {}

    def _create(self) -> str:
        arn = f"arn:aws:sqs:{REGION}:123456789012:dead-{self.name}"
        redrive = json.dumps({"deadLetterTargetArn": arn, "maxReceiveCount": 3})
        settings = {"RedrivePolicy": redrive, **self._settings()}
        return str(self.sqs.create_queue(QueueName=self.name, Attributes=settings)["QueueUrl"])

    def host(self) -> Host:
        clock = SystemClock()
        client = Client(clock)
        self._clients.append(client)
        return Host(http=client, clock=clock, random=Random(1), allow_private=True)

    async def close(self) -> None:
        for client in self._clients:
            await client.close()

    def account(self, **changed: Any) -> AwsAccount:
        fields = {"access_key_id": "test", "secret_access_key": "test", "region": REGION, "endpoint": self.server.url}
        return AwsAccount.model_validate({**fields, **changed})

    def source(self, **query: Any) -> SqsStream:
        asked = SqsQuery.model_validate(
            {"queue": self.name, "visibility_seconds": 3, "wait_seconds": 1, "batch": 50, **query}
        )
        return SqsStream(asked, self.account(), self.host())

    async def publish(self, bodies: Sequence[bytes]) -> None:
        for begin in range(0, len(bodies), 10):
            entries = [self._entry(body) for body in bodies[begin : begin + 10]]
            answer = await asyncio.to_thread(self.sqs.send_message_batch, QueueUrl=self.url, Entries=entries)
            assert not answer.get("Failed"), answer["Failed"]

    def _entry(self, body: bytes) -> dict[str, str]:
        # SQS takes text only
        return {"Id": str(next(self._sent)), "MessageBody": body.decode("utf-8", "replace")}

    async def left(self) -> int:
        # the server's numbers may be so old
        await asyncio.sleep(COUNT_SECONDS)
        return await asyncio.to_thread(self._count, self.url)

    async def offered(self) -> int:
        return len(await asyncio.to_thread(self._receive))

    def _receive(self) -> list[Any]:
        """Another reader asks."""
        return list(self.sqs.receive_message(QueueUrl=self.url, VisibilityTimeout=0).get("Messages", []))

    async def dead(self) -> int:
        return await asyncio.to_thread(self._count, self._dead)

    def _count(self, url: str) -> int:
        names = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"]
        found = self.sqs.get_queue_attributes(QueueUrl=url, AttributeNames=names)["Attributes"]
        return sum(map(int, found.values()))

    async def restart(self) -> bool:
        await asyncio.to_thread(self.server.stop)
        await asyncio.to_thread(self.server.start)
        return True

    async def recreate(self) -> bool:
        self.sqs.delete_queue(QueueUrl=self.url)
        self._create()
        return True

    async def freeze(self) -> bool:
        self.server.freeze()
        return True

    async def thaw(self) -> None:
        self.server.thaw()

    async def away(self) -> bool:
        await asyncio.to_thread(self.server.stop)
        return True

    def stranger(self) -> SqsStream:
        self.server.require_signatures()
        account = self.account(access_key_id="AKIAIOSFODNN7EXAMPLE")
        return SqsStream(SqsQuery(queue=self.name), account, self.host())

    def lost(self) -> SqsStream:
        return self.source(queue="nobody-made-this")


class FifoBroker(SqsBroker):
    """A FIFO queue with one message group."""

    suffix = ".fifo"
    full = 300

    def _entry(self, body: bytes) -> dict[str, str]:
        entry = super()._entry(body)
        return {**entry, "MessageGroupId": "g", "MessageDeduplicationId": entry["Id"]}


@pytest.fixture(scope="module")
def moto() -> Iterator[MotoServer]:
    with MotoServer() as server:
        yield server


@pytest.fixture
def server(moto: MotoServer) -> Iterator[MotoServer]:
    if moto._process is None:
        moto.start()
    yield moto
    if moto._process is not None:
        moto.thaw()
        moto.require_signatures(after=10**9)


@pytest.fixture
async def broker(server: MotoServer) -> AsyncIterator[SqsBroker]:
    broker = SqsBroker(server)
    yield broker
    await broker.close()


class TestStandardQueue(StreamContract):
    """All but the order, which such a queue does not promise."""

    async def test_messages_are_recorded_in_their_order(self, broker: Broker, tmp_path: Path) -> None:
        pytest.skip("a standard queue has no order")


@pytest.fixture
async def fifo(server: MotoServer) -> AsyncIterator[FifoBroker]:
    broker = FifoBroker(server)
    yield broker
    await broker.close()


class TestFifoQueue(StreamContract):
    """A FIFO queue: all of it, the order too. Its group gives nothing while messages of it are in hand."""

    @pytest.fixture
    def broker(self, fifo: FifoBroker) -> FifoBroker:
        return fifo


async def test_each_group_of_a_fifo_queue_keeps_its_order_and_repeats_are_dropped_by_their_id(
    fifo: FifoBroker, tmp_path: Path
) -> None:
    def send(number: int, id: str) -> None:
        entry = {"MessageGroupId": f"g{number % 3}", "MessageDeduplicationId": id}
        fifo.sqs.send_message(QueueUrl=fifo.url, MessageBody=json.dumps({"n": number}), **entry)

    for number in range(60):
        send(number, f"id-{number}")
    # a sender that did not hear the answer sends again
    for number in (3, 59):
        send(number, f"id-{number}")
    async with Follower.started(tmp_path, fifo.source) as follower:
        await follower.until("60 messages", lambda: follower.has(60))
        assert await follower.numbers() == Counter(range(60))
        recorded = [event.data["n"] for event in reversed(await follower.events())]
        subjects = {event.subject for event in await follower.events()}
    assert subjects == {"g0", "g1", "g2"}
    for group in range(3):
        assert [number for number in recorded if number % 3 == group] == list(range(group, 60, 3))
    assert await fifo.left() == 0


async def read(source: SqsStream, wanted: int, *, acknowledge: bool = True) -> list[Batch]:
    """Batches with so many messages. The last one is acknowledged too, unless the connection ends before that."""
    batches: list[Batch] = []
    async with asyncio.timeout(200), aclosing(source.stream(None)) as stream:  # type: ignore[type-var]
        async for batch in stream:
            batches.append(batch)
            if sum(len(one.events) + len(one.rejected) for one in batches) >= wanted:
                break
        if acknowledge:
            await anext(stream)
    return batches


def numbers_in(batches: Sequence[Batch]) -> list[int]:
    return [event.data["n"] for batch in batches for event in batch.events]


async def test_a_group_that_was_not_acknowledged_blocks_no_other_and_comes_again_in_its_order(fifo: FifoBroker) -> None:
    await fifo.publish([b'{"n": 1}', b'{"n": 2}', b'{"n": 3}'])
    assert numbers_in(await read(fifo.source(batch=2), 2, acknowledge=False)) == [1, 2]
    other = {"MessageGroupId": "other", "MessageDeduplicationId": "o"}
    fifo.sqs.send_message(QueueUrl=fifo.url, MessageBody='{"n": 9}', **other)
    assert numbers_in(await read(fifo.source(), 4)) == [9, 1, 2, 3]
    assert await fifo.left() == 0


async def test_what_the_queue_says_about_a_message(fifo: FifoBroker) -> None:
    attributes = {
        "tenant": {"DataType": "String", "StringValue": "acme"},
        "mark": {"DataType": "Binary", "BinaryValue": b"\x00\xff"},
    }
    sent = fifo.sqs.send_message(
        QueueUrl=fifo.url,
        MessageBody='{"n": 1}',
        MessageGroupId="g",
        MessageDeduplicationId="d",
        MessageAttributes=attributes,
    )
    [event] = [event for batch in await read(fifo.source(metadata=True), 1) for event in batch.events]
    assert (event.key, event.subject, event.type) == (f"{fifo.name}@{sent['MessageId']}", "g", "sqs.message")
    assert event.occurred_at is not None
    about = event.data["_message"]
    assert about["attributes"] == {"tenant": "acme", "mark": "AP8="}
    assert (about["id"], about["group"], about["receives"]) == (sent["MessageId"], "g", 1)


async def test_a_queue_can_be_named_by_its_address(broker: SqsBroker) -> None:
    await broker.publish([b'{"n": 1}'])
    [event] = [event for batch in await read(broker.source(queue=broker.url), 1) for event in batch.events]
    assert event.key is not None and event.key.startswith(f"{broker.name}@")


async def test_a_queue_is_read_with_the_key_of_a_profile_or_of_a_role(broker: SqsBroker, tmp_path: Path) -> None:
    credentials, token = tmp_path / "credentials", tmp_path / "token"
    credentials.write_text("[work]\naws_access_key_id = test\naws_secret_access_key = test\n")
    token.write_text("a token of the cluster")
    role = {"role_arn": "arn:aws:iam::123456789012:role/reader", "token_file": str(token)}
    for number, fields in enumerate([{"profile": "work", "credentials_file": str(credentials)}, role]):
        await broker.publish([b'{"n": %d}' % number])
        account = AwsAccount.model_validate({"region": REGION, "endpoint": broker.server.url, **fields})
        source = SqsStream(SqsQuery(queue=broker.name, wait_seconds=1), account, broker.host())
        assert numbers_in(await read(source, 1)) == [number]


async def test_a_small_batch_takes_no_more_than_it_may(broker: SqsBroker) -> None:
    await broker.publish([json.dumps({"n": number}).encode() for number in range(30)])
    assert await broker.left() == 30
    batches = await read(broker.source(batch=100, max_in_flight=13), 30)
    assert max(len(batch.events) for batch in batches) <= 13
    assert sorted(numbers_in(batches)) == list(range(30))
    first, behind = batches[0].lag, batches[1].lag
    assert first is not None and first.messages == 30
    assert behind is not None and behind.read_to == min(
        event.occurred_at for event in batches[1].events if event.occurred_at
    )


async def test_a_queue_that_was_created_anew_is_a_gap(broker: SqsBroker) -> None:
    async with aclosing(broker.source().stream(None)) as stream:  # type: ignore[type-var]
        cursor = (await anext(stream)).cursor
    async with aclosing(broker.source().stream(cursor)) as stream:  # type: ignore[type-var]
        assert (await anext(stream)).gap is None
    async with aclosing(broker.source().stream({**cursor, "created": "1"})) as stream:  # type: ignore[type-var]
        gap = (await anext(stream)).gap
    assert gap is not None and "created anew" in gap.reason


async def test_a_queue_that_was_not_read_for_longer_than_it_keeps_messages_is_a_gap(broker: SqsBroker) -> None:
    async with aclosing(broker.source().stream(None)) as stream:  # type: ignore[type-var]
        cursor = (await anext(stream)).cursor
    five_days_ago = {**cursor, "hour": cursor["hour"] - 5 * 24}
    async with aclosing(broker.source().stream(five_days_ago)) as stream:  # type: ignore[type-var]
        gap = (await anext(stream)).gap
    assert gap is not None and "keeps messages for 4d" in gap.reason


async def test_what_is_held_is_hidden_from_others_and_comes_again_when_nobody_holds_it(broker: SqsBroker) -> None:
    await broker.publish([json.dumps({"n": number}).encode() for number in range(12)])
    source = broker.source(visibility_seconds=6)
    async with asyncio.timeout(200), aclosing(source.stream(None)) as stream:  # type: ignore[type-var]
        await anext(stream)
        assert (await anext(stream)).events
        for _ in range(4):
            await asyncio.sleep(source.hold_seconds / 3)
            await source.hold()
        asked = {"QueueUrl": broker.url, "MaxNumberOfMessages": 10}
        others = (await asyncio.to_thread(broker.sqs.receive_message, **asked)).get("Messages", [])
        assert len(others) + len(source._in_hand) == 12, "another reader was given what we hold"
    again = await asyncio.to_thread(broker.sqs.receive_message, **asked, WaitTimeSeconds=20)
    assert again["Messages"]


async def test_a_hold_that_fails_leaves_the_commit_alone(broker: SqsBroker) -> None:
    await broker.publish([b'{"n": 1}'])
    source = broker.source()
    async with asyncio.timeout(200), aclosing(source.stream(None)) as stream:  # type: ignore[type-var]
        await anext(stream)
        assert (await anext(stream)).events
        await broker.away()
        with capture_logs() as logs:
            await source.hold()
    assert [line["event"] for line in logs] == ["sqs.hold_failed"]


class ForgetfulClient:
    """Passes requests on, but the first request to delete messages fails in part, as SQS may do.

    When it is broken, messages cannot be deleted at all.
    """

    def __init__(self, client: Client) -> None:
        self._client = client
        self.deletes = 0
        self.broken = False

    async def request(self, method: str, url: Any, **options: Any) -> Any:
        if not options["headers"]["X-Amz-Target"].endswith("DeleteMessageBatch"):
            return await self._client.request(method, url, **options)
        if self.broken:
            raise RetryLater("nobody listens there")
        self.deletes += 1
        asked = msgspec.json.decode(options["data"])
        failed = asked["Entries"][3:] if self.deletes == 1 else []
        asked["Entries"] = asked["Entries"][: len(asked["Entries"]) - len(failed)]
        reply = await self._client.request(method, url, **{**options, "data": msgspec.json.encode(asked)})
        faults = [{"Id": entry["Id"], "SenderFault": False, "Code": "InternalError"} for entry in failed]
        reply.body = msgspec.json.encode({**reply.json(), "Failed": faults})
        return reply


def forgetful(broker: SqsBroker) -> tuple[Any, SqsStream]:
    host = broker.host()
    client: Any = ForgetfulClient(host.http)  # type: ignore[arg-type]
    host = Host(http=client, clock=host.clock, random=host.random, allow_private=True)
    return client, SqsStream(SqsQuery(queue=broker.name, wait_seconds=1), broker.account(), host)


async def test_what_could_not_be_deleted_is_tried_again(broker: SqsBroker) -> None:
    client, source = forgetful(broker)
    await broker.publish([json.dumps({"n": number}).encode() for number in range(10)])
    assert sorted(numbers_in(await read(source, 10))) == list(range(10))
    assert (client.deletes, await broker.left()) == (2, 0)


async def test_what_was_committed_when_the_connection_broke_is_deleted_by_the_next_one(broker: SqsBroker) -> None:
    client, source = forgetful(broker)
    await broker.publish([json.dumps({"n": number}).encode() for number in range(10)])
    client.broken = True
    with pytest.raises(RetryLater):
        await read(source, 10)
    assert await broker.left() == 10
    client.broken = False
    async with asyncio.timeout(200), aclosing(source.stream(None)) as stream:  # type: ignore[type-var]
        await anext(stream)
        assert await broker.left() == 0
        assert not (await anext(stream)).events


async def publish(broker: SqsBroker, kind: Any, key: str = "run-1/step", **params: Any) -> Any:
    act = kind.plugin.actions["publish"]
    call = Call(
        params=act.params.model_validate(params), account=broker.account(), host=broker.host(), idempotency_key=key
    )
    return await act.run(call)


async def test_publish_sends_the_key_of_the_step_with_a_message(broker: SqsBroker) -> None:
    sent = await publish(broker, sqs, queue=broker.name, data={"n": 1}, attributes={"tenant": "acme"})
    [event] = [event for batch in await read(broker.source(metadata=True), 1) for event in batch.events]
    assert (event.key, event.data["n"]) == (f"{broker.name}@{sent['id']}", 1)
    assert event.data["_message"]["attributes"] == {"idempotency-key": "run-1/step", "tenant": "acme"}


async def test_a_step_that_is_repeated_adds_one_message_to_a_fifo_queue(fifo: FifoBroker) -> None:
    for key in ("run-1", "run-1", "ü" * 200, "ü" * 200):
        await publish(fifo, sqs, key, queue=fifo.name, data={}, group="g")
    assert await fifo.left() == 2
    with pytest.raises(Refused, match="needs a group"):
        await publish(fifo, sqs, queue=fifo.name, data={})


async def test_publish_to_a_queue_that_is_not_there_says_so(broker: SqsBroker) -> None:
    with pytest.raises(NeedsAttention, match="GetQueueUrl") as caught:
        await publish(broker, sqs, queue="nobody-made-this", data={})
    assert "nobody-made-this" in caught.value.fix


def subscribed(broker: SqsBroker, **attributes: str) -> str:
    topics = broker.server.client("sns")
    topic = str(topics.create_topic(Name=f"topic-{broker.name}")["TopicArn"])
    arn = f"arn:aws:sqs:{REGION}:123456789012:{broker.name}"
    topics.subscribe(TopicArn=topic, Protocol="sqs", Endpoint=arn, Attributes=attributes)
    return topic


async def test_what_a_topic_sends_is_taken_out_of_its_envelope(broker: SqsBroker) -> None:
    topic = subscribed(broker)
    sent = await publish(broker, sns, topic=topic, data={"n": 1}, subject="hello", attributes={"tenant": "acme"})
    [event] = [event for batch in await read(broker.source(metadata=True), 1) for event in batch.events]
    assert (event.key, event.data["n"]) == (f"{broker.name}@{sent['id']}", 1)
    about = event.data["_message"]
    assert (about["topic"], about["topic_subject"]) == (topic, "hello")
    assert about["attributes"] == {"idempotency-key": "run-1/step", "tenant": "acme"}


async def test_raw_leaves_the_envelope_and_raw_delivery_has_none(broker: SqsBroker) -> None:
    await publish(broker, sns, topic=subscribed(broker), data={"n": 1})
    [event] = [event for batch in await read(broker.source(unwrap="raw"), 1) for event in batch.events]
    assert (event.data["Type"], event.data["Message"]) == ("Notification", '{"n":1}')
    await broker.publish([b'{"n": 2}'])
    [letter] = [one for batch in await read(broker.source(unwrap="sns"), 1) for one in batch.rejected]
    assert "envelope" in letter.reason


async def test_a_signature_that_the_server_checks(broker: SqsBroker) -> None:
    iam = broker.server.client("iam")
    iam.create_user(UserName=broker.name)
    rights = {"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": "sqs:*", "Resource": "*"}]}
    iam.put_user_policy(UserName=broker.name, PolicyName="queues", PolicyDocument=json.dumps(rights))
    key = iam.create_access_key(UserName=broker.name)["AccessKey"]
    await broker.publish([b'{"n": 1}'])
    broker.server.require_signatures()
    fields = {"access_key_id": key["AccessKeyId"], "secret_access_key": key["SecretAccessKey"]}
    query = SqsQuery(queue=broker.name, wait_seconds=1)
    assert numbers_in(await read(SqsStream(query, broker.account(**fields), broker.host()), 1)) == [1]
    wrong = broker.account(**{**fields, "secret_access_key": "not-the-secret"})
    with pytest.raises(NeedsAttention, match="SignatureDoesNotMatch") as caught:
        await read(SqsStream(query, wrong, broker.host()), 1)
    assert "secret_access_key" in caught.value.fix
    assert "not-the-secret" not in str(caught.value)


@pytest.mark.parametrize("queue", ["", "../up", "a b", "orders\n", "x" * 81, "ftp://host/queue", "orders?x=1"])
def test_a_name_that_no_queue_can_have_is_refused(queue: str) -> None:
    with pytest.raises(ValueError, match="queue"):
        SqsQuery(queue=queue)
