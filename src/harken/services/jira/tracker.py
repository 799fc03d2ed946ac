"""The issues of one project as tickets: found by label or change, labelled, commented on, moved.

https://developer.atlassian.com/cloud/jira/platform/rest/v3/api-group-issues/ and …/api-group-issue-comments/
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any
from urllib.parse import quote

import msgspec

from harken.errors import Garbled, Misconfigured, NeedsAttention, Refused, RetryLater
from harken.http import Reply
from harken.kit.json_api import Params
from harken.kit.safe_text import has_control_character
from harken.kit.values_from_payload import folded_text, list_of, text_of, whole_number
from harken.outgoing_rate_limit import is_rate_limited
from harken.services.jira.actions import ISSUE, LONGEST_TEXT, describe_choices
from harken.services.jira.api import Account, Api, read_myself
from harken.services.jira.cursor import SearchCursor, has_slipped, next_page, restart
from harken.services.jira.issue_to_ticket import FIELDS, comment_of, ticket_of
from harken.services.jira.label_history import actor_of, label_changes
from harken.services.jira.query import changed_jql, labelled_jql
from harken.services.jira.registered_webhook_status import PATHS, webhook_of
from harken.services.jira.search import listed_issues, search
from harken.services.jira.text import document_of
from harken.source import Host
from harken.ticket import Access, Actor, Comment, LabelChange, Ticket, TicketPage, Webhook

__all__ = ["Tracker"]

PAGE_SIZE = 100
# so many issues Cloud's search shows as they are, not as its index knows them, which lags by seconds to minutes
MOST_RECONCILED = 50
INDEX_DELAY = 600.0
LONGEST_LABEL = 255


class _Page(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """`reconcile` has to be the same on all pages of a search."""

    position: SearchCursor = SearchCursor()
    reconcile: tuple[str, ...] = ()


class Tracker:
    """The issues of the project with this key; those of the whole Jira if it is empty."""

    def __init__(self, project: str, account: Account, host: Host) -> None:
        if has_control_character(project):
            raise Misconfigured("the key of the project holds a control character", fix="Correct project")
        self._project = project
        self._api = Api(account, host)
        self._written: dict[str, float] = {}
        self._mailing_projects: set[str] = set()

    async def list_labelled(self, labels: Sequence[str], *, closed: bool, page: str | None = None) -> TicketPage:
        # a label map may be shared with a platform whose labels have spaces: no issue can have those
        possible = [label for label in labels if _can_be_label(label)]
        if not possible:
            return TicketPage(tickets=())
        return await self._search(labelled_jql(self._project, possible, closed=closed), page)

    async def list_changed(self, since: datetime, *, page: str | None = None) -> TicketPage:
        return await self._search(changed_jql(self._project, since), page)

    async def get(self, id: str) -> Ticket | None:
        """A ticket that was moved to another project is gone from this one."""
        issue = await self._find(id) if re.fullmatch(ISSUE, id) else None
        return self._ticket(issue) if issue is not None and await self._is_in_project(issue) else None

    async def label_history(self, ticket: Ticket) -> Sequence[LabelChange] | None:
        cloud = await self._api.is_cloud()
        # the issue before its history: labels without a change in a later history were set when it was created
        issue = await self._find(ticket.id, expand="" if cloud else "changelog")
        if issue is None or not isinstance(fields := issue.get("fields"), Mapping):
            return None
        if cloud:
            return label_changes(fields, await self._read_all(_path(ticket.id, "changelog"), "values"))
        changelog = issue.get("changelog")
        histories = changelog.get("histories") if isinstance(changelog, Mapping) else None
        return label_changes(fields, histories) if isinstance(histories, list) else None

    async def access_of(self, actor: Actor) -> Access:
        """Whoever changed a label may edit, as the history tells. Of others only an administrator may ask."""
        if actor.access is not Access.UNKNOWN or not self._project:
            return actor.access
        cloud = await self._api.is_cloud()
        params: dict[str, str | int] = {"projectKey": self._project, "maxResults": PAGE_SIZE}
        params |= {"accountId": actor.id} if cloud else {"username": actor.login}
        params |= {"permissions": "EDIT_ISSUES" if cloud else "EDIT_ISSUE"}
        listed = list_of(await self._api.find("/user/permission/search", params=params))
        may_edit = any(found.id == actor.id for user in listed if (found := actor_of(user)))
        # not to be listed proves nothing: Cloud looks at its first 1,000 users only
        return Access.WRITE if may_edit else Access.UNKNOWN

    async def own_account(self) -> Actor:
        actor = actor_of(await read_myself(self._api))
        if actor is None:
            raise NeedsAttention(f"{self._api.name} does not say who the account is", fix="Check base_url")
        return actor

    async def swap_labels(self, ticket: Ticket, add: Sequence[str], remove: Sequence[str]) -> Ticket:
        for label in add:
            if not _can_be_label(label):
                fix = f"Choose one without spaces, of up to {LONGEST_LABEL} characters"
                raise NeedsAttention(f"{label[:80]!r} cannot be a label of Jira", fix=fix)
        surplus = [label for label in remove if label not in add and _can_be_label(label)]
        changes = [{"add": label} for label in dict.fromkeys(add)]
        changes += [{"remove": label} for label in dict.fromkeys(surplus)]
        if changes:
            self._api.check(await self._put(ticket, _path(ticket.id), {"update": {"labels": changes}}))
            self._remember(ticket)
        return await self._read_again(ticket)

    async def missing_labels(self, labels: Sequence[str]) -> Sequence[str]:
        return ()

    async def ensure_labels(self, labels: Sequence[str]) -> Sequence[str]:
        """Return nothing: labels of Jira need no making."""
        return ()

    async def webhooks(self) -> Sequence[Webhook] | None:
        """Those of the whole Jira, which only its administrators see."""
        for path in PATHS:
            reply = await self._api.request("GET", path)
            if reply.status in (401, 403, 404) and not is_rate_limited(reply.status, reply.headers):
                continue
            return [webhook_of(hook) for hook in self._api.expect_list(reply, "the webhooks")]
        return None

    async def revive_webhook(self, webhook: Webhook) -> bool:
        """Jira stops none: an administrator has switched it off."""
        return False

    async def comments(self, ticket: Ticket, since: datetime | None = None) -> Sequence[Comment]:
        listed = await self._read_all(_path(ticket.id, "comment"), "comments", {"orderBy": "created"})
        found = [self._comment(ticket, one) for one in listed]
        return [one for one in found if since is None or one.created_at is None or one.created_at >= since]

    async def comment(self, ticket: Ticket, text: str) -> Comment:
        reply = await self._api.ask("POST", _path(ticket.id, "comment"), json=await self._body(text))
        return self._comment(ticket, self._api.expect_object(reply))

    async def edit_comment(self, ticket: Ticket, id: str, text: str) -> Comment | None:
        if not re.fullmatch(r"[0-9]{1,18}", id):
            return None
        path = _path(ticket.id, "comment", id)
        reply = await self._put(ticket, path, await self._body(text))
        if reply.status in (400, 404) and _is_gone(await self._api.ask("GET", path)):
            return None
        return self._comment(ticket, self._api.expect_object(reply))

    async def transition(self, ticket: Ticket, status: str) -> Ticket:
        now, wanted = await self._read_again(ticket), status.strip().casefold()
        if now.status.casefold() == wanted:
            return now
        path = _path(ticket.id, "transitions")
        offered = self._api.expect_list(await self._api.ask("GET", path), key="transitions")
        chosen = next((one for one in offered if folded_text(one, "to.name") == wanted), None)
        if chosen is None:
            message = f"{now.ref} cannot go to {status!r} from {now.status!r}"
            raise NeedsAttention(message, fix=describe_choices(offered))
        await self._api.call("POST", path, json={"transition": {"id": text_of(chosen, "id")}})
        self._remember(ticket)
        return await self._read_again(ticket)

    async def _search(self, jql: str, page: str | None) -> TicketPage:
        at = _Page(reconcile=self._recently_written()) if page is None else _decode(page)
        reply = await search(self._api, jql, at.position, FIELDS, reconcile=at.reconcile)
        beginning = restart(at.position)
        if reply.status == 400 and (at.position.token or at.reconcile) and beginning:
            # a page token is valid for some days only, and an issue may be deleted soon after we wrote to it
            return TicketPage(tickets=(), next=_encode(_Page(position=beginning)))
        self._api.check(reply)
        answer = reply.json()
        issues = listed_issues(answer, self._api.name)
        tickets, ids = [self._ticket(issue) for issue in issues], [str(issue["id"]) for issue in issues]
        cloud = await self._api.is_cloud()
        following = next_page(at.position, answer, ids, cloud=cloud, server=self._api.name)
        if has_slipped(at.position, ids):
            following = beginning
            if following is None:
                raise RetryLater(f"the issues of {self._api.name} change faster than their list can be read")
        next = _encode(msgspec.structs.replace(at, position=following)) if following else None
        return TicketPage(tickets=tickets, next=next)

    async def _find(self, id: str, *, expand: str = "") -> Mapping[str, Any] | None:
        params = {"fields": ",".join(FIELDS), **({"expand": expand} if expand else {})}
        reply = await self._api.ask("GET", _path(id), params=params)
        return None if _is_gone(reply) else self._api.expect_object(reply)

    async def _read_again(self, ticket: Ticket) -> Ticket:
        issue = await self._find(ticket.id)
        if issue is None:
            raise NeedsAttention(f"{ticket.ref} is gone, or the account may not see it", fix="Check that it exists")
        return self._ticket(issue)

    async def _read_all(self, path: str, key: str, params: Params = ()) -> list[Any]:
        """Read all pages of a list. Raise if something was deleted meanwhile: what follows it has moved up."""
        found: list[Any] = []
        total: int | None = None
        while True:
            asked = {**dict(params), "startAt": len(found), "maxResults": PAGE_SIZE}
            reply = await self._api.ask("GET", path, params=asked)
            page = self._api.expect_list(reply, key=key)
            before, total = total, whole_number(reply.json().get("total"))
            if before is not None and total is not None and total < before:
                raise RetryLater(f"{self._api.name}'s {key} changed while they were read")
            found += page
            if not page or (total is not None and len(found) >= total):
                return found

    async def _put(self, ticket: Ticket, path: str, body: Mapping[str, Any]) -> Reply:
        """Write without a mail to all watchers, where the account may: Cloud ignores the wish, Server answers 403."""
        project = ticket.ref.rpartition("-")[0]
        if project not in self._mailing_projects:
            reply = await self._api.ask("PUT", path, params={"notifyUsers": "false"}, json=body)
            if reply.status != 403 or is_rate_limited(reply.status, reply.headers):
                return reply
        reply = await self._api.ask("PUT", path, json=body)
        if reply.status < 300:
            self._mailing_projects.add(project)
        return reply

    def _remember(self, ticket: Ticket) -> None:
        """The next searches show this issue as it is: the index may not know of our write yet."""
        self._written.pop(ticket.id, None)
        self._written[ticket.id] = self._api.host.clock.monotonic()
        for id in list(self._written)[:-MOST_RECONCILED]:
            del self._written[id]

    def _recently_written(self) -> tuple[str, ...]:
        now = self._api.host.clock.monotonic()
        return tuple(id for id, at in self._written.items() if id.isdecimal() and now - at < INDEX_DELAY)

    async def _body(self, text: str) -> dict[str, Any]:
        cut = text if len(text) <= LONGEST_TEXT else text[: LONGEST_TEXT - 1] + "…"
        return {"body": document_of(cut, mentions=True) if await self._api.is_cloud() else cut}

    async def _is_in_project(self, issue: Mapping[str, Any]) -> bool:
        if not self._project or folded_text(issue, "fields.project.key") == self._project.casefold():
            return True
        # a project that was renamed is still found by its old key
        reply = await self._api.ask("GET", f"/project/{quote(self._project, safe='')}")
        if _is_gone(reply):
            return False
        return text_of(self._api.expect_object(reply), "id") == text_of(issue, "fields.project.id")

    def _ticket(self, issue: Mapping[str, Any]) -> Ticket:
        ticket = ticket_of(issue, self._api.browse_url(text_of(issue, "key") or ""))
        if ticket is None:
            raise Garbled(f"{self._api.name} showed an issue without its id, key or fields", fix="Check base_url")
        return ticket

    def _comment(self, ticket: Ticket, shown: Any) -> Comment:
        found = comment_of(shown, self._api.browse_url(ticket.ref)) if isinstance(shown, Mapping) else None
        if found is None:
            raise Garbled(f"{self._api.name} showed a comment without an id", fix="Check base_url")
        return found


def _encode(page: _Page) -> str:
    return msgspec.json.encode(page).decode()


def _decode(page: str) -> _Page:
    try:
        return msgspec.json.decode(page, type=_Page)
    except msgspec.DecodeError:
        return _Page()  # of another version: reading from the beginning repeats, and misses nothing


def _path(issue: str, *parts: str) -> str:
    if not re.fullmatch(ISSUE, issue):
        raise Refused(f"{issue[:80]!r} is not the id of an issue", fix="Check what the ticket is called")
    return "/".join(("/issue", issue, *parts))


def _is_gone(reply: Reply) -> bool:
    """Whether Jira itself says that there is no such thing. A proxy answers 404 in other words."""
    if reply.status != 404:
        return False
    try:
        document = reply.json()
    except RetryLater:
        return False
    return isinstance(document, Mapping) and ("errorMessages" in document or "errors" in document)


def _can_be_label(text: str) -> bool:
    return 0 < len(text) <= LONGEST_LABEL and " " not in text and not has_control_character(text)
