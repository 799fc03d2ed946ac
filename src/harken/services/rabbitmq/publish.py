"""Messages sent to an exchange of RabbitMQ, confirmed by the server."""

from __future__ import annotations

from typing import Any

import msgspec
from pydantic import Field

from harken.errors import NeedsAttention, RetryLater
from harken.kit import ParamsModel
from harken.services.rabbitmq.connection import ANSWER_SECONDS, connected
from harken.source import Call

__all__ = ["Publication", "publish"]


class Publication(ParamsModel):
    """A message to publish."""

    exchange: str = Field("", max_length=255, description="the exchange; without one, routing_key names a queue")
    routing_key: str = Field("", max_length=255, description="the routing key")
    data: Any = Field(description="what to send, as JSON")
    headers: dict[str, str] = Field(default_factory=dict, description="headers of the message")


async def publish(call: Call) -> Any:
    """Publish, and wait until every queue that gets it has it. A repeat is sent again under the same message id."""
    params: Publication = call.params
    where = f"exchange {params.exchange}" if params.exchange else f"queue {params.routing_key}"
    async with connected(call.account, where) as connection:
        from aio_pika import DeliveryMode, Message
        from aio_pika.exceptions import DeliveryError, PublishError

        message = Message(
            msgspec.json.encode(params.data),
            message_id=call.idempotency_key,
            content_type="application/json",
            delivery_mode=DeliveryMode.PERSISTENT,
            headers=dict(params.headers),
        )
        channel = await connection.channel(on_return_raises=True)
        exchange = await channel.get_exchange(params.exchange, ensure=False)
        try:
            await exchange.publish(message, params.routing_key, mandatory=True, timeout=ANSWER_SECONDS)
        except PublishError:
            reason = f"no queue of RabbitMQ gets a message to {where} with the routing key {params.routing_key!r}"
            raise NeedsAttention(reason, fix="Bind a queue, or correct exchange: and routing_key:") from None
        except DeliveryError:
            raise RetryLater(f"RabbitMQ did not take the message to {where}: a queue may be full") from None
    return {"exchange": params.exchange, "routing_key": params.routing_key, "message_id": call.idempotency_key}
