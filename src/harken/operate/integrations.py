"""Accounts at services: where their credentials come from, whether they work, and what follows when one changes."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from typing import TYPE_CHECKING, NamedTuple, TypeVar
from urllib.parse import urlsplit

from harken.errors import HarkenError, Misconfigured, NeedsAttention, NotFound, RetryLater, addressed
from harken.feed import Feed, FeedState, Trigger
from harken.http.known_secret_redaction import redact_error, scrub
from harken.operate.context import Context
from harken.operate.load_and_check_configuration import credentials_of, load_directory, site_of
from harken.operate.output_rows import Plain, plain
from harken.operate.paging import page_by
from harken.source import Checked, Host, Plugin
from harken.store import Store
from harken.suggest import suggest_fix
from harken.tickets import tracker_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from harken.config.loaded import Account, Loaded
    from harken.source import Host, Plugin

__all__ = [
    "ResumedTriggers",
    "account_of",
    "ask_service",
    "check_queries",
    "check_query",
    "examine_account",
    "identify_account",
    "list_integrations",
    "renew",
    "resume_stopped_feeds",
    "show",
    "test",
    "whoami",
]


# error codes that stop a feed until a person acts
NEEDED_A_PERSON = ("attention", "refused", "misconfigured", "not_found", "unauthorized")


class ResumedTriggers(NamedTuple):
    """`freed` triggers run again; `left` ones stay paused because a person paused them."""

    freed: list[str]
    left: list[str]


async def resume_stopped_feeds(store: Store, triggers: Iterable[Trigger], feeds: Collection[str]) -> ResumedTriggers:
    """Resume those of these feeds that waited for a person to fix their credential. A person's pause stays."""
    stopped = [
        state.name
        for state in await store.feeds()
        if state.name in feeds and state.health.state == "paused" and state.health.code in NEEDED_A_PERSON
    ]
    if not stopped:
        return ResumedTriggers([], [])
    known = list(triggers)
    paused = {state.name: state.paused for state in await store.triggers() if state.removed_at is None}
    found = ResumedTriggers([], [])
    for feed in stopped:
        listening = sorted(trigger.name for trigger in known if feed in trigger.feeds)
        awake = [trigger for trigger in listening if paused.get(trigger) == ""]
        if awake:
            # resuming a trigger that is not paused only clears the errors of its feed
            await store.resume(awake[0])
        found.freed.extend(awake)
        found.left.extend(trigger for trigger in listening if paused.get(trigger))
    return found


T = TypeVar("T")

PATIENCE_SECONDS = 30.0


async def check_query(
    feed: Feed, loaded: Loaded, plugins: Mapping[str, Plugin], lend: Callable[[Account], Host]
) -> Checked | None:
    """Ask the service whether the names in the feed's query exist; None when its plugin has no such check."""
    plugin = plugins.get(feed.kind)
    account = loaded.integrations.get(feed.integration)
    query = loaded.queries.get(feed.name)
    if plugin is None or plugin.check is None or account is None or query is None or feed.way != "poll":
        return None
    if tracker_of(feed.name):
        # it has no query: its projects name what it reads
        return None
    answer = plugin.check(query, account.model, lend(account))
    said = await ask_service(answer, loaded, f"the check of {feed.display_name}", account)
    return Checked(found=scrub(dict(said.found), loaded.secrets), unknown=scrub(list(said.unknown), loaded.secrets))


async def ask_service(
    answer: Awaitable[T], loaded: Loaded, what: str, account: Account, *, seconds: float = PATIENCE_SECONDS
) -> T:
    """Await the service's answer within a time limit; secrets are removed from its errors."""
    try:
        async with asyncio.timeout(seconds):
            return await answer
    except HarkenError as error:
        raise redact_error(addressed(error, account.kind, account.name), loaded.secrets) from None
    except TimeoutError:
        raise RetryLater(f"{what} took longer than {seconds:.0f} s", reason="timeout") from None
    except Exception as error:
        # the exception's text is not shown: it may quote a secret
        message = f"{what} broke with {type(error).__name__}"
        raise NeedsAttention(message, fix="This is a fault of the service's plugin: tell its author") from None


async def list_integrations(context: Context, *, cursor: str = "", limit: int = 0) -> Plain:
    """Every account that is configured, stored or in the environment, and every kind that could have one."""
    from harken.services import registry

    stored, notes = await asyncio.to_thread(_stored, context)
    rows: dict[str, Plain] = {}
    accounts = context.loaded.integrations if context.loaded else {}
    for name, account in accounts.items():
        if account.origin != "none":
            rows[name] = _row(name, account.kind, account.origin, _address(account))
    for name, row in stored.items():
        rows.setdefault(name, row)
    for name, error in _refused_accounts(context).items():
        rows.setdefault(name, _row(name, "", "missing") | {"error": error})
    plugins = registry()
    for kind, plugin in plugins.items():
        # what can do without an account, and cannot say whose one is, is not listed as missing one
        if (plugin.whoami is not None or _required_fields(plugin)) and kind not in rows:
            rows[kind] = _row(kind, kind, _from_environment(plugin))
    states = {state.name: state for state in await context.store.feeds()}
    knowing = {kind for kind, plugin in plugins.items() if plugin.whoami is not None}
    items = [_with_feeds(context, row, states) | {"whoami": row["kind"] in knowing} for row in rows.values()]
    return page_by(items, cursor, limit) | {"notes": notes}


def _stored(context: Context) -> tuple[dict[str, Plain], list[str]]:
    """The stored accounts as rows, and a note for each that cannot be decrypted."""
    rows: dict[str, Plain] = {}
    notes: list[str] = []
    try:
        credentials = credentials_of(site_of(context.loaded).directory)
        for name, kind in credentials.accounts().items():
            rows[name] = _row(name, kind, "stored")
            entry = credentials.account(name)
            rows[name]["base_url"] = _without_credentials(str(entry.fields.get("base_url", ""))) if entry else ""
    except HarkenError as error:
        notes.append(str(error))
    return rows, notes


def _row(name: str, kind: str, source: str, base_url: str = "") -> Plain:
    return {"name": name, "kind": kind, "source": source, "base_url": base_url, "feeds": [], "error": ""}


def _address(account: Account) -> str:
    return _without_credentials(account.base_url or str(getattr(account.model, "base_url", "") or ""))


def _without_credentials(address: str) -> str:
    """The address without user, password and query, which may be secret."""
    parts = urlsplit(address)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2], query="").geturl()


def _refused_accounts(context: Context) -> dict[str, str]:
    refused = context.loaded.refused if context.loaded else {}
    prefix = "integration:"
    return {name.removeprefix(prefix): str(found[0]) for name, found in refused.items() if name.startswith(prefix)}


def _from_environment(plugin: Plugin) -> str:
    given = {field for variable, field in plugin.environment.items() if os.environ.get(variable)}
    return "environment" if given and _required_fields(plugin) <= given else "missing"


def _required_fields(plugin: Plugin) -> set[str]:
    """The fields without which there is no account."""
    fields = plugin.account.model_fields if plugin.account else {}
    return {name for name, field in fields.items() if field.is_required()}


def _with_feeds(context: Context, row: Plain, states: Mapping[str, FeedState]) -> Plain:
    ids = sorted(feed.name for feed in context.feeds().values() if feed.integration == row["name"])
    troubled = [states[id].health for id in ids if id in states and not states[id].health.clean]
    # the worst first: what a service only asked to be slower about works
    troubled.sort(key=lambda health: not health.failing)
    error = row["error"] or (troubled[0].message if troubled else "")
    failing = bool(row["error"]) or any(health.failing for health in troubled)
    status = "failing" if failing else "waiting" if troubled else "ok"
    return row | {"feeds": sorted(map(context.feed_label, ids)), "error": error, "status": status}


async def show(context: Context, *, name: str) -> Plain:
    """One account, without its credential."""
    rows = {row["name"]: row for row in (await list_integrations(context))["items"]}
    if name not in rows:
        raise NotFound(f"there is no integration {name}", fix=suggest_fix(name, rows))
    found: Plain = rows[name]
    return found


async def whoami(context: Context, *, name: str) -> Plain:
    """Who the service says that the current credential belongs to."""
    loaded = await _loaded(context, name)
    return await identify_account(loaded, name, context.running().lend)


async def test(context: Context, *, name: str) -> Plain:
    """Try the credential, and check that everything its feeds name exists. `ok` is False when something is wrong."""
    loaded = await _loaded(context, name)
    return await examine_account(loaded, name, context.running().lend)


async def _loaded(context: Context, name: str) -> Loaded:
    return await asyncio.to_thread(load_directory, site_of(context.loaded).directory, wanted=(name,))


def account_of(loaded: Loaded, name: str) -> tuple[Account, Plugin]:
    """The account of that name. NotFound or Misconfigured with what to do when there is none that can be used."""
    from harken.services import registry

    plugins = registry()
    plugin = plugins.get(name)
    account = loaded.integrations.get(name) or (loaded.integrations.get(plugin.kind) if plugin else None)
    if account is not None:
        found = plugins.get(account.kind)
        assert found is not None
        return account, found
    for finding in loaded.refused.get(f"integration:{name}", ()):
        if finding.code != "unknown_name" or plugin is not None:
            raise Misconfigured(finding.message, fix=finding.fix)
    known = {*loaded.integrations, *plugins}
    raise NotFound(f"there is no integration {name}", fix=suggest_fix(name, known))


async def identify_account(loaded: Loaded, name: str, lend: Callable[[Account], Host]) -> Plain:
    """What the service says about the owner of the credential, as flat text."""
    account, plugin = account_of(loaded, name)
    if plugin.whoami is None:
        raise NotFound(f"{plugin.kind} cannot say whose credential it is", fix=f"See: harken integrations {name} test")
    said = await ask_service(plugin.whoami(account.model, lend(account)), loaded, f"{plugin.kind}'s whoami", account)
    who: Plain = plain(scrub(dict(said), loaded.secrets))
    return {"name": account.name, "kind": account.kind, "source": account.origin, "who": who}


async def examine_account(loaded: Loaded, name: str, lend: Callable[[Account], Host]) -> Plain:
    """Try the credential, then every query that uses it; `problems` has a sentence for each failure."""
    account, plugin = account_of(loaded, name)
    answer: Plain = {"name": account.name, "kind": account.kind, "source": account.origin, "who": {}, "checks": []}
    try:
        answer["who"] = (await identify_account(loaded, name, lend))["who"] if plugin.whoami else {}
    except HarkenError as error:
        # the queries would fail the same way
        return answer | {"problems": [str(error)], "ok": False}
    answer |= await check_queries(loaded, name, lend)
    return answer | {"ok": not answer["problems"]}


async def check_queries(loaded: Loaded, name: str, lend: Callable[[Account], Host]) -> Plain:
    """Check every name in the queries of this account."""
    from harken.services import registry

    account, _ = account_of(loaded, name)
    checks: list[Plain] = []
    problems: list[str] = []
    for feed in (feed for feed in loaded.feeds if feed.integration == account.name):
        triggers = sorted(trigger.name for trigger in loaded.triggers if feed.name in trigger.feeds)
        row: Plain = {"feed": feed.display_name, "triggers": triggers, "found": {}, "unknown": []}
        try:
            names = await check_query(feed, loaded, registry(), lend)
        except HarkenError as error:
            row["unknown"] = [str(error)]
        else:
            row |= {"found": dict(names.found), "unknown": list(names.unknown)} if names else {}
        problems += [f"{', '.join(triggers) or feed.display_name}: {sentence}" for sentence in row["unknown"]]
        checks.append(row)
    return {"checks": checks, "problems": problems}


async def renew(context: Context, *, name: str) -> Plain:
    """A credential changed: reload, and resume the feeds that had stopped because of it.

    A pause that a person set stays.
    """
    running = context.engine is not None and bool(context.engine.status())
    reloaded = await context.running().reload() if running else {}
    mine = {feed.name for feed in context.feeds().values() if feed.integration == name}
    known = context.triggers()
    freed, left = await resume_stopped_feeds(context.store, known.values(), mine)
    freed += [trigger for trigger in reloaded.get("freed", ()) if trigger in known and known[trigger].feed in mine]
    context.nudge()
    return {"name": name, "reloaded": running, "freed": freed, "left": left}
