"""A store of runs that move, and fakes of the platforms with tickets that show it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import datetime
from random import Random
from typing import Any, Protocol

import msgspec

from harken.event import Event, Recorded
from harken.http import Client, HttpSettings
from harken.runs import FINAL, Claimed, Run, RunState, StepRecord
from harken.services.azure_devops import plugin as azure_devops
from harken.services.azure_devops.text import plain_text
from harken.services.github import plugin as github
from harken.services.gitlab import plugin as gitlab
from harken.services.jira import plugin as jira_plugin
from harken.source import Host
from harken.store import Document, MovedRun
from harken.testing import HandClock, VirtualClock
from harken.testing.fakes.azure_devops import AzureDevOps
from harken.testing.fakes.github import GitHub, Issue
from harken.testing.fakes.gitlab import GitLab
from harken.testing.fakes.jira import Jira
from harken.ticket import Ticket
from harken.tickets import LifecycleLabels, ProjectScope, ProjectSettings, Routes, TicketMemories, TrackerSettings
from harken.tickets.projector import Projector
from harken.tickets.write_pace import WritePaces
from tests.services.azure_devops import account as azure_account
from tests.services.github import account as github_account
from tests.services.gitlab import account as gitlab_account
from tests.services.jira import account as jira_account

KEY = b"a key of this installation"
LIFECYCLE = LifecycleLabels()
WRITES = ("POST", "PUT", "PATCH", "DELETE")
ACCEPTED = StepRecord(path="preflight", action="ticket.preflight", status="ok", output={"status": "open"})
"""A look at the ticket that let its run begin."""
_change = msgspec.structs.replace


async def accept(store: Any, *claims: Claimed) -> None:
    """Let these runs begin, as the look at their ticket does."""
    for claim in claims:
        await store.journal(claim.id, claim.token, [ACCEPTED])


class RunBook:
    """As much of a store as a projector needs. `put_fails` is called before each write of a document."""

    def __init__(self, clock: HandClock | VirtualClock) -> None:
        self.clock = clock
        self.stored: dict[tuple[str, str], Document] = {}
        self.on_put: Callable[[], object] = lambda: None
        self._runs: dict[str, Run] = {}
        self._events: dict[int, Recorded] = {}
        self._subjects: dict[str, str] = {}
        self._moves: dict[str, tuple[int, datetime]] = {}
        self._told: dict[str, int] = {}

    def start(self, ticket: str, *, trigger: str = "shop/web", label: str = "fix", status: RunState = "ready") -> str:
        number = len(self._runs) + 1
        now = self.clock.now()
        data = {"label": label, "pipeline": "fix-bug"}
        self._events[number] = Recorded(
            id=number,
            feed="tracker/shop",
            key=f"{ticket}:{number}",
            subject=ticket,
            state="ready:fix",
            type="ticket.ready",
            occurred_at=now,
            recorded_at=now,
            data=data,
        )
        id = f"run{number:04d}"
        self._subjects[id] = ticket
        self._runs[id] = Run(
            id=id,
            trigger=trigger,
            workflow="fix-bug",
            workflow_rev="rev1",
            status="ready",
            event_ids=(number,),
            due_at=now,
            created_at=now,
        )
        self.move(id, status)
        return id

    def move(self, id: str, status: RunState, *records: StepRecord, **changes: Any) -> None:
        run, now = self._runs[id], self.clock.now()
        times: dict[str, Any] = {"finished_at": now} if status in FINAL else {}
        if status == "running" and run.started_at is None:
            times["started_at"] = now
        begins = status == "running" and not run.journal
        journal = (*run.journal, *((ACCEPTED,) if begins else ()), *records)
        self._runs[id] = _change(run, status=status, journal=journal, **(times | changes))
        self._moves[id] = (self._moves.get(id, (0, now))[0] + 1, now)

    def lose(self, id: str) -> None:
        del self._runs[id], self._moves[id]

    async def moved_runs(self, seen: Mapping[str, int] = {}, limit: int = 200) -> Sequence[MovedRun]:
        self._told.update(seen)
        moved = [id for id, (number, _) in self._moves.items() if self._told.get(id, 0) < number]
        return [
            MovedRun(
                id=id,
                seen=self._moves[id][0],
                trigger=self._runs[id].trigger,
                subject=self._subjects[id],
                status=self._runs[id].status,
                since=self._moves[id][1],
            )
            for id in moved[:limit]
        ]

    async def run(self, run_id: str) -> Run | None:
        return self._runs.get(run_id)

    async def event(self, event_id: int) -> Recorded | None:
        return self._events.get(event_id)

    async def get(self, kind: str, name: str) -> Document | None:
        return self.stored.get((kind, name))

    async def put(self, kind: str, name: str, value: Any, *, expect: int | None = None) -> Document | None:
        before = self.stored.get((kind, name))
        revision = before.revision if before else 0
        if expect is not None and expect != revision:
            return None
        self.on_put()
        now = self.clock.now()
        document = Document(kind=kind, name=name, value=value, revision=revision + 1, updated_at=now)
        self.stored[kind, name] = document
        return document

    async def delete(self, kind: str, name: str) -> bool:
        return self.stored.pop((kind, name), None) is not None

    async def documents(self, kind: str) -> Sequence[Document]:
        return [document for (its_kind, _), document in self.stored.items() if its_kind == kind]


class Board(Protocol):
    """A fake and its tickets, by number. Somebody else is leo, or a robot of this name."""

    kind: str
    location: str
    tracker: Any
    fake: Any

    def open(self, *labels: str) -> str: ...

    def label(self, number: str, label: str, by: str = "leo") -> None: ...

    def unlabel(self, number: str, label: str, by: str = "leo") -> None: ...

    def labels(self, number: str) -> set[str]: ...

    def comment(self, number: str, text: str) -> None: ...

    def comments(self, number: str) -> list[str]: ...

    def delete_comments(self, number: str) -> None: ...

    def close(self, number: str) -> None: ...

    def writes(self) -> list[float]:
        """When each write was made."""
        ...

    def on_write(self, call: Callable[[], object]) -> None:
        """Call this before each write."""
        ...


class HubBoard:
    kind, location = "github", "acme/shop"

    def __init__(self, hub: GitHub, host: Host) -> None:
        self.fake = hub
        hub.tokens["app"] = None
        hub.apps["app"] = "harken[bot]"
        hub.repos["acme/shop"].roles["leo"] = "write"
        assert github.tracker is not None
        self.tracker = github.tracker(self.location, github_account(hub, "app"), host)

    def issue(self, number: str) -> Issue:
        return self.fake.repos["acme/shop"].issues[int(number)]

    def open(self, *labels: str) -> str:
        return str(self.fake.open(*labels, by="leo").number)

    def label(self, number: str, label: str, by: str = "leo") -> None:
        self.fake.label(self.issue(number), label, by)

    def unlabel(self, number: str, label: str, by: str = "leo") -> None:
        self.fake.unlabel(self.issue(number), label, by)

    def labels(self, number: str) -> set[str]:
        return set(self.issue(number).labels)

    def comment(self, number: str, text: str) -> None:
        self.fake.comment(self.issue(number), text, by="leo")

    def comments(self, number: str) -> list[str]:
        return [comment["body"] for comment in self.issue(number).comments]

    def delete_comments(self, number: str) -> None:
        self.issue(number).comments = []

    def close(self, number: str) -> None:
        self.fake.close(self.issue(number))

    def writes(self) -> list[float]:
        wrote = [seen for seen in self.fake.seen if seen.method in WRITES and b"viewer" not in seen.body]
        return [seen.at for seen in wrote if seen.status < 300]

    def on_write(self, call: Callable[[], object]) -> None:
        _before_writes(self.tracker, call)


class JiraBoard:
    kind, location = "jira", "TEAM"

    def __init__(self, jira: Jira, host: Host) -> None:
        self.fake = jira
        jira.user("leo", email="leo@example.com")
        jira.user("robot", type="app")
        assert jira_plugin.tracker is not None
        self.tracker = jira_plugin.tracker(self.location, jira_account(jira), host)

    def open(self, *labels: str) -> str:
        key = self.fake.create(creator="leo")
        self.fake.label(key, *labels, by="leo")
        return key

    def label(self, number: str, label: str, by: str = "leo") -> None:
        self.fake.label(number, *sorted({*self.labels(number), label}), by=by)

    def unlabel(self, number: str, label: str, by: str = "leo") -> None:
        self.fake.label(number, *sorted(self.labels(number) - {label}), by=by)

    def labels(self, number: str) -> set[str]:
        return set(self.fake.issue(number).fields["labels"])

    def comment(self, number: str, text: str) -> None:
        self.fake.comment(number, text, author="leo")

    def comments(self, number: str) -> list[str]:
        from harken.services.jira.text import text_in

        return [text_in(comment["text"]) for comment in self.fake.issue(number).comments]

    def delete_comments(self, number: str) -> None:
        self.fake.issue(number).comments = []

    def close(self, number: str) -> None:
        self.fake.move(number, "Done")

    def writes(self) -> list[float]:
        wrote = [seen for seen in self.fake.seen if seen.method in WRITES and "/search" not in seen.path]
        return [seen.at for seen in wrote if seen.status < 300]

    def on_write(self, call: Callable[[], object]) -> None:
        _before_writes(self.tracker, call)


class LabBoard:
    kind, location = "gitlab", "acme/web/shop"

    def __init__(self, lab: GitLab, host: Host) -> None:
        self.fake = lab
        assert gitlab.tracker is not None
        self.tracker = gitlab.tracker(self.location, gitlab_account(lab), host)

    def issue(self, number: str) -> Any:
        return self.fake.projects[self.location][int(number)]

    def open(self, *labels: str) -> str:
        issue = self.fake.open()
        for label in labels:
            self.fake.label(issue, label)
        return str(issue.iid)

    def label(self, number: str, label: str, by: str = "leo") -> None:
        self.fake.label(self.issue(number), label, by)

    def unlabel(self, number: str, label: str, by: str = "leo") -> None:
        self.fake.unlabel(self.issue(number), label, by)

    def labels(self, number: str) -> set[str]:
        return set(self.issue(number).labels)

    def comment(self, number: str, text: str) -> None:
        self.fake.comment(self.issue(number), text)

    def comments(self, number: str) -> list[str]:
        return [note["body"] for note in self.issue(number).happened["notes"] if not note["system"]]

    def delete_comments(self, number: str) -> None:
        self.issue(number).happened["notes"] = []

    def close(self, number: str) -> None:
        self.fake.close(self.issue(number))

    def writes(self) -> list[float]:
        return [seen.at for seen in self.fake.seen if seen.method in WRITES and seen.status < 300]

    def on_write(self, call: Callable[[], object]) -> None:
        _before_writes(self.tracker, call)


class AzureBoard:
    kind, location = "azure_devops", "Shop"

    def __init__(self, fake: AzureDevOps, host: Host) -> None:
        self.fake = fake
        assert azure_devops.tracker is not None
        self.tracker = azure_devops.tracker(self.location, azure_account(fake, "coder"), host)

    def open(self, *labels: str) -> str:
        item = self.fake.create()
        if labels:
            self.fake.tag(item, *labels)
        return str(item.id)

    def label(self, number: str, label: str, by: str = "leo") -> None:
        self.fake.tag(self.fake.items[int(number)], label, by=by)

    def unlabel(self, number: str, label: str, by: str = "leo") -> None:
        self.fake.untag(self.fake.items[int(number)], label, by=by)

    def labels(self, number: str) -> set[str]:
        tags = self.fake.items[int(number)].fields.get("System.Tags", "")
        return {tag.strip() for tag in tags.split(";") if tag.strip()}

    def comment(self, number: str, text: str) -> None:
        self.fake.comment(self.fake.items[int(number)], text)

    def comments(self, number: str) -> list[str]:
        shown = [one["text"] for one in self.fake.items[int(number)].comments if not one.get("isDeleted")]
        return [plain_text(text) for text in shown]

    def delete_comments(self, number: str) -> None:
        for one in self.fake.items[int(number)].comments:
            one["isDeleted"] = True

    def close(self, number: str) -> None:
        self.fake.move(self.fake.items[int(number)], "Closed")

    def writes(self) -> list[float]:
        wrote = [seen for seen in self.fake.seen if seen.method in WRITES and "wiql" not in seen.path]
        return [seen.at for seen in wrote if seen.status < 300]

    def on_write(self, call: Callable[[], object]) -> None:
        _before_writes(self.tracker, call)


VERBS = ("swap_labels", "comment", "edit_comment", "transition")


def _before_writes(tracker: Any, call: Callable[[], object]) -> None:
    """Call this before and after each write: a process may end in between."""
    for name in VERBS:
        plain = getattr(type(tracker), name)

        async def watched(*args: Any, _plain: Any = plain, **options: Any) -> Any:
            call()
            answer = await _plain(tracker, *args, **options)
            call()
            return answer

        setattr(tracker, name, watched)


_KINDS: Mapping[str, tuple[Any, Any]] = {
    "github": (GitHub, HubBoard),
    "gitlab": (GitLab, LabBoard),
    "jira": (Jira, JiraBoard),
    "azure_devops": (AzureDevOps, AzureBoard),
}
KINDS = tuple(_KINDS)


@asynccontextmanager
async def boards(clock: HandClock | VirtualClock, *kinds: str) -> AsyncIterator[list[Any]]:
    """Serve fakes of these kinds."""
    client = Client(clock, settings=HttpSettings(total_seconds=30.0))
    host = Host(http=client, clock=clock, random=Random(1), allow_private=True)
    made: list[Any] = []
    async with AsyncExitStack() as serving:
        for kind in kinds:
            fake_of, board_of = _KINDS[kind]
            fake = fake_of(clock)
            await serving.enter_async_context(fake.serve())
            made.append(board_of(fake, host))
        yield made
    await client.close()


def settings_of(board: Board, name: str = "shop", **changes: Any) -> TrackerSettings:
    project = ProjectSettings(
        name="web",
        location=board.location,
        scope=ProjectScope(name="web"),
        routes=Routes(by_label={"fix": "fix-bug"}),
    )
    plain = TrackerSettings(
        name=name, kind=board.kind, account=f"{name}-account", locations=(board.location,), projects=(project,)
    )
    return _change(plain, **changes)


class World:
    """One board with a store and a projector, which can be killed and started again."""

    def __init__(self, clock: HandClock | VirtualClock, *boards: Board, **settings: Any) -> None:
        self.clock = clock
        self.store: Any = RunBook(clock)
        self.board = boards[0]
        names = ["shop", *(f"shop{number}" for number in range(2, len(boards) + 1))]
        self.boards = dict(zip(names, boards, strict=True))
        self.settings = {name: settings_of(board, name, **settings) for name, board in self.boards.items()}
        self.alerts: list[Event] = []
        self.restart()

    def restart(self, paces: WritePaces | None = None) -> None:
        async def announce(event: Event) -> None:
            self.alerts.append(event)

        self.projector = Projector(
            self.store,
            lambda name: {self.boards[name].location: self.boards[name].tracker},
            lambda: self.settings,
            self.clock,
            KEY,
            paces=paces,
            announce=announce,
        )

    async def ticket(self, number: str, board: Board | None = None) -> Ticket:
        found: Ticket | None = await (board or self.board).tracker.get(number)
        assert found is not None
        return found

    async def claim(self, number: str, **options: Any) -> str:
        """Start a run for the ticket."""
        return str(self.store.start((await self.ticket(number)).id, **options))

    async def settle(self, seconds: float = 30.0) -> None:
        """Let the projector work for so long."""
        until = self.clock.monotonic() + seconds
        while True:
            wait = await self.projector.project()
            if self.clock.monotonic() >= until:
                return
            await self.clock.sleep(max(0.1, min(wait, until - self.clock.monotonic())))

    def lifecycle(self, number: str) -> set[str]:
        """Our labels on the ticket."""
        return {label for label in self.board.labels(number) if not LIFECYCLE.others([label])}

    async def memory(self, number: str) -> Any:
        return await TicketMemories(self.store, "shop").get((await self.ticket(number)).id)
