"""Messages sent to a topic: acknowledged by all replicas, and not doubled by a retry of the client."""

from __future__ import annotations

from typing import Any

import msgspec
from pydantic import Field

from harken.kit import ParamsModel
from harken.services.kafka.account import (
    TOPIC_NAME,
    KafkaAccount,
    close,
    in_words,
    load_driver,
    settings,
    why_unreachable,
)
from harken.source import Call

__all__ = ["IDEMPOTENCY_HEADER", "KafkaMessage", "publish"]

IDEMPOTENCY_HEADER = "idempotency-key"


class KafkaMessage(ParamsModel):
    """A message to send to a topic."""

    topic: str = Field(pattern=TOPIC_NAME, description="the name of the topic")
    data: Any = Field(description="what to send, as JSON; null deletes the key in a compacted topic")
    key: str = Field("", description="messages with the same key stay in their order")
    headers: dict[str, str] = Field(default_factory=dict, description="headers of the message")


async def publish(call: Call) -> Any:
    """Send it and wait for all replicas. A step that was interrupted sends it again, with the same idempotency key."""
    load_driver()
    from aiokafka import AIOKafkaProducer
    from aiokafka.errors import KafkaError

    params: KafkaMessage = call.params
    account: KafkaAccount = call.account
    headers = {**params.headers, IDEMPOTENCY_HEADER: call.idempotency_key}
    producer = AIOKafkaProducer(**settings(account), acks="all", enable_idempotence=True)
    try:
        await _start(producer, account)
        sent = await producer.send_and_wait(
            params.topic,
            value=None if params.data is None else msgspec.json.encode(params.data),
            key=params.key.encode() or None,
            headers=[(name, value.encode()) for name, value in headers.items()],
        )
    except (KafkaError, OSError, NotImplementedError) as error:
        raise in_words(error, account, params.topic) from error
    finally:
        await close(producer.stop, producer.client)
    return {"topic": sent.topic, "partition": sent.partition, "offset": sent.offset}


async def _start(producer: Any, account: KafkaAccount) -> None:
    from aiokafka.errors import KafkaConnectionError

    try:
        await producer.start()
    except KafkaConnectionError:
        raise await why_unreachable(account) from None
