"""The work items of one project as tickets that start pipelines. Their labels are their tags.

https://learn.microsoft.com/en-us/rest/api/azure/devops/wit/work-items/update
https://learn.microsoft.com/en-us/rest/api/azure/devops/wit/comments
https://learn.microsoft.com/en-us/rest/api/azure/devops/git/pull-requests/create
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any
from urllib.parse import urlsplit

import msgspec

from harken.errors import Misconfigured, NeedsAttention, Refused, RetryLater
from harken.http import Reply
from harken.kit.values_from_payload import instant, list_of, text_of
from harken.outgoing_rate_limit import is_rate_limited
from harken.services.azure_devops.api import MAX_ITEMS, Account, Api, TooManyItems, check_name, error_detail
from harken.services.azure_devops.change_slices import find_slice, read_items
from harken.services.azure_devops.check import whoami
from harken.services.azure_devops.events_from_work_item_history import Item, item_of, new_value, tags_of
from harken.services.azure_devops.optimistic_work_item_update import (
    Patch,
    change_item,
    find_tag,
    set_field,
    set_tags,
    state_of,
)
from harken.services.azure_devops.query import has_any_tag, none_of, whole_query
from harken.services.azure_devops.registered_webhook_status import is_of_project, webhook_of
from harken.services.azure_devops.text import html_of, plain_text
from harken.source import Host
from harken.ticket import Access, Actor, Comment, LabelChange, PullRequest, Ticket, TicketPage, Webhook

__all__ = ["LARGEST_NUMBER", "WorkItemTracker", "actor_of", "make_tracker"]

MAX_RESULTS = 20_000
"""Work items that a query may find."""
LONGEST_QUERY = 32_000
# Azure DevOps Services allows 10,000 revisions of a work item
MAX_HISTORY_PAGES = 60
MAX_PAGES = 100
LONGEST_PULL_REQUEST_TITLE, LONGEST_PULL_REQUEST_TEXT = 400, 4000
STATES_LAST = 600.0
"""Seconds after which the states of the project's types are read again."""
NEW_STATES_AFTER = 10.0
"""The same for a state that is not among them."""
LARGEST_NUMBER = 2**31 - 1
_BY_NUMBER = "[System.Id]"
_CLOSED = ("completed", "removed")
_REPRO_STEPS = "Microsoft.VSTS.TCM.ReproSteps"
# descriptors of services and service principals; old servers have only the name of a build service
_BOT_DESCRIPTORS = ("svc.", "s2s.", "aadsp.")
_BOT_NAMES = ("build\\", "agentpool\\")


class State(msgspec.Struct, frozen=True):
    """A state of a type of work items. The category says what it means, whatever it is called."""

    name: str
    category: str

    @property
    def closed(self) -> bool:
        return self.category.casefold() in _CLOSED


def make_tracker(project: str, account: Account, host: Host) -> WorkItemTracker:
    # a server of one's own takes Markdown for HTML
    return WorkItemTracker(project, account, host, markdown=urlsplit(account.base_url).hostname == "dev.azure.com")


class WorkItemTracker:
    """Implements TicketTracker and CodeHost. With `markdown`, comments are written as Markdown, else as plain text."""

    def __init__(self, project: str, account: Account, host: Host, *, markdown: bool = False) -> None:
        try:
            self._project = check_name(project)
        except ValueError as error:
            raise Misconfigured(f"{project!r} is no project of Azure DevOps: {error}") from None
        self._account = account
        self._host = host
        self._api = Api(account, host)
        self._markdown = markdown
        self._states: dict[str, dict[str, State]] = {}
        self._states_read_at = -STATES_LAST

    async def list_labelled(self, labels: Sequence[str], *, closed: bool, page: str | None = None) -> TicketPage:
        """Page by number: tickets that change meanwhile stay where they are."""
        if not labels:
            return TicketPage(tickets=())
        clauses = [_any_label(labels), "" if closed else await self._open_clause()]
        ids, following = await self._find_after(int(page or 0), clauses)
        tickets = await self._read(ids)
        wanted = {label.casefold().strip() for label in labels}
        kept = [one for one in tickets if not wanted.isdisjoint(map(str.casefold, one.labels))]
        return TicketPage(tickets=[one for one in kept if closed or not one.closed], next=following)

    async def list_changed(self, since: datetime, *, page: str | None = None) -> TicketPage:
        start = datetime.fromisoformat(page) if page else since
        result, end = await find_slice(self._api, self._project, [], start)
        return TicketPage(tickets=await self._read(result.ids), next=end.isoformat() if end else None)

    async def get(self, id: str) -> Ticket | None:
        """None also where the token may not see it: Azure DevOps does not tell these two apart."""
        if not _is_number(id):
            return None
        reply = await self._api.get(self._api.url("_apis", "wit", "workitems", id))
        if _is_gone(reply):
            return None
        item = item_of(self._api.expect_object(reply, f"work item {id}"))
        return await self._ticket(item) if await self._is_here(item) else None

    async def label_history(self, ticket: Ticket) -> Sequence[LabelChange] | None:
        found = await self._api.read_updates(_number(ticket), MAX_HISTORY_PAGES)
        if found is None or not found[1]:
            return None
        updates = sorted((update for update in found[0] if isinstance(update, Mapping)), key=_rev)
        if ticket.version and (not updates or _rev(updates[-1]) < int(ticket.version)):
            raise RetryLater(f"the history of work item {ticket.number} is behind the work item")
        return [change for update in updates for change in _label_changes(update)]

    async def access_of(self, actor: Actor) -> Access:
        """What the history proved: Azure DevOps lets only administrators read what somebody else may do."""
        return actor.access

    async def own_account(self) -> Actor:
        user = await whoami(self._account, self._host)
        return Actor(id=user["id"], login=user["email"] or user["name"])

    async def swap_labels(self, ticket: Ticket, add: Sequence[str], remove: Sequence[str]) -> Ticket:
        _any_label([*add, *remove])
        wanted, unwanted = [label.strip() for label in add], [label.strip() for label in remove]

        def patch(item: Item) -> Patch:
            before = tags_of(item.fields)
            after = [tag for tag in before if find_tag(wanted, tag) or not find_tag(unwanted, tag)]
            for label in wanted:
                after += [] if find_tag(after, label) else [label]
            return set_tags(before, after)

        item, _ = await change_item(self._api, _number(ticket), patch, quiet=True)
        return await self._ticket(item)

    async def missing_labels(self, labels: Sequence[str]) -> Sequence[str]:
        return ()

    async def ensure_labels(self, labels: Sequence[str]) -> Sequence[str]:
        """Do nothing: a tag comes into being when it is first set."""
        return ()

    async def webhooks(self) -> Sequence[Webhook] | None:
        """The subscriptions of service hooks about work items, one for each kind of event."""
        params = {"publisherId": "tfs", "consumerId": "webHooks"}
        reply = await self._api.get(self._api.url("_apis", "hooks", "subscriptions"), params)
        if reply.status in (401, 403, 404) and not is_rate_limited(reply.status, reply.headers):
            # to see them is a permission of its own
            return None
        found = self._api.expect_list(reply, "the service hooks", key="value")
        project = await self._api.get(self._api.url("_apis", "projects", self._project))
        id = text_of(self._api.expect_object(project), "id") or "" if project.status == 200 else ""
        hooks = [webhook_of(one) for one in found if is_of_project(one, id)]
        return [hook for hook in hooks if hook is not None]

    async def revive_webhook(self, webhook: Webhook) -> bool:
        """Its answers leave the password out, so writing a subscription back could lose it."""
        return False

    async def comments(self, ticket: Ticket, since: datetime | None = None) -> Sequence[Comment]:
        found: list[Comment] = []
        params: dict[str, str | int] = {"$top": MAX_ITEMS, "order": "desc"}
        for _ in range(MAX_PAGES):
            reply = await self._api.get(self._comments_url(ticket), {**params, **self._comment_version()})
            page = self._api.expect_list(reply, f"the comments of work item {ticket.number}", key="comments")
            read = [_comment(one, ticket) for one in page if isinstance(one, Mapping)]
            newer = [one for one in read if since is None or one.created_at is None or one.created_at >= since]
            found += newer
            token = text_of(reply.json(), "continuationToken")
            if token is None or len(newer) < len(read):
                return found[::-1]
            params["continuationToken"] = token
        message = f"work item {ticket.number} has more than {MAX_PAGES * MAX_ITEMS:,} comments"
        raise NeedsAttention(message, fix="Go on in another work item")

    async def comment(self, ticket: Ticket, text: str) -> Comment:
        url = self._comments_url(ticket)
        reply = await self._api.send("POST", url, params=self._comment_params(), json=self._body(text))
        return _comment(self._api.expect_object(reply, f"a comment on work item {ticket.number}"), ticket)

    async def edit_comment(self, ticket: Ticket, id: str, text: str) -> Comment | None:
        if not _is_number(id):
            return None
        url = f"{self._comments_url(ticket)}/{id}"
        reply = await self._api.send("PATCH", url, params=self._comment_params(), json=self._body(text))
        if _is_gone(reply):
            return None
        edited = self._api.expect_object(reply, f"a comment on work item {ticket.number}")
        return None if edited.get("isDeleted") else _comment(edited, ticket)

    async def transition(self, ticket: Ticket, status: str) -> Ticket:
        kinds = await self._read_states(max_age=NEW_STATES_AFTER)

        def patch(item: Item) -> Patch:
            states = kinds.get(_kind(item), {})
            wanted = states.get(status.strip().casefold())
            if wanted is None:
                names = ", ".join(state.name for state in states.values())
                message = f"work item {item.id} has no state {status!r}"
                raise NeedsAttention(message, fix=f"The states of its type are: {names}")
            return [set_field("System.State", wanted.name)] if state_of(item) != wanted.name else []

        item, _ = await change_item(self._api, _number(ticket), patch, wanted=status, quiet=True)
        return await self._ticket(item)

    async def ensure_pull_request(self, wanted: PullRequest) -> str:
        """`repo` is the name or id of a repository of this project, or PROJECT/REPOSITORY."""
        project, _, repo = wanted.repo.rpartition("/")
        url = self._api.url(project or self._project, "_apis", "git", "repositories", repo, "pullrequests")
        found = await self._open_pull_request(url, wanted)
        if found is None:
            body = {
                "sourceRefName": _ref(wanted.head),
                "targetRefName": _ref(wanted.base),
                "title": wanted.title[:LONGEST_PULL_REQUEST_TITLE],
                "description": wanted.text[:LONGEST_PULL_REQUEST_TEXT],
            }
            reply = await self._api.send("POST", url, json=body)
            # somebody else opened it meanwhile
            found = await self._open_pull_request(url, wanted) if reply.status == 409 else None
            found = found or self._api.expect_object(reply, f"a pull request in {repo}")
        where = text_of(found, "repository.project.name") or project or self._project
        name = text_of(found, "repository.name") or repo
        return self._api.url(where, "_git", name, "pullrequest", text_of(found, "pullRequestId") or "")

    async def _open_pull_request(self, url: str, wanted: PullRequest) -> Mapping[str, Any] | None:
        """The open request from this branch, into `base` if there are several; those from forks are somebody else's."""
        params = {"searchCriteria.status": "active", "searchCriteria.sourceRefName": _ref(wanted.head)}
        found: list[Mapping[str, Any]] = []
        for page in range(MAX_PAGES):
            reply = await self._api.get(url, {**params, "$top": MAX_ITEMS, "$skip": page * MAX_ITEMS})
            listed = self._api.expect_list(reply, f"the pull requests of {wanted.repo}", key="value")
            own = [one for one in listed if isinstance(one, Mapping) and not one.get("forkSource")]
            found += [one for one in own if one.get("sourceRefName") == _ref(wanted.head)]
            if len(listed) < MAX_ITEMS:
                break
        found.sort(key=lambda one: one.get("targetRefName") != _ref(wanted.base))
        return found[0] if found else None

    async def _find_after(self, after: int, clauses: Sequence[str]) -> tuple[Sequence[int], str | None]:
        """Return the numbers of a page, and where the next page begins."""
        try:
            ids = await self._query([*clauses, f"{_BY_NUMBER} > {after}"])
            return ids, str(max(ids)) if len(ids) >= MAX_ITEMS else None
        except TooManyItems:
            # among so many numbers there are never more than may be found
            end = after + MAX_RESULTS
            ids = await self._query([*clauses, f"{_BY_NUMBER} > {after}", f"{_BY_NUMBER} <= {end}"])
            return ids, str(max(ids) if len(ids) >= MAX_ITEMS else end)

    async def _query(self, clauses: Sequence[str]) -> Sequence[int]:
        wiql = whole_query(clauses, _BY_NUMBER)
        if len(wiql) > LONGEST_QUERY:
            message = f"the query for work items of {self._project} is longer than Azure DevOps allows"
            raise NeedsAttention(message, fix="Use fewer or shorter labels")
        return (await self._api.query_ids(self._project, wiql, MAX_ITEMS)).ids

    async def _is_here(self, item: Item) -> bool:
        """Whether the work item is in this project, also if the project has another name now."""
        if str(item.fields.get("System.TeamProject") or "").casefold() == self._project.casefold():
            return True
        return bool(await self._query([f"{_BY_NUMBER} = {item.id}"]))

    async def _read(self, ids: Sequence[int]) -> list[Ticket]:
        return [await self._ticket(item) for item in await read_items(self._api, ids, ())]

    async def _ticket(self, item: Item) -> Ticket:
        fields = item.fields
        texts = (text_of(fields, "System.Description"), text_of(fields, _REPRO_STEPS))
        author = actor_of(fields.get("System.CreatedBy"))
        return Ticket(
            id=item.name,
            ref=f"#{item.name}",
            number=item.name,
            title=text_of(fields, "System.Title") or "",
            url=self._api.url(self._project, "_workitems", "edit", item.name),
            status=state_of(item),
            closed=await self._is_closed(item),
            text="\n\n".join(plain for text in texts if text and (plain := plain_text(text))),
            labels=tuple(tags_of(fields)),
            area_path=text_of(fields, "System.AreaPath") or "",
            author=author.login if author else "",
            created_at=item.created_at,
            updated_at=item.changed_at,
            version="" if item.rev is None else str(item.rev),
        )

    async def _is_closed(self, item: Item) -> bool:
        state = (await self._read_states()).get(_kind(item), {}).get(state_of(item).casefold())
        if state is None:
            # perhaps it is new
            kinds = await self._read_states(max_age=NEW_STATES_AFTER)
            state = kinds.get(_kind(item), {}).get(state_of(item).casefold())
        return state is not None and state.closed

    async def _open_clause(self) -> str:
        """Leave out states that are closed in every type that has them; the others are looked at one by one."""
        states = [state for kind in (await self._read_states()).values() for state in kind.values()]
        open_names = {state.name.casefold() for state in states if not state.closed}
        closed = {state.name.casefold(): state.name for state in states if state.closed}
        return none_of("System.State", [name for folded, name in closed.items() if folded not in open_names])

    async def _read_states(self, max_age: float = STATES_LAST) -> dict[str, dict[str, State]]:
        """The states of each type of work items, all names in lower case."""
        now = self._host.clock.time()
        if abs(now - self._states_read_at) >= max_age:
            reply = await self._api.get(self._api.url(self._project, "_apis", "wit", "workitemtypes"))
            listed = self._api.expect_list(reply, f"the types of work items of {self._project}", key="value")
            self._states = {(text_of(kind, "name") or "").casefold(): _states(kind) for kind in listed}
            self._states_read_at = now
        return self._states

    def _comments_url(self, ticket: Ticket) -> str:
        return self._api.url(self._project, "_apis", "wit", "workItems", str(_number(ticket)), "comments")

    def _comment_version(self) -> dict[str, str | int]:
        return {"api-version": "7.1-preview.4" if self._markdown else f"{self._account.api_version}-preview.3"}

    def _comment_params(self) -> dict[str, str | int]:
        return {**self._comment_version(), **({"format": "markdown"} if self._markdown else {})}

    def _body(self, text: str) -> dict[str, str]:
        return {"text": text if self._markdown else html_of(text)}


def _any_label(labels: Iterable[str]) -> str:
    try:
        return has_any_tag(labels)
    except ValueError as error:
        raise Refused(f"a label cannot be a tag of Azure DevOps: {error}") from None


def _is_number(id: str) -> bool:
    return id.isascii() and id.isdigit() and 0 < int(id[:20]) <= LARGEST_NUMBER


def _number(ticket: Ticket) -> int:
    if not _is_number(ticket.number):
        raise Refused(f"{ticket.number!r} is no number of a work item")
    return int(ticket.number)


def _is_gone(reply: Reply) -> bool:
    """Whether a 404 is about the work item or comment. One about the project or the address is an error."""
    kind = error_detail(reply, "typeKey") if reply.status == 404 else ""
    return "WorkItem" in kind or "Comment" in kind


def _kind(item: Item) -> str:
    return str(item.fields.get("System.WorkItemType") or "").casefold()


def _states(kind: Any) -> dict[str, State]:
    found = list_of(kind.get("states") if isinstance(kind, Mapping) else None)
    states = [State(text_of(state, "name") or "", text_of(state, "category") or "") for state in found]
    return {state.name.casefold(): state for state in states}


def _rev(update: Mapping[str, Any]) -> int:
    rev = update.get("rev")
    return rev if type(rev) is int else 0


def _label_changes(update: Mapping[str, Any]) -> list[LabelChange]:
    fields = update.get("fields")
    fields = fields if isinstance(fields, Mapping) else {}
    change = fields.get("System.Tags")
    if not isinstance(change, Mapping):
        return []
    before, after = (tags_of({"System.Tags": change.get(name)}) for name in ("oldValue", "newValue"))
    # only somebody who may edit the work item can change its tags
    actor = actor_of(update.get("revisedBy"), Access.WRITE)
    # told only where the last change was somebody else's
    changed_by = new_value(fields, "System.ChangedBy")
    if actor is not None and isinstance(changed_by, Mapping) and changed_by.get("id") != actor.id:
        actor = None
    when = instant(new_value(fields, "System.ChangedDate"))
    gone = [LabelChange(label=tag, added=False, actor=actor, at=when) for tag in before if not find_tag(after, tag)]
    new = [LabelChange(label=tag, added=True, actor=actor, at=when) for tag in after if not find_tag(before, tag)]
    return gone + new


def actor_of(person: Any, access: Access = Access.UNKNOWN) -> Actor | None:
    """The account; None if it was deleted, or is not told by its id."""
    id = text_of(person, "id") if isinstance(person, Mapping) else None
    if id is None or person.get("isDeletedInOrigin") or person.get("inactive"):
        return None
    login = text_of(person, "uniqueName") or text_of(person, "displayName") or ""
    descriptor = text_of(person, "descriptor") or ""
    bot = descriptor.startswith(_BOT_DESCRIPTORS) or login.casefold().startswith(_BOT_NAMES)
    return Actor(id=id, login=login, bot=bot, access=access)


def _comment(found: Mapping[str, Any], ticket: Ticket) -> Comment:
    id, text = text_of(found, "id") or "", text_of(found, "text") or ""
    return Comment(
        id=id,
        text=text if text_of(found, "format") == "markdown" else plain_text(text),
        author=actor_of(found.get("createdBy")),
        created_at=instant(found.get("createdDate")),
        url=f"{ticket.url}#{id}",
    )


def _ref(branch: str) -> str:
    return branch if branch.startswith("refs/") else f"refs/heads/{branch}"
