"""Topics of Amazon SNS: sent to. What a topic sends is followed through a queue that is subscribed to it (sqs).

https://docs.aws.amazon.com/sns/latest/api/API_Publish.html
"""

from __future__ import annotations

import re
from typing import Any

import msgspec
from pydantic import Field

from harken.errors import Refused, RetryLater
from harken.kit import ParamsModel
from harken.services.aws.api import ENVIRONMENT, Aws, AwsAccount
from harken.services.aws.idempotency import KEY_ATTRIBUTE, deduplication_id
from harken.source import Act, Call, Plugin

__all__ = ["plugin"]

_ARN = r"^arn:[a-z-]{1,20}:sns:[a-z0-9-]{1,40}:[0-9]{12}:[A-Za-z0-9_-]{1,256}(\.fifo)?$"
_ID = re.compile(rb"<MessageId>([A-Za-z0-9-]{1,100})</MessageId>")


class SendParams(ParamsModel):
    """A message to send to a topic."""

    topic: str = Field(pattern=_ARN, description="arn:aws:sns:REGION:ACCOUNT:NAME")
    data: Any = Field(description="what to send; JSON")
    subject: str = Field("", max_length=100, description="the subject of mails that the topic sends (optional)")
    group: str = Field("", max_length=128, description="message group: within it a FIFO topic keeps the order")
    attributes: dict[str, str] = Field(default_factory=dict, max_length=9, description="message attributes")


async def _publish(call: Call) -> Any:
    """Send a message. A FIFO topic drops a repeat of the same step for five minutes, by its deduplication id."""
    params: SendParams = call.params
    name = params.topic.rpartition(":")[2]
    form = {
        "Version": "2010-03-31",
        "TopicArn": params.topic,
        "Message": msgspec.json.encode(params.data).decode(),
        **({"Subject": params.subject} if params.subject else {}),
        **({"MessageGroupId": params.group} if params.group else {}),
    }
    if name.endswith(".fifo"):
        if not params.group:
            raise Refused(f"{name} is a FIFO topic and needs a group", fix="Write group:")
        form["MessageDeduplicationId"] = deduplication_id(call.idempotency_key)
    attributes = {KEY_ATTRIBUTE: call.idempotency_key, **params.attributes}
    for number, (attribute, value) in enumerate(((one, two) for one, two in attributes.items() if two), 1):
        entry = f"MessageAttributes.entry.{number}"
        form |= {f"{entry}.Name": attribute, f"{entry}.Value.DataType": "String", f"{entry}.Value.StringValue": value}
    found = _ID.search(await Aws(call.account, call.host, "sns").call_query("Publish", form, about=name))
    if found is None:
        raise RetryLater("the server did not answer like SNS", fix="Check endpoint")
    return {"id": found[1].decode(), "topic": params.topic}


plugin = Plugin(
    kind="sns",
    summary="Topics of Amazon SNS, sent to",
    docs="reference/services/sqs.md",
    account=AwsAccount,
    actions={"publish": Act(params=SendParams, run=_publish)},
    environment=ENVIRONMENT,
)
