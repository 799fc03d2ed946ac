"""The envelope in which an SNS topic puts a message for a queue, unless its subscription says "raw message delivery".

https://docs.aws.amazon.com/sns/latest/dg/sns-message-and-json-formats.html
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

__all__ = ["Notification", "read_notification"]


class Notification(msgspec.Struct, frozen=True, kw_only=True, rename="pascal"):
    type: str
    message_id: str
    topic_arn: str
    message: str
    subject: str | None = None
    message_attributes: Mapping[str, Mapping[str, Any]] = {}


_decode = msgspec.json.Decoder(Notification).decode


def read_notification(body: bytes) -> Notification | None:
    """The envelope that this message is; None if it is none."""
    if b'"TopicArn"' not in body:
        return None
    try:
        found = _decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    known = found.type == "Notification" and found.topic_arn.startswith("arn:") and 0 < len(found.message_id) <= 100
    return found if known else None
