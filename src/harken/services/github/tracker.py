"""The issues of one repository as tickets that start pipelines, and its pull requests.

https://docs.github.com/en/rest/issues/issues
https://docs.github.com/en/rest/issues/labels
https://docs.github.com/en/graphql/reference/mutations#addlabelstolabelable
https://docs.github.com/en/rest/collaborators/collaborators#get-repository-permissions-for-a-user
https://docs.github.com/en/rest/pulls/pulls
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

from msgspec.structs import replace

from harken.errors import Misconfigured, NeedsAttention, RetryLater
from harken.http import Reply, Validators
from harken.http.redirects import REDIRECTS
from harken.kit.conditional import expect_answer
from harken.kit.json_api import join_url
from harken.kit.query_fields import label_name, unique_names
from harken.kit.values_from_payload import folded_text, instant, list_of, text_of
from harken.services.github.actions import LONGEST
from harken.services.github.api import Account, Api, repo_name
from harken.services.github.app import App, InstallationTokens, repository_in
from harken.services.github.cached_pages import KeptPage, KeptPages, Params, changed_since
from harken.services.github.events_from_issue_history import is_pull
from harken.services.github.issue_to_ticket import (
    access_in,
    actor_at,
    by_form,
    change_of,
    comes_from,
    comment_of,
    label_names,
    may_be_of_a_form,
    ticket_of,
)
from harken.services.github.label_swap import COLOUR, WRITE_GAP, LabelSwap
from harken.services.github.registered_webhook_status import webhook_of, webhook_of_app
from harken.source import Host
from harken.ticket import Access, Actor, Comment, LabelChange, PullRequest, Ticket, TicketPage, Webhook

__all__ = ["GitHubTracker"]

MAX_PAGES = 50
LONGEST_TITLE = 256

_ORDER: Params = (("sort", "updated"), ("direction", "asc"), ("per_page", 100))
_FILTERS = frozenset({"state", "labels", "sort", "direction", "per_page"})
_STATUSES: Mapping[str, Mapping[str, str]] = {
    "open": {"state": "open"},
    "closed": {"state": "closed"},
    "completed": {"state": "closed", "state_reason": "completed"},
    "not_planned": {"state": "closed", "state_reason": "not_planned"},
}
_ID = re.compile(r"([0-9]{1,18})(?:@([0-9]{1,18}))?")
_VIEWER = "query { viewer { login databaseId } }"


class GitHubTracker:
    """The issues of `project`, a repository as owner/name; it implements `TicketTracker` and `CodeHost`."""

    def __init__(self, project: str, account: Account, host: Host) -> None:
        self._project = _checked_repo(project)
        self._api = Api(account, host)
        self._direct = Api(account, host, follow_redirects=False)
        self._kept = KeptPages()
        self._label_swap = LabelSwap(self._api, self._project)

    async def list_labelled(self, labels: Sequence[str], *, closed: bool, page: str | None = None) -> TicketPage:
        """One list per label, as GitHub's filter wants all of several: a ticket with two of them is listed twice."""
        names = unique_names(_checked_label(label) for label in labels)
        index, query = _parse_page(page)
        if index >= len(names):
            return TicketPage(tickets=())
        first: Params = [("state", "all" if closed else "open"), ("labels", names[index]), *_ORDER]
        read, _ = await self._read_page(query or first)
        if read.following is not None:
            return TicketPage(tickets=read.tickets, next=_format_page(index, read.following))
        return TicketPage(tickets=read.tickets, next=_format_page(index + 1) if index + 1 < len(names) else None)

    async def list_changed(self, since: datetime, *, page: str | None = None) -> TicketPage:
        _, query = _parse_page(page)
        start = self._kept.start_of_changes(since)
        first: Params = [("state", "all"), *_ORDER, ("since", _second_before(start))]
        read, unchanged = await self._read_page(query or first)
        if not query:
            self._kept.keep_start(start, first)
        # what is older was returned when it was read
        tickets = changed_since(read.tickets, since - timedelta(seconds=1)) if unchanged else read.tickets
        return TicketPage(tickets=tickets, next=None if read.following is None else _format_page(0, read.following))

    async def get(self, id: str) -> Ticket | None:
        """A pull request is no ticket, and one that was transferred to another repository is gone."""
        asked = _ID.fullmatch(id)
        if asked is None:
            return None
        reply = await self._api.get(self._url("issues", asked[1]))
        if reply.status in (404, 410):
            # a token that may not see the repository gets a 404 too, and so does everybody where issues are disabled
            if (await self._repo()).get("has_issues") is False:
                self._api.check(reply)
            return None
        item = self._api.expect_object(reply)
        if is_pull(item) or await self._is_elsewhere(item, reply, asked[1]):
            return None
        ticket = self._ticket(item)
        return ticket if id in (ticket.id, ticket.number) else None

    async def label_history(self, ticket: Ticket) -> Sequence[LabelChange] | None:
        """None for an issue that was deleted, and for one with more than 5,000 entries in its history."""
        reply = await self._api.get(self._url("issues", ticket.number, "events"), [("per_page", 100)])
        if reply.status == 410:
            return None
        entries, complete = await self._api.read_list(reply, MAX_PAGES)
        if not complete:
            return None
        changes = [change for entry in entries if (change := change_of(entry)) is not None]
        suspect = next((change.actor for change in changes if may_be_of_a_form(change, ticket)), None)
        access = Access.WRITE if suspect is None else await self.access_of(suspect)
        if access >= Access.TRIAGE:
            return changes
        return [by_form(change, access) if may_be_of_a_form(change, ticket) else change for change in changes]

    async def access_of(self, actor: Actor) -> Access:
        """UNKNOWN for apps, for a login that is another account's now, and if our token may not ask."""
        if not actor.login:
            return Access.UNKNOWN
        reply = await self._api.get(self._url("collaborators", actor.login, "permission"))
        if reply.status in (403, 404):
            self._raise_limit(reply)
            return Access.UNKNOWN
        found = self._api.expect_object(reply)
        if actor.id and text_of(found, "user.id") != actor.id:
            return Access.UNKNOWN
        return access_in(found)

    async def own_account(self) -> Actor:
        if self._api.tokens is not None:
            return await self._account_of_app(self._api.tokens)
        reply = await self._api.get(self._api.url("user"))
        if reply.status == 403:
            # an app's installation is no user, but GraphQL names its bot
            self._raise_limit(reply)
            asked = await self._api.send("POST", self._api.graphql_url(), json={"query": _VIEWER})
            viewer = self._api.expect_object(asked)
            id, login = text_of(viewer, "data.viewer.databaseId"), text_of(viewer, "data.viewer.login")
            if id and login:
                return Actor(id=id, login=login, bot=True)
        actor = actor_at(self._api.expect_object(reply))
        if actor is None:
            raise RetryLater(f"{self._api.name} did not say whose token it is")
        return actor

    async def _account_of_app(self, tokens: InstallationTokens) -> Actor:
        """The bot of the app: its name is that of the app, its id only the account of the bot shows."""
        app = await tokens.app.describe(self._api.host)
        # the account is no part of a repository, and is asked for with the token of ours
        await tokens.get(self._api.host, repository_in(self._url()))
        login = f"{text_of(app, 'slug')}[bot]"
        actor = actor_at(self._api.expect_object(await self._api.get(self._api.url("users", login))))
        if actor is None:
            raise RetryLater(f"{self._api.name} did not say what the account of the app is")
        return actor

    async def swap_labels(self, ticket: Ticket, add: Sequence[str], remove: Sequence[str]) -> Ticket:
        """One write, with GraphQL. Without it one for all that are added, then one for each that is there to go."""
        for name in remove:
            # raises for one that cannot be part of an address, before anything is written
            self._url("labels", name)
        unwanted = {name.casefold() for name in remove} - {name.casefold() for name in add}
        labels = await self._label_swap.swap(
            ticket, add, [name for name in ticket.labels if name.casefold() in unwanted]
        )
        if labels is None:
            labels = await self._add_labels(ticket, add)
        wrote = bool(add)
        for name in [label for label in labels if label.casefold() in unwanted]:
            if wrote:
                await self._api.host.clock.sleep(WRITE_GAP)
            wrote = True
            reply = await self._write("DELETE", ticket, "labels", name)
            if reply.status == 404:
                # somebody else removed it meanwhile; if the issue is gone, the read below says so
                labels = [label for label in labels if label != name]
                continue
            labels = label_names(self._api.expect_list(reply))
        fresh, _ = await self._read(ticket)
        if {name.casefold() for name in labels} == {name.casefold() for name in fresh.labels}:
            return fresh
        # read from a copy that is behind, or changed since: our write counts, and any later version is news
        return replace(fresh, labels=tuple(labels), version=ticket.version, updated_at=ticket.updated_at)

    async def _add_labels(self, ticket: Ticket, add: Sequence[str]) -> list[str]:
        """Add labels, which are made if the repository does not have them. Returns those of the issue after that."""
        if add:
            reply = await self._write("POST", ticket, "labels", json={"labels": list(add)})
        else:
            reply = await self._api.get(self._url("issues", ticket.number, "labels"), [("per_page", 100)])
        return label_names(self._api.expect_list(reply))

    async def missing_labels(self, labels: Sequence[str]) -> Sequence[str]:
        first = await self._api.get(self._url("labels"), [("per_page", 100)])
        present, _ = await self._api.read_list(first, MAX_PAGES)
        known = {name.casefold() for name in label_names(present)}
        return [label for label in unique_names(labels) if label.casefold() not in known]

    async def ensure_labels(self, labels: Sequence[str]) -> Sequence[str]:
        made = []
        for label in await self.missing_labels(labels):
            reply = await self._api.send("POST", self._url("labels"), json={"name": label, "color": COLOUR})
            if reply.status == 422 and _exists_already(reply):
                continue
            self._api.check(reply)
            made.append(label)
        return made

    async def webhooks(self) -> Sequence[Webhook] | None:
        """Those of the repository and of its organization; with an app that of the app, too."""
        owner, _, _ = self._project.partition("/")
        lists = [await self._read_hooks(url) for url in (self._url("hooks"), self._api.url("orgs", owner, "hooks"))]
        if self._api.tokens is not None:
            lists.append(await self._read_hook_of_app(self._api.tokens.app))
        read = [hooks for hooks in lists if hooks is not None]
        return [hook for hooks in read for hook in hooks] if read else None

    async def _read_hook_of_app(self, app: App) -> list[Webhook] | None:
        config = await app.read_webhook(self._api.host)
        if not text_of(config, "url"):
            return None
        return [webhook_of_app(config, await app.describe(self._api.host))]

    async def _read_hooks(self, url: str) -> list[Webhook] | None:
        """None if our token may not read them, or the owner is no organization: GitHub does not tell these apart."""
        reply = await self._api.get(url, [("per_page", 100)])
        if reply.status in (403, 404):
            self._raise_limit(reply)
            return None
        hooks, _ = await self._api.read_list(reply, MAX_PAGES)
        return [webhook_of(hook) for hook in hooks]

    async def revive_webhook(self, webhook: Webhook) -> bool:
        """GitHub stops none: whoever has switched it off had a reason."""
        return False

    async def comments(self, ticket: Ticket, since: datetime | None = None) -> Sequence[Comment]:
        """By when they were written: GitHub's own filter goes by the last edit."""
        params: Params = [("per_page", 100), *([("since", _second_before(since))] if since else [])]
        first = await self._api.get(self._url("issues", ticket.number, "comments"), params)
        items, complete = await self._api.read_list(first, MAX_PAGES)
        if not complete:
            message = f"{ticket.ref} has more than {MAX_PAGES * 100:,} comments, too many to read"
            raise NeedsAttention(message, fix="Go on in another issue")
        found = [comment_of(item) for item in items]
        return [one for one in found if since is None or one.created_at is None or one.created_at >= since]

    async def comment(self, ticket: Ticket, text: str) -> Comment:
        reply = await self._write("POST", ticket, "comments", json={"body": _cut(text)})
        return comment_of(self._api.expect_object(reply))

    async def edit_comment(self, ticket: Ticket, id: str, text: str) -> Comment | None:
        address = self._url("issues", "comments", id)
        reply = await self._api.send("PATCH", address, json={"body": _cut(text)})
        if reply.status in (404, 410):
            # the comment alone is gone if its issue can still be read; otherwise this raises
            await self._read(ticket)
            return None
        return comment_of(self._api.expect_object(reply))

    async def transition(self, ticket: Ticket, status: str) -> Ticket:
        """`open`, or `closed`, `completed` and `not_planned`, which close with or without a reason."""
        wanted = _STATUSES.get(status.casefold())
        if wanted is None:
            known = ", ".join(_STATUSES)
            raise NeedsAttention(f"an issue of GitHub cannot become {status!r}", fix=f"Use one of {known}")
        reply = await self._write("PATCH", ticket, json=wanted)
        return self._ticket(self._api.expect_object(reply))

    async def ensure_pull_request(self, wanted: PullRequest) -> str:
        repo = _checked_repo(wanted.repo or self._project)
        head = wanted.head if ":" in wanted.head else f"{repo.partition('/')[0]}:{wanted.head}"
        if (found := await self._open_pull(repo, wanted.head, [("head", head)])) is not None:
            return found
        asked = {
            "title": wanted.title[:LONGEST_TITLE],
            "head": wanted.head,
            "base": wanted.base,
            "body": _cut(wanted.text),
        }
        reply = await self._api.send("POST", self._api.repo_url(repo, "pulls"), json=asked)
        if reply.status == 422:
            # opened by somebody else meanwhile, or the owner has another name now, so that the filter found nothing
            if (found := await self._open_pull(repo, wanted.head, [])) is not None:
                return found
            message = f"{self._api.name} refuses a pull request from {wanted.head} into {wanted.base} of {repo}"
            raise NeedsAttention(message, fix="Check that both branches exist, and that commits are between them")
        return text_of(self._api.expect_object(reply), "html_url") or ""

    async def _open_pull(self, repo: str, head: str, params: Params) -> str | None:
        first = await self._api.get(self._api.repo_url(repo, "pulls"), [("state", "open"), *params, ("per_page", 100)])
        pulls, _ = await self._api.read_list(first, MAX_PAGES)
        # compared again: GitHub ignores a filter that it does not understand
        return next((text_of(pull, "html_url") or "" for pull in pulls if comes_from(pull, head)), None)

    async def _read_page(self, params: Params) -> tuple[KeptPage, bool]:
        """Read a page of issues. Returns it, and whether it is as it was read before."""
        kept = self._kept.get(params)
        conditional = kept.validators if kept is not None else None
        reply = await self._api.get(self._url("issues"), params, conditional=conditional)
        expect_answer(reply, conditional, self._api.name)
        if kept is not None and reply.not_modified:
            return kept, True
        items = self._api.expect_list(reply, f"the issues of {self._project}")
        linked = self._api.next_page(reply)
        page = KeptPage(
            validators=Validators(etag=reply.headers.get("ETag")),
            tickets=[self._ticket(item) for item in items if not is_pull(item)],
            following=None if linked is None else _next_params(params, items, linked),
            size=len(reply.body),
        )
        self._kept.put(params, page)
        return page, False

    async def _write(self, method: str, ticket: Ticket, *path: str, json: Any = None) -> Reply:
        """Write to the issue. A redirect is followed into our repository under its new name, and into no other."""
        reply = await self._direct.send(method, self._url("issues", ticket.number, *path), json=json)
        if reply.status not in REDIRECTS:
            return reply
        _, address = await self._read(ticket)
        return await self._direct.send(method, join_url(address, *path), json=json)

    async def _read(self, ticket: Ticket) -> tuple[Ticket, str]:
        """The issue as it is now, and its address; raise if it is gone."""
        reply = await self._api.get(self._url("issues", ticket.number))
        item = self._api.expect_object(reply)
        if await self._is_elsewhere(item, reply, ticket.number):
            raise NeedsAttention(f"{ticket.ref} is in another repository now", fix="Go on with the issue there")
        return self._ticket(item), str(reply.url)

    async def _repo(self) -> dict[str, Any]:
        return self._api.expect_object(await self._api.get(self._url()))

    async def _is_elsewhere(self, item: Mapping[str, Any], reply: Reply, number: str) -> bool:
        """Whether we were redirected to another repository, and not to ours under its new name."""
        if reply.url.path == urlsplit(self._url("issues", number)).path:
            return False
        return folded_text(item, "repository_url") != folded_text(await self._repo(), "url")

    def _raise_limit(self, reply: Reply) -> None:
        with suppress(NeedsAttention):
            self._api.check(reply)

    def _url(self, *path: str) -> str:
        return self._api.repo_url(self._project, *path)

    def _ticket(self, item: Any) -> Ticket:
        return ticket_of(item, self._project)


def _checked_repo(name: str) -> str:
    try:
        return repo_name(name)
    except ValueError as error:
        raise Misconfigured(f"{name!r} is no project of GitHub: {error}") from None


def _checked_label(name: str) -> str:
    try:
        return label_name(name, "GitHub")
    except ValueError as error:
        raise Misconfigured(f"issues with the label {name!r} cannot be listed: {error}") from None


def _parse_page(page: str | None) -> tuple[int, Params]:
    """Which label, and which query: never an address, so that the token of the account goes nowhere else."""
    index, _, query = (page or "0?").partition("?")
    return int(index), parse_qsl(query)


def _format_page(index: int, params: Params = ()) -> str:
    return f"{index}?{urlencode(list(params))}"


def _next_params(params: Params, items: Sequence[Any], linked: str) -> Params:
    """Go on from the time of the last item, as a change during the read would shift page numbers.

    Only where a whole page changed in one second, GitHub's own link is followed."""
    last = instant(text_of(items[-1], "updated_at")) if items else None
    since = _second_before(last) if last else ""
    if since <= str(dict(params).get("since", "")):
        return parse_qsl(urlsplit(linked).query)
    return [*((name, value) for name, value in params if name in _FILTERS), ("since", since)]


def _second_before(at: datetime) -> str:
    """A second earlier: the documentation does not say whether `since` is included."""
    return (at - timedelta(seconds=1)).astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _exists_already(reply: Reply) -> bool:
    document = reply.json()
    errors = list_of(document.get("errors")) if isinstance(document, Mapping) else []
    return any(text_of(error, "code") == "already_exists" for error in errors)


def _cut(text: str) -> str:
    return text if len(text) <= LONGEST else text[: LONGEST - 1] + "…"
