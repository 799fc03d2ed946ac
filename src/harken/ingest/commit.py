"""Every event passes here: recall, recognise, match, commit, and match again if the rules changed meanwhile."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Protocol

import msgspec
import structlog

from harken.clock import Clock
from harken.errors import HarkenError, LeaseLost, RetryLater
from harken.event import Event, Verdict
from harken.feed import Trigger, TriggerState
from harken.ingest.event_traceparents import with_context
from harken.match import Read, Rules, Sighting, compile_rules, match, memory_id, recognise
from harken.runs import Claimed
from harken.store import Commit, Committed, Definitions, EarlyEnd, Entry, Feeds, Intent, Listeners, Opened, Stale
from harken.tracing import NO_TRACER, Tracer

__all__ = ["MOST_REMATCHES", "CommitRequest", "Committer", "Executor", "RuleCache", "check_starts"]

log = structlog.get_logger("harken.ingest")


MOST_REMATCHES = 20
"""After so many commits in a row that came too late for the rules, the read or delivery is tried again later."""


class RuleCache:
    """The compiled rules of each feed, as this process last learnt them."""

    def __init__(self, store: Feeds) -> None:
        self._store = store
        self._rules: dict[str, Rules] = {}
        # known from opening the definitions, and compiled when first needed
        self._listeners: dict[str, Listeners] = {}
        # no start line is later; a trigger that had it may be gone
        self._latest_start = datetime.min.replace(tzinfo=UTC)

    def get(self, feed: str) -> Rules | None:
        """The rules as last learnt, without asking the store."""
        return self._rules.get(feed)

    def revision(self, feed: str) -> int | None:
        """The revision of the rules as last learnt, compiled or not; None if they are not known."""
        rules = self._rules.get(feed) or self._listeners.get(feed)
        return rules.revision if rules is not None else None

    def start_lines_after(self, limit: datetime) -> dict[str, datetime]:
        """The start lines later than this, by trigger. Of 100,000 all are looked at only if one may be."""
        if self._latest_start <= limit:
            return {}
        self._latest_start = datetime.min.replace(tzinfo=UTC)
        lines = dict(self._start_lines())
        self._note_starts(lines.values())
        return {trigger: line for trigger, line in lines.items() if line > limit}

    def _note_starts(self, lines: Iterable[datetime]) -> None:
        self._latest_start = max([self._latest_start, *lines])

    def _start_lines(self) -> Iterator[tuple[str, datetime]]:
        for rules in self._rules.values():
            yield from ((rule.name, rule.start_line) for rule in rules.rules)
        for listeners in self._listeners.values():
            yield from ((state.name, state.start_line) for _, state in listeners.triggers)

    async def rules(self, feed: str) -> Rules:
        rules = self._rules.get(feed)
        if rules is None and feed in self._listeners:
            rules = self._rules[feed] = compile_rules(self._listeners.pop(feed))
        return rules or await self.learn(feed)

    async def learn(self, feed: str) -> Rules:
        """Read the rules from the store and compile them."""
        listeners = await self._store.listeners(feed)
        opened = self._listeners.pop(feed, None)
        if opened is not None and opened.revision > listeners.revision:
            listeners = opened
        self._note_starts(state.start_line for _, state in listeners.triggers)
        rules = self._rules[feed] = compile_rules(listeners, self._rules.get(feed))
        return rules

    def forget(self, feed: str) -> None:
        """The feed is gone, or has to be learnt anew."""
        self._rules.pop(feed, None)
        self._listeners.pop(feed, None)

    def keep(self, is_here: Callable[[str], bool]) -> None:
        """Forget the rules of all other feeds; they are learnt when somebody needs them."""
        self._rules = {name: rules for name, rules in self._rules.items() if is_here(name)}
        self._listeners = {name: found for name, found in self._listeners.items() if is_here(name)}

    def adopt(self, definitions: Definitions, opened: Opened) -> None:
        """Keep rules that are up to date, and take the others from the definitions that were just opened."""
        self._rules = {
            name: rules
            for name, rules in self._rules.items()
            if name in opened.feeds and rules.revision >= opened.feeds[name].revision
        }
        self._note_starts(state.start_line for state in opened.triggers.values())
        triggers: dict[str, list[tuple[Trigger, TriggerState]]] = {}
        shared: set[str] = set()
        for trigger in sorted(definitions.triggers, key=lambda trigger: trigger.name):
            triggers.setdefault(trigger.feed, []).append((trigger, opened.triggers[trigger.name]))
            # the state of a trigger that listens to several feeds differs between them: the store tells
            shared.update(trigger.feeds[1:])
        self._listeners = {
            feed.name: Listeners(
                revision=opened.feeds[feed.name].revision, feed=feed, triggers=triggers.get(feed.name, ())
            )
            for feed in definitions.feeds
            if feed.name not in self._rules and feed.name not in shared
        }


class Executor(Protocol):
    """Executes runs: takes those that a commit hands over, and looks for others when nudged."""

    holder: str

    def reserve(self, wanted: int) -> int: ...

    def unreserve(self, count: int) -> None: ...

    def accept(self, claimed: Sequence[Claimed]) -> None: ...

    def nudge(self) -> None: ...

    def find_end(self, feed: str, trigger: str, event: Event, intent: Intent) -> EarlyEnd | None:
        """How the run of this intent will end, if it can be executed before it is committed."""
        ...

    def note_over(self, claimed: Claimed, end: EarlyEnd) -> None:
        """A commit has inserted this run as over."""
        ...


class CommitRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A page to commit. `commit` has everything of it but what matching adds: revision, entries and release.

    `starts` are those of the rules when the read began; `ends_first`: this is the last page of a first read.
    """

    events: Sequence[Event]
    read: Read
    commit: Commit
    starts: Mapping[str, tuple[int, datetime]] = {}
    ends_first: bool = False


class Committer:
    """Makes one commit of a batch. What the store refuses is dead-lettered alone and never blocks its feed."""

    def __init__(self, store: Feeds, rule_cache: RuleCache, executor: Executor, clock: Clock) -> None:
        self._store = store
        self.rule_cache = rule_cache
        self._executor = executor
        self._clock = clock
        self.committed = 0
        self.on_commit: Callable[[str, Commit, Committed], None] | None = None
        self.on_refused: Callable[[], None] = lambda: None
        self.tracer: Tracer = NO_TRACER

    async def recognise(self, rules: Rules, events: Sequence[Event]) -> list[Sighting]:
        """The events that the feed does not remember yet."""
        identity = rules.feed.identity
        known = await self._store.recall(rules.feed.name, [memory_id(event, identity) for event in events])
        return recognise(events, known, identity)

    async def take(self, request: CommitRequest, rules: Rules, sightings: list[Sighting] | None = None) -> Committed:
        """Commit the page; when this returns, everything in it is safe. `sightings` were recognised by `rules`."""
        known_by = rules
        feed = request.commit.feed

        async def match_page(rules: Rules) -> Commit:
            check_starts(feed, request.starts, rules)
            found = sightings
            if found is None or rules is not known_by:
                found = await self.recognise(rules, request.events)
            return msgspec.structs.replace(
                request.commit,
                revision=rules.revision,
                entries=match(found, rules, request.read),
                # also of triggers that were created during the read
                release=_flood_limits(rules) if request.ends_first else {},
            )

        return await self.commit_matched(feed, rules, match_page)

    async def push(self, feed: str, events: Sequence[Event], read: Read) -> Committed:
        """Commit events that were pushed to us."""

        async def match_pushed(rules: Rules) -> Commit:
            identity = rules.feed.identity
            if identity == "transition":
                sightings = await self.recognise(rules, events)
            else:
                # the commit itself finds the repeats, so nothing has to be recalled
                sightings = recognise(events, {}, identity)
            return Commit(feed=feed, revision=rules.revision, entries=match(sightings, rules, read))

        rules = self.rule_cache.get(feed) or await self.rule_cache.rules(feed)
        return await self.commit_matched(feed, rules, match_pushed)

    async def commit_matched(self, feed: str, rules: Rules, matched: Callable[[Rules], Awaitable[Commit]]) -> Committed:
        """Commit what `matched` makes of the rules, and match again with newer rules while the store says Stale."""
        if self.tracer.on:
            return await self._commit_traced(feed, rules, matched)
        for _ in range(MOST_REMATCHES):
            answer = await self.commit(await matched(rules))
            if isinstance(answer, Committed):
                return answer
            rules = await self.rule_cache.learn(feed)
        raise _changed_too_often(feed)

    async def _commit_traced(self, feed: str, rules: Rules, matched: Callable[[Rules], Awaitable[Commit]]) -> Committed:
        with self.tracer.span("commit", feed=rules.feed.display_name) as span:
            for _ in range(MOST_REMATCHES):
                commit = await matched(rules)
                answer = await self.commit(with_context(commit, self.tracer, span))
                if isinstance(answer, Committed):
                    span.dropped = not commit.entries
                    span.note(events=len(commit.entries), runs=sum(map(_runs_of, answer.verdicts)))
                    return answer
                rules = await self.rule_cache.learn(feed)
            raise _changed_too_often(feed)

    async def commit(self, commit: Commit) -> Committed | Stale:
        """Commit once what was matched, and hand the runs that it starts to the executor."""
        executor = self._executor
        commit, wanted, ends = self._with_ends(commit)
        reserved = executor.reserve(wanted - ends) if wanted > ends else 0
        if reserved:
            commit = msgspec.structs.replace(commit, claim=reserved, holder=executor.holder)
        answer: Committed | Stale | None = None
        try:
            answer = await self._write(commit)
        finally:
            claimed = answer.claimed if isinstance(answer, Committed) else ()
            if reserved > len(claimed):
                executor.unreserve(reserved - len(claimed))
            if claimed:
                executor.accept(claimed)
        if isinstance(answer, Committed):
            self.committed += len(commit.entries)
            if self.on_commit is not None:
                self.on_commit(commit.feed, commit, answer)
            for run, end in answer.over:
                executor.note_over(run, end)
            if wanted > len(answer.claimed) + len(answer.over):
                executor.nudge()
        return answer

    def _with_ends(self, commit: Commit) -> tuple[Commit, int, int]:
        """The commit with the ends of runs that can be executed before it; how many intents it has, and such ends."""
        rules = self.rule_cache.get(commit.feed)
        names = rules.names if rules is not None and not self.tracer.on else {}
        find_end, change = self._executor.find_end, msgspec.structs.replace
        wanted = ends = 0
        entries: list[Entry] = []
        for entry in commit.entries:
            found: list[Verdict | Intent] = []
            before = ends
            for decision in entry.decisions:
                end: EarlyEnd | None = None
                if type(decision) is Intent:
                    wanted += 1
                    name = "" if entry.again else names.get(decision.trigger, "")
                    end = find_end(commit.feed, name, entry.event, decision) if name else None
                    ends += end is not None
                found.append(decision if end is None else change(decision, end=end))
            entries.append(entry if ends == before else change(entry, decisions=tuple(found)))
        return change(commit, entries=entries) if ends else commit, wanted, ends

    async def _write(self, commit: Commit) -> Committed | Stale:
        try:
            return await self._store.commit(commit)
        except HarkenError:
            raise
        except Exception as error:
            if not commit.entries:
                raise
            return await self._isolate(commit, error)

    async def _isolate(self, commit: Commit, error: Exception) -> Committed | Stale:
        """Find the entry that the store refuses: commit each half without the cursor, and at last the cursor alone."""
        without_cursor: dict[str, Any] = {
            "cursor": msgspec.UNSET,
            "watermark": None,
            "next_due": None,
            "tick": None,
            "done": False,
            "release": {},
            "backfilled": (),
        }
        ids: list[int] = []
        verdicts: list[tuple[Any, ...]] = []
        claimed: list[Claimed] = []
        over: list[tuple[Claimed, EarlyEnd]] = []
        for part in _halves(commit.entries):
            if len(commit.entries) == 1:
                await self._dead_letter(commit.feed, part[0], error)
                ids.append(0)
                verdicts.append(())
                continue
            room = max(0, commit.claim - len(claimed))
            answer = await self._write(msgspec.structs.replace(commit, entries=part, claim=room, **without_cursor))
            if isinstance(answer, Stale):
                return answer
            ids.extend(answer.event_ids)
            verdicts.extend(answer.verdicts)
            claimed.extend(answer.claimed)
            over.extend(answer.over)
        last = await self._write(msgspec.structs.replace(commit, entries=(), claim=0))
        if isinstance(last, Stale):
            return last
        return Committed(event_ids=ids, verdicts=verdicts, claimed=claimed, over=over)

    async def _dead_letter(self, feed: str, entry: Entry, error: Exception) -> None:
        reason = f"the store refused it ({type(error).__name__})"
        rules = self.rule_cache.get(feed)
        self.on_refused()
        log.error("event.refused", feed=rules.feed.display_name if rules else feed, reason=reason)
        await self._store.dead_letter(feed, entry.event, reason)


def check_starts(feed: str, starts: Mapping[str, tuple[int, datetime]], rules: Rules) -> None:
    """Raise LeaseLost if a trigger was reset or moved since a read began: its cursor would undo that."""
    if any(starts.get(uid, now) != now for uid, now in rules.starts.items()):
        raise LeaseLost(f"{feed} was reset or moved during the read")


def _changed_too_often(feed: str) -> RetryLater:
    return RetryLater(f"the rules of {feed} changed {MOST_REMATCHES} times while its events were matched")


def _runs_of(verdicts: Sequence[Verdict]) -> int:
    return sum(bool(verdict.run_id) for verdict in verdicts)


def _flood_limits(rules: Rules) -> dict[str, int]:
    return {rule.uid: rule.trigger.flood_limit for rule in rules.rules if rule.trigger.flood_limit > 0}


def _halves(entries: Sequence[Entry]) -> list[Sequence[Entry]]:
    middle = len(entries) // 2
    return [part for part in (entries[:middle], entries[middle:]) if part]
