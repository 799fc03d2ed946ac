"""Labels put on and taken off in one request, which counts as one write. REST needs one for each label that goes.

https://docs.github.com/en/graphql/reference/mutations#addlabelstolabelable
https://docs.github.com/en/graphql/overview/rate-limits-and-query-limits-for-the-graphql-api
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from harken.errors import NeedsAttention, RetryLater
from harken.http import Reply
from harken.kit.values_from_payload import list_of, text_of
from harken.language.dotted_paths import lookup
from harken.outgoing_rate_limit import requested_wait
from harken.services.github.api import SECONDARY_SECONDS, Api
from harken.services.github.app import repository_in
from harken.services.github.issue_to_ticket import label_names
from harken.ticket import Ticket

__all__ = ["COLOUR", "WRITE_GAP", "LabelSwap"]

COLOUR = "ededed"
WRITE_GAP = 1.0
"""So many seconds GitHub wants between two writes."""
REST_SECONDS = 3600.0
"""So long only REST is used after GraphQL was refused."""

# fields of a mutation are done one after the other, so the issue is never without a label of ours
_SWAP = """
mutation($issue: ID!, $add: [ID!]!, $remove: [ID!]!) {
  added: addLabelsToLabelable(input: {labelableId: $issue, labelIds: $add}) { clientMutationId }
  removed: removeLabelsFromLabelable(input: {labelableId: $issue, labelIds: $remove}) {
    labelable { labels(first: 100) { nodes { name } } }
  }
}
"""


class LabelSwap:
    """The labels of the issues of one repository. GraphQL knows issues and labels by ids of its own."""

    def __init__(self, api: Api, project: str) -> None:
        self._api = api
        self._project = project
        self._ids: dict[str, str] = {}
        self._rest_until = 0.0

    async def swap(self, ticket: Ticket, add: Sequence[str], remove: Sequence[str]) -> list[str] | None:
        """Return the labels of the issue after the swap; None if REST has to make it, or what is left of it."""
        usable = ticket.handle and self._api.host.clock.monotonic() >= self._rest_until
        if not usable or not add or not remove:
            return None
        removed = [await self._id_of(name) for name in remove]
        added = [await self._id_of(name) or await self._make(name) for name in add]
        if None in (*added, *removed):
            return None
        return await self._send({"issue": ticket.handle, "add": added, "remove": removed})

    async def _id_of(self, label: str) -> str | None:
        """The id of a label of the repository; None if there is none of this name."""
        if (known := self._ids.get(label.casefold())) is not None:
            return known
        reply = await self._api.get(self._labels_url(label))
        return None if reply.status == 404 else self._remember(label, reply)

    async def _make(self, label: str) -> str | None:
        """Make a label that the repository does not have; None if it was refused."""
        reply = await self._api.send("POST", self._labels_url(), json={"name": label, "color": COLOUR})
        if reply.status in (403, 404, 422):
            with suppress(NeedsAttention):
                self._api.check(reply)
            return None
        id = self._remember(label, reply)
        await self._api.host.clock.sleep(WRITE_GAP)
        return id

    def _remember(self, label: str, reply: Reply) -> str | None:
        id = text_of(self._api.expect_object(reply), "node_id")
        if id is not None:
            self._ids[label.casefold()] = id
        return id

    def _labels_url(self, *path: str) -> str:
        return self._api.repo_url(self._project, "labels", *path)

    async def _send(self, variables: Mapping[str, Any]) -> list[str] | None:
        repository = repository_in(self._api.repo_url(self._project))
        asked = {"query": _SWAP, "variables": variables}
        reply = await self._api.send("POST", self._api.graphql_url(), json=asked, repository=repository)
        if reply.status in (404, 405):
            # a server, or something in front of it, that has no GraphQL
            self._use_rest()
            return None
        answer = self._api.expect_object(reply)
        for error in list_of(answer.get("errors")):
            self._take_error(error, reply)
        nodes = lookup(answer, "data.removed.labelable.labels.nodes")
        return label_names(nodes) if isinstance(nodes, list) and not answer.get("errors") else None

    def _take_error(self, error: Any, reply: Reply) -> None:
        """Raise if it is a limit. Anything else REST says better, unless it can do what GraphQL could not."""
        kind, message = text_of(error, "type") or "", text_of(error, "message") or ""
        if kind == "RATE_LIMITED" or "rate limit" in message.lower():
            # GraphQL answers 200 where REST answers 403, with the same headers
            after = requested_wait(403, reply.headers, self._api.host.clock.time()) or SECONDARY_SECONDS
            raise RetryLater(
                f"{self._api.name} answered that its rate limit is reached", after=after, reason="rate_limited"
            )
        # a label may have been deleted and made anew, with another id
        self._ids.clear()
        if kind != "NOT_FOUND":
            self._use_rest()

    def _use_rest(self) -> None:
        self._rest_until = self._api.host.clock.monotonic() + REST_SECONDS
