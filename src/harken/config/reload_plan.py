"""Reload: what a changed configuration adds, replaces, removes and keeps. A refused item keeps its old version."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import msgspec

from harken.config.feed_labels import with_labels
from harken.config.feed_sources import with_shards
from harken.config.feeds import with_shorter_interval
from harken.config.loaded import MAIN, Account, Loaded, item, with_generation
from harken.config.on_failure import ON_FAILURE
from harken.config.outcome_webhooks import OUTCOME_WEBHOOKS, is_outcome_webhook
from harken.config.pollers.schema import Job
from harken.config.settings import Settings
from harken.config.trackers.feed_and_triggers_from_tracker import compile_all, with_projects
from harken.config.workflows import used_integrations
from harken.feed import Feed, Trigger
from harken.runs import Workflow
from harken.tickets import TrackerSettings, tracker_of

__all__ = ["Plan", "carry_over", "inherit_cursors", "plan"]

# a cursor is only valid for the place it was read from: these settings name it
_SUBJECT = ("url", "feed_url", "base_url", "path", "calendar_id", "method", "body")


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """What applying a configuration does, by item (`feed:news`). `notes` are sentences for people."""

    add: tuple[str, ...] = ()
    replace: tuple[str, ...] = ()
    remove: tuple[str, ...] = ()
    keep: tuple[str, ...] = ()
    refused: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def changes(self) -> bool:
        return bool(self.add or self.replace or self.remove)


def carry_over(old: Loaded | None, new: Loaded) -> Loaded:
    """Return the new configuration, with the old version of every item that is refused now.

    When a trigger moves to a new feed, the new feed inherits the cursor of the old one if it is still valid there.
    """
    if old is None:
        return new
    settings = _kept_settings(old, new)
    jobs = _kept_jobs(old, new)
    workflows = _kept_workflows(old, new, jobs)
    named = {trigger.name for trigger in new.triggers}
    kept_triggers = [trigger for trigger in old.triggers if _is_kept(trigger, workflows, new, named)]
    trackers = _with_kept_trackers(old, new)
    # compiled again: a project that is kept, or goes on with a workflow that is, needs the revisions of all
    tickets = compile_all(trackers, {**new.workflows, **workflows}, {**old.integrations, **new.integrations}, MAIN)
    triggers = (*(trigger for trigger in new.triggers if not trigger.routes), *kept_triggers, *tickets.triggers)
    feeds, queries = _with_kept_feeds(old, new, kept_triggers)
    feeds = (*(feed for feed in feeds if not tracker_of(feed.name)), *tickets.feeds)
    queries |= _kept_hooks(old, new, tickets.feeds)
    carried = replace(
        new,
        settings=settings,
        store=new.store if settings.store == new.settings.store else old.store,
        workflows={**new.workflows, **workflows},
        triggers=triggers,
        feeds=inherit_cursors(feeds, triggers, old.feeds, old.triggers),
        pollers=new.pollers or (old.pollers if jobs else None),
        jobs={**new.jobs, **jobs},
        agents={
            **{name: old.agents[name] for name in old.agents if _keeps_old_version("agent", name, old, new)},
            **new.agents,
        },
        trackers=trackers,
        queries=queries,
        integrations=_with_kept_accounts(old, new, feeds, workflows),
        origins={**{name: old.origins[name] for name in old.origins if name not in new.origins}, **new.origins},
        references={**old.references, **new.references},
        secrets=old.secrets | new.secrets,
    )
    return with_generation(with_labels(with_shards(carried)))


def _with_kept_trackers(old: Loaded, new: Loaded) -> dict[str, TrackerSettings]:
    """Return the new trackers, with the old version of each tracker and project that is refused now."""
    found = dict(new.trackers)
    for name, tracker in old.trackers.items():
        kept = tuple(project for project in tracker.projects if _is_kept_project(project.name, tracker, old, new))
        if name not in found and kept:
            found[name] = with_projects(tracker, kept)
        elif kept:
            found[name] = with_projects(found[name], (*found[name].projects, *kept))
    return found


def _is_kept_project(name: str, tracker: TrackerSettings, old: Loaded, new: Loaded) -> bool:
    """Whether the old version runs on: its new one is refused, and it is in no tracker now."""
    if any(other.project(name) for other in new.trackers.values()):
        return False
    return _section_unreadable(new, "projects") or _keeps_old_version("project", name, old, new)


def _kept_hooks(old: Loaded, new: Loaded, feeds: Iterable[Feed]) -> dict[str, Any]:
    """What the webhooks of trackers are verified with, for those that only the old configuration has."""
    lost = [feed.name for feed in feeds if tracker_of(feed.name) not in new.trackers]
    return {name: old.queries[name] for name in lost if name in old.queries}


def _is_kept(trigger: Trigger, workflows: Mapping[str, Workflow], new: Loaded, named: set[str]) -> bool:
    if trigger.routes:
        # of a project, which is kept as a whole
        return False
    if trigger.name == ON_FAILURE and trigger.name not in named:
        refused = {item("section", ON_FAILURE), item("workflow", ON_FAILURE)} & new.refused.keys()
        return bool(refused) and trigger.workflow in {**workflows, **new.workflows}
    return trigger.workflow in workflows and trigger.name not in named


def _kept_settings(old: Loaded, new: Loaded) -> Settings:
    names = [name for name in Settings.model_fields if item("section", name) in new.refused or _main_unreadable(new)]
    return new.settings.model_copy(update={name: getattr(old.settings, name) for name in names})


def _main_unreadable(new: Loaded) -> bool:
    """Whether harken.yaml as a whole could not be read: then nothing in it counts as removed."""
    return item("file", MAIN) in new.refused


def _keeps_old_version(kind: str, name: str, old: Loaded, new: Loaded) -> bool:
    """Whether the old version of an item runs on: the new one, or its whole file, is refused."""
    origin = old.origins.get(item(kind, name), "")
    unread = [refused.removeprefix("file:") for refused in new.refused if refused.startswith("file:")]
    return item(kind, name) in new.refused or any(origin == file or origin.startswith(f"{file}/") for file in unread)


def _kept_jobs(old: Loaded, new: Loaded) -> dict[str, Job]:
    lost = item("section", "pollers") in new.refused
    return {
        name: job
        for name, job in old.jobs.items()
        if name not in new.jobs
        and name not in new.workflows
        and (lost or _keeps_old_version("poller", name, old, new))
        and not _is_forbidden(name, new)
    }


def _is_forbidden(job: str, new: Loaded) -> bool:
    """Whether the job's agent lost the right to an account: that is deliberate, so the old version stops at once."""
    return any(finding.code == "not_allowed" for finding in new.refused.get(item("poller", job), ()))


def _kept_workflows(old: Loaded, new: Loaded, jobs: Mapping[str, Job]) -> dict[str, Workflow]:
    owned = {name for job in jobs.values() for name in (job.id, job.alert)}
    if item("section", ON_FAILURE) in new.refused:
        owned.add(ON_FAILURE)
    if item("section", OUTCOME_WEBHOOKS) in new.refused:
        owned |= {name for name in old.workflows if is_outcome_webhook(name)}
    return {
        name: flow
        for name, flow in old.workflows.items()
        if name not in new.workflows and (name in owned or _keeps_old_version("workflow", name, old, new))
    }


def _with_kept_feeds(old: Loaded, new: Loaded, triggers: Sequence[Trigger]) -> tuple[tuple[Feed, ...], dict[str, Any]]:
    """Return the new feeds, and old ones that are refused now or that a kept trigger listens to; and their queries."""
    found = {feed.name: feed for feed in new.feeds}
    queries = dict(new.queries)
    wanted = {feed for trigger in triggers for feed in trigger.feeds}
    for feed in old.feeds:
        named = item("feed", feed.name) in old.origins
        lost = item("feed", feed.name) in new.refused or (named and _section_unreadable(new, "feeds"))
        if feed.name in found:
            if feed.name in wanted:
                found[feed.name] = with_shorter_interval(found[feed.name], feed)
        elif lost or feed.name in wanted:
            found[feed.name] = feed
            queries.update({feed.name: old.queries[feed.name]} if feed.name in old.queries else {})
    return tuple(found.values()), queries


def _section_unreadable(new: Loaded, section: str) -> bool:
    return _main_unreadable(new) or item("section", section) in new.refused


def _with_kept_accounts(
    old: Loaded, new: Loaded, feeds: Iterable[Feed], stay: Mapping[str, Workflow]
) -> dict[str, Account]:
    used = {feed.integration for feed in feeds}
    used |= {name for flow in stay.values() for _, name in used_integrations(flow.definition.get("steps"))}
    kept = {
        name: account
        for name, account in old.integrations.items()
        if name in used or item("integration", name) in new.refused or _section_unreadable(new, "integrations")
    }
    return {**kept, **new.integrations}


def inherit_cursors(
    feeds: Iterable[Feed], triggers: Iterable[Trigger], old_feeds: Iterable[Feed], old_triggers: Iterable[Trigger]
) -> tuple[Feed, ...]:
    """Return the feeds. A new one that a trigger moved to names in `inherits` the feed whose cursor it takes over."""
    before = {feed.name: feed for feed in old_feeds}
    left = {trigger.name: trigger.feed for trigger in old_triggers}
    sources: dict[str, list[Feed]] = {}
    # there may be 100,000 triggers that are rows, of which none is among the old ones
    for trigger in sorted((one for one in triggers if one.name in left), key=lambda trigger: trigger.name):
        earlier = before.get(left[trigger.name])
        if earlier is not None and earlier.name != trigger.feed:
            sources.setdefault(trigger.feed, []).append(earlier)
    if not sources:
        return tuple(feeds)
    return tuple(
        _with_inherited_cursor(feed, sources[feed.name]) if feed.name in sources and feed.name not in before else feed
        for feed in feeds
    )


def _with_inherited_cursor(feed: Feed, earlier: list[Feed]) -> Feed:
    fitting = [candidate for candidate in earlier if not _cursor_difference(candidate, feed)]
    # several feeds may become one: take the widest lookback, since reading an event again is harmless
    best = max(fitting, key=lambda candidate: candidate.lookback, default=None)
    return msgspec.structs.replace(feed, inherits=best.name) if best else feed


def _cursor_difference(old: Feed, new: Feed) -> str:
    """Return the setting whose change makes the old feed's cursor invalid for the new one, or an empty text."""
    for name in ("kind", "way", "integration"):
        if getattr(old, name) != getattr(new, name):
            return name
    if old.kind == "cron":
        return ""
    return next((name for name in _SUBJECT if old.query.get(name) != new.query.get(name)), "")


def plan(old: Loaded | None, new: Loaded) -> Plan:
    """Return what changing from the old configuration to the new one does."""
    after = carry_over(old, new)
    names = {feed.name: feed.display_name for feed in (*(old.feeds if old else ()), *after.feeds)}
    was, will = _items(old, names) if old else {}, _items(after, names)
    refused = set(new.refused)
    return Plan(
        add=tuple(sorted(name for name in will.keys() - was.keys() if name not in refused)),
        replace=tuple(sorted(name for name in will.keys() & was.keys() if will[name] != was[name])),
        remove=tuple(sorted(was.keys() - will.keys())),
        keep=tuple(sorted(n for n in will.keys() & was.keys() if will[n] == was[n] and n not in refused)),
        refused=tuple(sorted(refused)),
        notes=tuple(_notes(old, after, sorted(refused & (was.keys() & will.keys() | _projects(after))))) if old else (),
    )


def _items(loaded: Loaded, names: Mapping[str, str]) -> dict[str, Any]:
    """Return every item by the name that people see; `names` has those of the feeds."""
    # the revision is of what runs need alone
    found: dict[str, Any] = {
        item("workflow", name): (flow.rev, flow.share_with, flow.description) for name, flow in loaded.workflows.items()
    }
    found |= {item("trigger", trigger.name): _without_rev(trigger) for trigger in loaded.triggers}
    found |= {
        item("feed", names[feed.name]): (_without_history(feed), loaded.queries.get(feed.name)) for feed in loaded.feeds
    }
    found |= {item("poller", name): _job_with_parts(job, found) for name, job in loaded.jobs.items()}
    found |= {item("agent", name): accounts for name, accounts in loaded.agents.items()}
    found |= {item("integration", name): account for name, account in loaded.integrations.items()}
    return found | {item("section", name): getattr(loaded.settings, name) for name in Settings.model_fields}


def _projects(loaded: Loaded) -> set[str]:
    """The projects of trackers. They are no items of their own: what they do is in their trigger and their feed."""
    return {item("project", project.name) for tracker in loaded.trackers.values() for project in tracker.projects}


def _job_with_parts(job: Job, found: dict[str, Any]) -> list[Any]:
    """Return a job with its feed, triggers and workflows, which are removed from `found`: all are one item."""
    parts = [item(kind, name) for kind in ("workflow", "trigger") for name in (job.id, job.alert)]
    return [job, *(found.pop(part, None) for part in (item("feed", job.feed), *parts))]


def _without_rev(trigger: Trigger) -> Trigger:
    return msgspec.structs.replace(trigger, workflow_rev="", routes=dict.fromkeys(trigger.routes, ""))


def _without_history(feed: Feed) -> Feed:
    return msgspec.structs.replace(feed, inherits="", label="")


def _notes(old: Loaded, after: Loaded, refused: Iterable[str]) -> Iterable[str]:
    before = {feed.name: feed for feed in old.feeds}
    now = {feed.name: feed for feed in after.feeds}
    yield from _cursor_notes(old, after, before, now)
    for feed in (feed for name, feed in now.items() if name in before):
        earlier, shown = before[feed.name], feed.display_name
        if shown != earlier.display_name:
            yield f"{shown}: the feed that was shown as {earlier.display_name}; its cursor and memory stay"
        if earlier.identity != feed.identity:
            yield _identity_note(shown, earlier, feed)
        if what := _cursor_difference(earlier, feed):
            fix = "harken triggers reset --cursor starts over"
            yield f"{shown}: the new {what} is read with the cursor and memory of the old one; {fix}"
    for name in refused:
        yield f"{name}: refused, so its old version stays"


def _cursor_notes(old: Loaded, after: Loaded, before: Mapping[str, Feed], now: Mapping[str, Feed]) -> Iterable[str]:
    left = {trigger.name: trigger.feed for trigger in old.triggers}
    for trigger in after.triggers:
        earlier, later = before.get(left.get(trigger.name, "")), now.get(trigger.feed)
        if earlier is None or later is None or earlier.name == later.name:
            continue
        if later.name not in before and not _cursor_difference(earlier, later) and earlier.identity != later.identity:
            yield _identity_note(trigger.name, earlier, later)
        if later.name in before:
            yield f"{trigger.name}: listens to {later.display_name} from now on, which has its own cursor"
        elif what := _cursor_difference(earlier, later):
            yield f"{trigger.name}: the new {what} starts a new cursor"
        elif later.inherits != earlier.name:
            heir_of = before[later.inherits].display_name
            yield f"{trigger.name}: goes on with the cursor of {heir_of}"


def _identity_note(what: str, earlier: Feed, later: Feed) -> str:
    change = f"identity changes from {earlier.identity} to {later.identity}"
    return f"{what}: {change}; what was read before is not looked at again, what comes now is named anew"
