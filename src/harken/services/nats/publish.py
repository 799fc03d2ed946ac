"""Messages sent to a subject that a JetStream stream keeps."""

from __future__ import annotations

from typing import Any

import msgspec
from pydantic import Field

from harken.errors import NeedsAttention, RetryLater
from harken.kit import ParamsModel
from harken.services.nats.connection import ANSWER_SECONDS, connected
from harken.source import Call

__all__ = ["Publication", "publish"]


class Publication(ParamsModel):
    """A message to publish."""

    subject: str = Field(min_length=1, pattern=r"^[^\s*>]+$", description="the subject; a stream must keep it")
    data: Any = Field(description="what to send, as JSON")
    headers: dict[str, str] = Field(default_factory=dict, description="headers of the message")


async def publish(call: Call) -> Any:
    """Publish, and wait until a stream has it. A repeat within the stream's duplicate window changes nothing."""
    from nats.js.errors import NoStreamResponseError

    params: Publication = call.params
    headers = {**params.headers, "Nats-Msg-Id": call.idempotency_key}
    async with connected(call.account, f"subject {params.subject}") as client:
        body = msgspec.json.encode(params.data)
        if len(body) > client.max_payload:
            reason = f"the message is larger than the {client.max_payload:,} bytes that NATS takes"
            raise NeedsAttention(reason, fix="Send less, or raise max_payload there")
        try:
            answer = await client.jetstream().publish(params.subject, body, timeout=ANSWER_SECONDS, headers=headers)
        except NoStreamResponseError:
            # a stream that has just lost its leader does not answer either
            raise RetryLater(
                f"no stream of NATS keeps the subject {params.subject}", fix="Create one, or correct subject:"
            ) from None
    return {"stream": answer.stream, "sequence": answer.seq, "duplicate": bool(answer.duplicate)}
