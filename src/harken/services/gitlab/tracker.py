"""GitLab as a tracker: the issues of one project, their labels, comments and state, and its merge requests.

GitLab answers 200 to a write that the role of the account does not allow, and leaves out what is not allowed. So every
write is compared with what the issue shows after it.
https://docs.gitlab.com/api/issues/ · https://docs.gitlab.com/api/labels/ · https://docs.gitlab.com/api/notes/
https://docs.gitlab.com/api/resource_label_events/ · https://docs.gitlab.com/api/project_members/
https://docs.gitlab.com/api/merge_requests/
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Literal

import msgspec

from harken.errors import Garbled, Misconfigured, NeedsAttention, Refused, RetryLater
from harken.http import Reply
from harken.kit.json_api import Params
from harken.kit.values_from_payload import instant, rfc3339, text_of, whole_number
from harken.outgoing_rate_limit import is_rate_limited
from harken.services.gitlab.api import Account, Api, check_project
from harken.services.gitlab.events_from_issue_history import issue_of
from harken.services.gitlab.registered_webhook_status import webhook_of
from harken.source import Host
from harken.ticket import Access, Actor, Comment, LabelChange, PullRequest, Ticket, TicketPage, Webhook

__all__ = ["GitLabTracker", "actor_of"]

PER_PAGE = 100
MAX_PAGES = 50
COLOUR = "#6699cc"
_ID = re.compile(r"(?:\d{1,18}#)?(\d{1,18})", re.ASCII)
# https://docs.gitlab.com/user/project/settings/project_access_tokens/#bot-users-for-projects, and service accounts
_BOT = re.compile(r"(?:project|group)_\d+_bot(?:\d+|_\w+)?|service_account_\w+", re.ASCII)
# GitLab gives what a deleted account did to this one
_GHOST = "ghost"
# a line that GitLab would execute: https://docs.gitlab.com/user/project/quick_actions/
_QUICK_ACTION = re.compile(r"^/(?=\w+(?:\s|$))", re.MULTILINE)
_ROLE = "Give the account of the token the role Reporter (or Planner) in this project"
_LONG_AGO = datetime.min.replace(tzinfo=UTC)
_STATE_EVENTS = {"opened": "reopen", "open": "reopen", "closed": "close"}


class _Place(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Where a page of issues begins: at a time, so that an issue that leaves the list moves no other over the border.

    `page` counts from there where more issues than fit on a page have that time. `labels`: the first is being listed.
    """

    labels: tuple[str, ...] = ()
    start: datetime | None = None
    page: int = 1


class GitLabTracker:
    """The issues of one project. The id of a ticket is `PROJECT#NUMBER`, in numbers, so it survives a renaming.

    An issue that is moved to another project stays behind, closed, and is a new issue there.
    """

    def __init__(self, project: str, account: Account, host: Host) -> None:
        self._api = Api(account, host)
        self._project = _checked(project)
        self._bots: dict[str, bool] = {}

    async def list_labelled(self, labels: Sequence[str], *, closed: bool, page: str | None = None) -> TicketPage:
        """Tickets with any of these labels, one label after the other, in any spelling that the project has."""
        place = _load(page) if page else _Place(labels=await self._spellings(labels))
        if not place.labels:
            return TicketPage(tickets=())
        label, *rest = place.labels
        wanted: list[tuple[str, str | int]] = [("state", "all" if closed else "opened"), ("labels", label)]
        found, following = await self._read_page(place, "created", wanted)
        if following is None and rest:
            following = _Place(labels=tuple(rest))
        # GitLab takes scope::* for every label of the scope
        return TicketPage(tickets=[one for one in found if label in one.labels], next=_dump(following))

    async def list_changed(self, since: datetime, *, page: str | None = None) -> TicketPage:
        place = _load(page) if page else _Place(start=since)
        found, following = await self._read_page(place, "updated", [("state", "all")])
        return TicketPage(tickets=found, next=_dump(following))

    async def get(self, id: str) -> Ticket | None:
        matched = _ID.fullmatch(id)
        if matched is None:
            raise Refused(f"{id[:80]!r} is not the id or number of an issue of GitLab")
        number = matched[1]
        reply = await self._api.get(self._url("issues", number))
        if reply.status == 404:
            await self._check_visible()
            return None
        ticket = self._ticket(self._api.expect_object(reply))
        # another project may have the path by now
        return ticket if id in (number, ticket.id) else None

    async def label_history(self, ticket: Ticket) -> Sequence[LabelChange] | None:
        """None if the account may not read it, or it is too long. A label that was deleted has no name and no entry."""
        reply = await self._api.get(_issue_url(self._api, ticket, "resource_label_events"), [("per_page", PER_PAGE)])
        if reply.status == 404:
            await self._check_visible()
        if reply.status == 404 or _is_forbidden(reply):
            return None
        events, complete = await self._api.read_list(reply, MAX_PAGES)
        if not complete:
            return None
        return [
            LabelChange(
                label=label,
                added=event["action"] == "add",
                actor=await self._actor(event.get("user"), look_up=True),
                at=_created(event),
            )
            for event in sorted(filter(lambda event: isinstance(event, dict), events), key=_order)
            if (label := text_of(event, "label.name")) and text_of(event, "action") in ("add", "remove")
        ]

    async def access_of(self, actor: Actor) -> Access:
        """The role counts, an inherited one too: Developer is WRITE, Reporter and Planner TRIAGE. Blocked: NONE."""
        if not actor.id.isdecimal():
            return Access.UNKNOWN
        reply = await self._api.get(self._url("members", "all", actor.id))
        if reply.status == 404:
            await self._check_visible()
            return Access.NONE
        if _is_forbidden(reply):
            return Access.UNKNOWN
        member = self._api.expect_object(reply)
        level = whole_number(member.get("access_level"))
        if level is None:
            return Access.UNKNOWN
        return _access(level) if text_of(member, "state") in (None, "active") else Access.NONE

    async def own_account(self) -> Actor:
        user = self._api.expect_object(await self._api.get(self._api.url("user")))
        actor = await self._actor(user)
        if actor is None:
            raise Garbled(f"{self._api.name} does not say whose token it is", fix="Check base_url")
        return actor

    async def swap_labels(self, ticket: Ticket, add: Sequence[str], remove: Sequence[str]) -> Ticket:
        """One write, or two if the issue has a label in another spelling than `ticket` says."""
        adding = {label.casefold(): label for label in map(_one_label, add)}
        removing = {label.casefold(): label for label in map(_one_label, remove) if label.casefold() not in adding}
        written = {"add_labels": _as_on(ticket, adding), "remove_labels": _as_on(ticket, removing)}
        url = _issue_url(self._api, ticket)
        if not adding and not removing:
            return self._ticket(self._api.expect_object(await self._api.get(url)))
        now = await self._write_labels(url, written)
        left = [label for label in now.labels if label.casefold() in removing]
        if left and not set(left) & set(written["remove_labels"]):
            now = await self._write_labels(url, {"remove_labels": left})
            left = [label for label in now.labels if label.casefold() in removing]
        missing = set(adding) - {label.casefold() for label in now.labels}
        if left or missing:
            names = ", ".join([*left, *(adding[name] for name in sorted(missing))])
            raise NeedsAttention(f"{self._api.name} did not change these labels of {ticket.ref}: {names}", fix=_ROLE)
        return now

    async def missing_labels(self, labels: Sequence[str]) -> Sequence[str]:
        unique = dict.fromkeys(map(_one_label, labels))
        return [label for label in unique if label not in (await self._find_labels(label))[0]]

    async def ensure_labels(self, labels: Sequence[str]) -> Sequence[str]:
        """Make labels of the project; one of a group above it is there already."""
        made = []
        for label in dict.fromkeys(map(_one_label, labels)):
            names, url = await self._find_labels(label)
            if label in names:
                continue
            reply = await self._api.send("POST", url, json={"name": label, "color": COLOUR})
            # a label of a group that the token may not see is refused with 400
            if reply.status == 409 or (reply.status == 400 and b"already exists" in reply.body):
                continue
            self._api.check(reply)
            made.append(label)
        return made

    async def webhooks(self) -> Sequence[Webhook] | None:
        """Those of the project, which Maintainers see. Webhooks of groups above it are not among them."""
        reply = await self._api.get(self._url("hooks"), [("per_page", PER_PAGE)])
        if reply.status == 404:
            await self._check_visible()
        if reply.status == 404 or _is_forbidden(reply):
            return None
        hooks, _ = await self._api.read_list(reply, MAX_PAGES)
        return [webhook_of(hook) for hook in hooks]

    async def revive_webhook(self, webhook: Webhook) -> bool:
        """A test is sent to it, about any issue; if that is answered with success, GitLab goes on with it."""
        if not webhook.id.isdecimal():
            return False
        reply = await self._api.send("POST", self._url("hooks", webhook.id, "test", "issues_events"))
        if reply.status in (404, 405, 422) or _is_forbidden(reply):
            # an older GitLab, no issue to tell of, or an answer that is no success
            return False
        self._api.check(reply)
        return True

    async def comments(self, ticket: Ticket, since: datetime | None = None) -> Sequence[Comment]:
        """Notes but those that GitLab writes itself. Only with `since` all bots are known: authors are looked up."""
        # the times that GitLab shows are cut to milliseconds
        earliest = since and since.replace(microsecond=since.microsecond // 1000 * 1000)
        order: Params = [("order_by", "created_at"), ("sort", "desc"), ("per_page", PER_PAGE)]
        reply = await self._api.get(_issue_url(self._api, ticket, "notes"), order)
        found: list[Comment] = []
        for _ in range(MAX_PAGES):
            notes = self._api.expect_list(reply)
            people = [note for note in notes if isinstance(note, dict) and note.get("system") is not True]
            found += [await self._comment(ticket, note, look_up=since is not None) for note in people]
            following = self._api.next_page(reply)
            if following is None or (earliest and any((_created(note) or earliest) < earliest for note in notes)):
                return [one for one in reversed(found) if not earliest or (one.created_at or earliest) >= earliest]
            reply = await self._api.get(following)
        message = f"{ticket.ref} has more than {MAX_PAGES * PER_PAGE:,} comments, which are not read"
        raise NeedsAttention(message, fix="Go on in another issue")

    async def comment(self, ticket: Ticket, text: str) -> Comment:
        url = _issue_url(self._api, ticket, "notes")
        reply = await self._api.send("POST", url, json={"body": _inert(text)})
        return await self._comment(ticket, self._api.expect_object(reply))

    async def edit_comment(self, ticket: Ticket, id: str, text: str) -> Comment | None:
        url = _issue_url(self._api, ticket, "notes", id)
        reply = await self._api.send("PUT", url, json={"body": _inert(text)})
        if reply.status == 404:
            await self._check_visible()
            return None
        return await self._comment(ticket, self._api.expect_object(reply))

    async def transition(self, ticket: Ticket, status: str) -> Ticket:
        """Issues are `opened` or `closed`; the statuses of a board are labels, and those of work items not written."""
        event = _STATE_EVENTS.get(status.strip().casefold())
        if event is None:
            message = f"an issue of GitLab cannot be moved to {status[:80]!r}"
            raise NeedsAttention(message, fix="Write opened or closed as the status")
        url = _issue_url(self._api, ticket)
        reply = await self._api.send("PUT", url, json={"state_event": event})
        now = self._ticket(self._api.expect_object(reply))
        if now.closed != (event == "close"):
            raise NeedsAttention(f"{self._api.name} did not {event} {ticket.ref}", fix=_ROLE)
        return now

    async def ensure_pull_request(self, wanted: PullRequest) -> str:
        """Open a merge request. One from a branch of the same name in a fork is somebody else's."""
        found, url = await self._find_merge_request(wanted)
        if found:
            return found
        body = {
            "source_branch": wanted.head,
            "target_branch": wanted.base,
            "title": wanted.title,
            "description": _inert(wanted.text),
        }
        reply = await self._api.send("POST", url, json=body)
        if reply.status == 409:
            found, _ = await self._find_merge_request(wanted)
        return found or self._web_url(self._api.expect_object(reply))

    def _url(self, *path: str) -> str:
        return self._api.project_url(self._project, *path)

    async def _check_visible(self) -> None:
        """Raise if the 404 was about the project: an issue is not gone because the token may not see it any more."""
        self._api.check(await self._api.get(self._url()))

    async def _read_page(
        self, place: _Place, by: Literal["created", "updated"], wanted: Iterable[tuple[str, str | int]]
    ) -> tuple[list[Ticket], _Place | None]:
        params = [*wanted, ("order_by", f"{by}_at"), ("sort", "asc"), ("per_page", PER_PAGE), ("page", place.page)]
        if place.start is not None:
            # a millisecond earlier: the times that GitLab shows are cut, those that it compares are not
            after = (place.start - timedelta(milliseconds=1)).astimezone(UTC)
            params.append((f"{by}_after", rfc3339(after, "milliseconds") or ""))
        reply = await self._api.get(self._url("issues"), params)
        found = [self._ticket(item) for item in self._api.expect_list(reply)]
        if self._api.next_page(reply) is None:
            return found, None
        if not found:
            raise RetryLater(f"the list of issues of {self._project} does not end", fix="Check base_url")
        times = [at for one in found if (at := one.created_at if by == "created" else one.updated_at)]
        newest = max(times, default=None)
        if newest is not None and (place.start is None or newest > place.start):
            return found, msgspec.structs.replace(place, start=newest, page=1)
        return found, msgspec.structs.replace(place, page=place.page + 1)

    async def _spellings(self, labels: Sequence[str]) -> tuple[str, ...]:
        """The labels, and how else the project spells them: to GitLab capitals matter, to our rules they do not."""
        spellings: dict[str, None] = {}
        for label in map(_one_label, labels):
            if label.casefold() in ("none", "any"):
                message = f"issues with the label {label} cannot be listed: GitLab takes that for something else"
                raise NeedsAttention(message, fix="Use a label of another name")
            names, _ = await self._find_labels(label)
            spellings |= dict.fromkeys([label, *names])
        return tuple(spellings)

    async def _find_labels(self, label: str) -> tuple[list[str], str]:
        """The spellings of a label in the project and the groups above, and the URL of its labels after redirects."""
        # servers before 13.6 do not know `search` and return all labels
        reply = await self._api.get(self._url("labels"), [("search", label), ("per_page", PER_PAGE)])
        items, complete = await self._api.read_list(reply, MAX_PAGES)
        if not complete:
            message = f"{self._project} has more than {MAX_PAGES * PER_PAGE:,} labels like {label!r}"
            raise NeedsAttention(message, fix="Use a label with a longer name")
        names = [name for item in items if (name := text_of(item, "name")) and name.casefold() == label.casefold()]
        return names, str(reply.url.with_query(None))

    async def _write_labels(self, url: str, changes: dict[str, list[str]]) -> Ticket:
        body = {name: ",".join(labels) for name, labels in changes.items() if labels}
        return self._ticket(self._api.expect_object(await self._api.send("PUT", url, json=body)))

    async def _find_merge_request(self, wanted: PullRequest) -> tuple[str, str]:
        """The address of the open merge request, or nothing, and the URL of the list after redirects."""
        url = self._api.project_url(_checked(wanted.repo), "merge_requests")
        params: Params = [("state", "opened"), ("source_branch", wanted.head), ("per_page", PER_PAGE)]
        reply = await self._api.get(url, params)
        items, _ = await self._api.read_list(reply, MAX_PAGES)
        for item in items:
            inside = text_of(item, "source_project_id") == text_of(item, "target_project_id")
            if inside and text_of(item, "source_branch") == wanted.head:
                return self._web_url(item), ""
        return "", str(reply.url.with_query(None))

    def _web_url(self, item: Any) -> str:
        url = text_of(item, "web_url")
        if url is None:
            raise Garbled(f"{self._api.name} does not tell the address of a merge request", fix="Check base_url")
        return url

    async def _comment(self, ticket: Ticket, note: Any, *, look_up: bool = False) -> Comment:
        id = text_of(note, "id")
        if id is None:
            raise Garbled(f"{self._api.name} sent a comment without an id", fix="Check base_url")
        return Comment(
            id=id,
            text=text_of(note, "body") or "",
            author=await self._actor(note.get("author"), look_up=look_up),
            created_at=_created(note),
            url=f"{ticket.url}#note_{id}" if ticket.url else "",
        )

    async def _actor(self, user: Any, *, look_up: bool = False) -> Actor | None:
        actor = actor_of(user)
        if actor is None or actor.bot or not look_up:
            return actor
        return msgspec.structs.replace(actor, bot=await self._is_bot(actor.id))

    async def _is_bot(self, id: str) -> bool:
        """Ask for the account once: lists show its name, but not that it is a service account."""
        if id not in self._bots:
            reply = await self._api.get(self._api.url("users", id))
            if reply.status == 404 or _is_forbidden(reply):
                return False
            self._bots[id] = self._api.expect_object(reply).get("bot") is True
        return self._bots[id]

    def _ticket(self, item: Any) -> Ticket:
        project, number = text_of(item, "project_id"), text_of(item, "iid")
        if not _ID.fullmatch(f"{project}#{number}"):
            raise Garbled(f"{self._api.name} sent an issue without project_id or iid", fix="Check base_url")
        ref = text_of(item, "references.full") or f"{self._project}#{number}"
        issue = issue_of(item, ref.rpartition("#")[0])
        return Ticket(
            id=f"{project}#{number}",
            ref=ref,
            title=issue.data["title"],
            url=issue.data["web_url"],
            status=issue.state,
            closed=issue.state == "closed",
            number=number or "",
            text=issue.data["description"],
            labels=tuple(issue.data["labels"]),
            repo=issue.data["project"],
            author=issue.data["author"]["username"],
            created_at=issue.created_at,
            updated_at=issue.updated_at,
            version=issue.data["updated_at"] or "",
        )


def actor_of(user: Any) -> Actor | None:
    """The account; None if it was deleted. Not every bot can be told by what lists and webhooks show."""
    id, login = text_of(user, "id"), text_of(user, "username") or ""
    if id is None or login == _GHOST:
        return None
    return Actor(id=id, login=login, bot=user.get("bot") is True or bool(_BOT.fullmatch(login)))


def _checked(project: str) -> str:
    try:
        return check_project(project)
    except ValueError as error:
        raise Misconfigured(f"{project[:80]!r}: {error}") from None


def _issue_url(api: Api, ticket: Ticket, *path: str) -> str:
    """By the number of the project: to a path that was renamed, GitLab refuses writes."""
    if not _ID.fullmatch(ticket.id) or "#" not in ticket.id:
        raise Refused(f"{ticket.id[:80]!r} is not the id of an issue of GitLab")
    project, number = ticket.id.split("#")
    return api.project_url(project, "issues", number, *path)


def _one_label(label: str) -> str:
    """The label as GitLab stores it. In its lists a comma ends a label, so it would write two others."""
    name = label.strip()
    if not name or "," in name:
        message = f"{label[:80]!r} cannot be a label at GitLab: it is empty or has a comma"
        raise NeedsAttention(message, fix="Use a label without a comma")
    return name


def _as_on(ticket: Ticket, labels: dict[str, str]) -> list[str]:
    """The labels in every spelling in which they are on the ticket; as they are given where they are not."""
    there = [label for label in ticket.labels if label.casefold() in labels]
    known = {label.casefold() for label in there}
    return [*there, *(label for name, label in labels.items() if name not in known)]


def _inert(text: str) -> str:
    """The text as Markdown that shows the same, without lines that GitLab would execute, such as /close."""
    return _QUICK_ACTION.sub(r"\\/", text.replace("\r", ""))


def _access(level: int) -> Access:
    """https://docs.gitlab.com/api/project_members/#roles"""
    if level >= 30:
        return Access.WRITE
    if level >= 15:
        return Access.TRIAGE
    return Access.READ if level > 0 else Access.NONE


def _is_forbidden(reply: Reply) -> bool:
    return reply.status == 403 and not is_rate_limited(reply.status, reply.headers)


def _created(item: Any) -> datetime | None:
    return instant(text_of(item, "created_at"))


def _order(event: dict[str, Any]) -> tuple[datetime, int]:
    return _created(event) or _LONG_AGO, whole_number(event.get("id")) or 0


def _dump(place: _Place | None) -> str | None:
    return None if place is None else msgspec.json.encode(place).decode()


def _load(page: str) -> _Place:
    try:
        return msgspec.json.decode(page, type=_Place)
    except msgspec.DecodeError:
        raise Refused("this page is none that the tracker has told of: begin with the first") from None
