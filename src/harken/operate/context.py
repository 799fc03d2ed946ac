"""What every operation works with: the store, the engine if one runs, and the configuration as last loaded."""

from __future__ import annotations

import copy
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec

from harken.clock import Clock
from harken.errors import Misconfigured, NotFound, Refused
from harken.feed import INTERNAL, Feed, FeedState, Trigger, TriggerState
from harken.operate.engine_protocol import Engine
from harken.operate.principal import OPERATOR, Principal
from harken.operate.progress import Report, ignore
from harken.runs import Run, Workflow
from harken.store import Definitions, Store
from harken.suggest import suggest_fix
from harken.timings import Timings

if TYPE_CHECKING:
    from harken.config.loaded import Loaded

__all__ = ["LISTED", "Context"]

LISTED = ("workflow", "poller", "tracker", "project", "row")
"""The kinds of items that the list of triggers shows by their name while they are refused."""

SORTED_ANEW = 100
"""From so many changed names on, all are sorted: each that is put in alone moves those behind it."""


class _Current:
    """The configuration as last loaded, by name: built once, because lists look it up for every row."""

    def __init__(self, loaded: Loaded | None) -> None:
        self._loads = 0
        self._starts: tuple[int, frozenset[tuple[str, str]]] = (0, frozenset())
        self.load(loaded)

    def load(self, loaded: Loaded | None) -> None:
        self.loaded = loaded
        self.feeds = {feed.name: feed for feed in loaded.feeds} if loaded else {}
        self.triggers = {trigger.name: trigger for trigger in loaded.triggers} if loaded else {}
        self._sorted: list[str] | None = None
        self._loads += 1

    def load_part(self, loaded: Loaded, part: Definitions) -> None:
        assert part.only is not None
        self.loaded = loaded
        for name in part.only.feeds:
            self.feeds.pop(name, None)
        self.feeds.update((feed.name, feed) for feed in part.feeds)
        defined = {trigger.name: trigger for trigger in part.triggers}
        if self._sorted is not None:
            self._sorted = _change_sorted(self._sorted, gone=part.only.triggers - defined.keys(), there=defined)
        for name in part.only.triggers:
            self.triggers.pop(name, None)
        self.triggers.update(defined)
        self._loads += 1

    def starts(self, owner: str, workflow: str) -> bool:
        """Whether a trigger of the owner may start the workflow. To look through all triggers each time takes long."""
        own = self.triggers.get(workflow)
        if own is not None and own.owner == owner and workflow in own.workflows:
            return True
        loads, known = self._loads, self._starts
        if known[0] != loads:
            # drafts are checked in a thread, while others load; a workflow of the trigger's own name was found above
            every = list(self.triggers.values())
            pairs = frozenset((one.owner, name) for one in every for name in one.workflows if name != one.name)
            known = self._starts = (loads, pairs)
        return (owner, workflow) in known[1]

    def trigger_names(self) -> list[str]:
        """The names in their order, which takes long for 100,000."""
        if self._sorted is None:
            self._sorted = sorted(self.triggers)
        return self._sorted


class _FeedsSeen(Mapping[str, Feed]):
    """The feeds without labels that are the names of triggers which the caller may not see: triggers that read the same
    share one feed, whoever they belong to, and it is called like one of them."""

    def __init__(self, feeds: Mapping[str, Feed], sees: Callable[[str], bool]) -> None:
        self._feeds = feeds
        self._sees = sees

    def __getitem__(self, name: str) -> Feed:
        feed = self._feeds[name]
        return feed if not feed.label or self._sees(feed.label) else msgspec.structs.replace(feed, label="")

    def __iter__(self) -> Iterator[str]:
        return iter(self._feeds)

    def __len__(self) -> int:
        return len(self._feeds)


def _change_sorted(names: list[str], *, gone: Collection[str], there: Collection[str]) -> list[str]:
    """The names without those that are gone, and with those that are there; whoever has the list keeps it as it is."""
    if len(gone) + len(there) > SORTED_ANEW:
        return sorted({*names, *there}.difference(gone))
    found = list(names)
    for name in gone:
        at = bisect_left(found, name)
        if at < len(found) and found[at] == name:
            del found[at]
    for name in there:
        at = bisect_left(found, name)
        if at == len(found) or found[at] != name:
            found.insert(at, name)
    return found


class Context:
    """Looks things up by name, and raises NotFound with the nearest names when there is no such thing."""

    def __init__(
        self, store: Store, engine: Engine | None, loaded: Loaded | None, clock: Clock, timings: Timings
    ) -> None:
        self.store = store
        self.timings = timings
        self.clock = clock
        self.principal = OPERATOR
        self.report: Report = ignore
        self._engine = engine
        self._current = _Current(loaded)

    @property
    def loaded(self) -> Loaded | None:
        return self._current.loaded

    @loaded.setter
    def loaded(self, loaded: Loaded | None) -> None:
        self._current.load(loaded)

    def use_part(self, loaded: Loaded, part: Definitions) -> None:
        """Have a configuration of which only this part has changed."""
        self._current.load_part(loaded, part)

    def acting_as(self, principal: Principal, report: Report = ignore) -> Context:
        """The same for one call by somebody else, who is told how far it is; a new configuration is that of both."""
        found = copy.copy(self)
        found.principal = principal
        found.report = report
        return found

    @property
    def engine(self) -> Engine | None:
        return self._engine

    def running(self) -> Engine:
        """The running engine; raises Refused when no controller runs."""
        if self._engine is None:
            raise Refused("this needs a running controller", fix="Start one with: harken start")
        return self._engine

    async def sync_rows(self) -> None:
        """Apply the rows that were changed, if an engine runs here."""
        if self._engine is not None:
            await self._engine.sync_rows()

    def nudge(self) -> None:
        if self._engine is not None:
            self._engine.nudge()

    def feeds(self) -> Mapping[str, Feed]:
        return _FeedsSeen(self._current.feeds, self._sees) if self.principal.limited else self._current.feeds

    def _sees(self, trigger: str) -> bool:
        """Whether the caller may see the trigger."""
        from harken.operate.owner_access import Ownership

        return not self.principal.limited or Ownership(self, self.principal).sees(trigger)

    def triggers(self) -> Mapping[str, Trigger]:
        return self._current.triggers

    def trigger_names(self) -> Sequence[str]:
        """The names of the configured triggers, in their order."""
        return self._current.trigger_names()

    def starts(self, owner: str, workflow: str) -> bool:
        """Whether a trigger of the owner may start the workflow."""
        return self._current.starts(owner, workflow)

    def workflows(self) -> Mapping[str, Workflow]:
        return self.loaded.workflows if self.loaded else {}

    def workflow(self, name: str) -> Workflow:
        known = self.workflows()
        if name not in known:
            self.refuse_broken(name)
            raise NotFound(f"there is no workflow {name}", fix=suggest_fix(name, known))
        return known[name]

    async def trigger(self, name: str) -> TriggerState:
        for state in await self.store.triggers(names=[name]):
            return state
        if name in self.triggers():
            raise NotFound(
                f"trigger {name} is configured, but no controller has opened it yet", fix="Run: harken start"
            )
        self.refuse_broken(name)
        if self.loaded is not None and name in self.loaded.disabled and self._sees(name):
            raise Refused(
                f"trigger {name} is not enabled", fix=f"Enable it first: harken triggers edit {name} --enable"
            )
        known = {*self.trigger_names(), *(state.name for state in await self.store.triggers())}
        raise NotFound(f"there is no trigger {name}", fix=suggest_fix(name, known))

    def refuse_broken(self, name: str, kinds: Sequence[str] = LISTED) -> None:
        """Raise Misconfigured with the finding when something of this name and of one of these kinds was refused."""
        refused = self.loaded.refused if self.loaded else {}
        found = next((refused[item] for kind in kinds if (item := f"{kind}:{name}") in refused), ())
        if found:
            first = next((finding for finding in found if finding.severity == "error"), found[0])
            place = f"{first.file}:{first.line}:{first.column}"
            said = f"{name} cannot be used as it is written: {place}: {first.message}"
            raise Misconfigured(said, fix=first.fix or "See: harken config check")

    def feed_label(self, id: str) -> str:
        """What people see in place of a feed's id; the id itself for a feed that left the configuration."""
        feed = self.feeds().get(id)
        return feed.display_name if feed is not None else id

    def feed_id(self, name: str) -> str:
        """The id under which the feed is stored. `name` is the id, the label, or a trigger that listens to the feed."""
        if name in self._current.feeds:
            return name
        if name in self._current.triggers and not self._sees(name):
            return name
        labelled = next((id for id, feed in self.feeds().items() if feed.label and feed.label == name), "")
        trigger = self._current.triggers.get(name)
        # the internal feed is the same for all, so none of its listeners may stand for it
        return labelled or (trigger.feed if trigger is not None and trigger.feed != INTERNAL else name)

    async def feed(self, name: str) -> FeedState:
        """The state of a feed by its id."""
        if not await self.store.feeds(names=[name]):
            ids = [state.name for state in await self.store.feeds()]
            known = [shown for id in ids for shown in dict.fromkeys((self.feed_label(id), id))]
            raise NotFound(f"there is no feed {name}", fix=suggest_fix(name, known))
        return await self.store.state(name)

    async def feed_of(self, trigger: str) -> str:
        """The feed a trigger listens to; for one that left the configuration, the feed of its last event."""
        definition = self.triggers().get(trigger)
        if definition is not None:
            return definition.feed
        recent = (await self.store.events(trigger=trigger, limit=1)).items
        return str(recent[0].feed) if recent else ""

    async def run(self, run_id: str) -> Run:
        run = await self.store.run(run_id)
        if run is None:
            raise NotFound(f"there is no run {run_id}", fix="See: harken runs list")
        return run

    async def names(self) -> Mapping[str, str]:
        """Trigger names by uid."""
        return {state.uid: state.name for state in await self.store.triggers()}
