"""Which tools of services an agent has: of the kinds that its jobs are of, with the accounts that it is bound to."""

from __future__ import annotations

import asyncio
import hashlib
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from harken.errors import HarkenError, Malformed, NotFound
from harken.feed import Feed
from harken.operate.job_tools import JOB_TOOLS
from harken.operate.queries import asked
from harken.operate.wording import did_you_mean
from harken.source import Host, Plugin, Tool

if TYPE_CHECKING:
    from harken.config.jobs import Job
    from harken.config.loaded import Account, Loaded

__all__ = ["Offer", "known_agent", "named_offer", "offers"]

# what the APIs of models take as the name of a tool
LONGEST = 64
_OTHER = re.compile(r"[^A-Za-z0-9_-]")
_MARK = 8

PATIENCE_SECONDS = 10.0
AT_ONCE = 4


@dataclass(frozen=True, kw_only=True)
class Offer:
    """A tool with what it is used with."""

    tool: Tool
    summary: str
    account: Account
    host: Host


@dataclass(frozen=True, kw_only=True)
class Reading:
    """What a job of the agent reads, and with what."""

    job: Job
    feed: Feed
    plugin: Plugin
    account: Account


Lend = Callable[["Account"], Host]


def only_agent(loaded: Loaded | None) -> str:
    """The agent that is meant where none is named: the one there is, if there is one only."""
    known = _agents(loaded)
    if len(known) != 1:
        there = f"There are: {', '.join(sorted(known))}" if known else "No job and no agent is configured"
        raise NotFound("no agent is named", fix=there)
    return known.pop()


def _agents(loaded: Loaded | None) -> set[str]:
    return {*loaded.agents, *(job.agent for job in loaded.jobs.values())} if loaded else set()


def known_agent(loaded: Loaded | None, agent: str) -> Loaded:
    """The configuration, if this agent is in it."""
    if not agent:
        raise Malformed("an agent has to be named", fix="Say whose tools these are")
    known = _agents(loaded)
    if loaded is None or agent not in known:
        raise NotFound(f"there is no agent {agent[:LONGEST]}", fix=did_you_mean(agent[:LONGEST], known))
    return loaded


async def offers(loaded: Loaded, agent: str, lend: Lend, *, ask: bool = True) -> tuple[dict[str, Offer], list[str]]:
    """Every tool by its name, and a sentence for each program that could not say which it has."""
    found = _installed(loaded, agent, lend)
    readings = [reading for reading in _readings(loaded, agent) if reading.plugin.discover] if ask else []
    notes = await _discover(readings, loaded, lend, found)
    return found, notes


async def named_offer(loaded: Loaded, agent: str, name: str, lend: Lend) -> Offer | None:
    """The tool of this name. Only programs that may have one of it are asked; what they cannot say is an error."""
    found = _installed(loaded, agent, lend)
    if name in found:
        return found[name]
    asking = [
        reading
        for reading in _readings(loaded, agent)
        if reading.plugin.discover and name.startswith(_clean(f"{reading.job.id}_")[: LONGEST - _MARK - 1])
    ]
    notes = await _discover(asking, loaded, lend, found)
    if notes and name not in found:
        raise NotFound(f"there is no tool {name[:LONGEST]}: {notes[0]}", fix="See: harken config check")
    return found.get(name)


def _installed(loaded: Loaded, agent: str, lend: Lend) -> dict[str, Offer]:
    """The tools that plugins have, whatever their jobs are about: once for each kind."""
    found: dict[str, Offer] = {}
    kinds = {reading.plugin.kind: reading for reading in _readings(loaded, agent)}
    for kind, reading in sorted(kinds.items()):
        for verb, tool in reading.plugin.tools.items():
            wanted = verb if verb.startswith(f"{kind}_") else f"{kind}_{verb}"
            offer = Offer(tool=tool, summary=tool.summary, account=reading.account, host=lend(reading.account))
            found[_free(wanted, f"{kind} {verb}", found)] = offer
    return found


async def _discover(readings: list[Reading], loaded: Loaded, lend: Lend, found: dict[str, Offer]) -> list[str]:
    """Add what the programs say that they offer, under names that begin with the job's; return what went wrong."""
    few = asyncio.Semaphore(AT_ONCE)
    answers = await asyncio.gather(*(_asked(reading, loaded, lend, few) for reading in readings))
    notes: list[str] = []
    for reading, answer in zip(readings, answers, strict=True):
        job = reading.job.id
        if isinstance(answer, HarkenError):
            notes.append(f"the tools of {job} are not known: {answer}")
            continue
        for verb, tool in answer.items():
            summary = f"{tool.summary or verb} (offered by the job {job})"
            offer = Offer(tool=tool, summary=summary, account=reading.account, host=_host(reading, lend))
            found[_free(f"{job}_{verb}", f"{job} {verb}", found)] = offer
    return notes


async def _asked(
    reading: Reading, loaded: Loaded, lend: Lend, few: asyncio.Semaphore
) -> Mapping[str, Tool] | HarkenError:
    query, account, discover = loaded.queries.get(reading.feed.name), reading.account, reading.plugin.discover
    assert discover is not None
    async with few:
        try:
            answer = discover(query, account.model, _host(reading, lend))
            return await asked(answer, loaded, f"the job {reading.job.id}", account, seconds=PATIENCE_SECONDS)
        except HarkenError as error:
            return error


def _host(reading: Reading, lend: Lend) -> Host:
    return replace(lend(reading.account), feed=reading.feed.name, identity=reading.feed.identity)


def _readings(loaded: Loaded, agent: str) -> Iterator[Reading]:
    """What the agent's own jobs read, as far as it may still use their accounts."""
    from harken.services import registry

    plugins, feeds = registry(), {feed.name: feed for feed in loaded.feeds}
    for id in sorted(loaded.jobs):
        job = loaded.jobs[id]
        feed, plugin = feeds.get(job.feed), plugins.get(job.kind)
        if job.agent != agent or feed is None or plugin is None:
            continue
        account = loaded.integrations.get(feed.integration)
        if account is not None and _may_use(loaded, agent, account, plugin):
            yield Reading(job=job, feed=feed, plugin=plugin, account=account)


def _may_use(loaded: Loaded, agent: str, account: Account, plugin: Plugin) -> bool:
    """A job that was edited into an error runs on as it was, but its agent may have lost the account meanwhile."""
    if account.agents is not None and agent not in account.agents:
        return False
    if not loaded.agents:
        return True
    kind = plugin.uses or plugin.kind
    return agent in loaded.agents and loaded.agents[agent].get(kind, kind) == account.name


def _free(wanted: str, whose: str, found: Mapping[str, Offer]) -> str:
    """The name itself, or one with a mark of its own where it is too long or taken."""
    name = _clean(wanted)
    if len(name) <= LONGEST and name not in found and name not in JOB_TOOLS:
        return name
    return f"{name[: LONGEST - _MARK - 1]}_{hashlib.sha256(whose.encode()).hexdigest()[:_MARK]}"


def _clean(name: str) -> str:
    return _OTHER.sub("_", name)
