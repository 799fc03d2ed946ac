"""Random histories: whatever is told late, twice, out of order or by a copy that is behind, a wish is one run."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from harken.errors import HarkenError
from harken.runs import Dead, Finished
from harken.testing import VirtualClock, virtual
from harken.testing.fakes.github import Issue
from harken.testing.fakes.server import Answer
from harken.ticket import Notice
from tests.soak import longer
from tests.tickets.test_tracker_feed_source import ran
from tests.tickets.test_webhooks import told
from tests.tickets.tracked import Tracked, github, settings

TICKETS = 12
STEPS = 90


class History:
    """Things that may happen to tickets, none of which is the wish for another run."""

    def __init__(self, it: Tracked, seed: int) -> None:
        self.it = it
        self.random = Random(seed)
        self.issues: list[Issue] = []
        # webhooks that are on their way, in any order
        self.sent: list[Notice] = []

    def tell_of(self, issue: Issue) -> None:
        """A webhook shows the issue as it is now, and comes some time."""
        self.sent.append(told(issue))

    async def step(self) -> None:
        acts = (
            self.open,
            self.comment,
            self.label_otherwise,
            self.lag,
            self.deliver,
            self.deliver,
            self.wait,
            self.wait,
            self.begin,
            self.end,
            self.restart,
            self.fail,
        )
        await self.random.choice(acts)()

    async def open(self) -> None:
        if len(self.issues) < TICKETS:
            issue = self.it.hub.open(late=self.random.choice((0, 0, 90)))
            self.issues.append(issue)
            self.tell_of(issue)
            for label in self.random.sample(("fix", "scan", "urgent", "ui"), 2):
                self.it.hub.label(issue, label)
                self.tell_of(issue)
            if not {"fix", "scan"} & set(issue.labels):
                self.it.hub.label(issue, "fix")
                self.tell_of(issue)

    async def comment(self) -> None:
        if self.issues:
            issue = self.random.choice(self.issues)
            self.it.hub.comment(issue, "any news?")
            self.tell_of(issue)

    async def label_otherwise(self) -> None:
        if self.issues:
            issue = self.random.choice(self.issues)
            if "later" in issue.labels:
                self.it.hub.unlabel(issue, "later")
            else:
                self.it.hub.label(issue, "later")
            self.tell_of(issue)

    async def lag(self) -> None:
        if self.issues:
            self.it.hub.lag(self.random.choice(self.issues), self.random.choice((5, 60, 600)))

    async def deliver(self) -> None:
        """Deliver a webhook, sometimes for a second time, sometimes without its ticket."""
        if not self.sent:
            return
        notice = self.random.choice(self.sent)
        if self.random.random() < 0.7:
            self.sent.remove(notice)
        try:
            await self.it.tell(notice)
        except HarkenError:
            # GitHub never sends it again
            return

    async def wait(self) -> None:
        await self.it.cycle(self.random.choice((1, 5, 30, 70, 400)))

    async def begin(self) -> None:
        self.it.hub.answers.clear()
        self._all_copies_catch_up()
        await self.it.begin_runs()
        for issue in self.issues:
            self.tell_of(issue)

    async def end(self) -> None:
        self.it.hub.answers.clear()
        self._all_copies_catch_up()
        await self.it.end_runs(self.random.choice((Finished(), Dead(error="no"))))
        for issue in self.issues:
            self.tell_of(issue)

    async def restart(self) -> None:
        if self.random.random() < 0.5:
            await self.it.crash()
        else:
            await self.it.stop()
        await self.it.start()

    async def fail(self) -> None:
        self.it.hub.answers.extend([Answer(status=502, body=b"{}")] * self.random.randrange(3))

    def _all_copies_catch_up(self) -> None:
        # what writes the labels reads the ticket before: that it copes with old copies is tested with it
        for issue in self.issues:
            issue.older = None


@pytest.mark.parametrize("seed", range(longer(__file__, 4)))
@virtual
async def test_a_wish_is_one_run(clock: VirtualClock, tmp_path: Path, seed: int) -> None:
    async with github(clock, tmp_path, settings(webhook=True, polled=bool(seed % 4))) as it:
        await it.start()
        history = History(it, seed)
        for _ in range(STEPS):
            await history.step()
        it.hub.answers.clear()
        await it.cycle(1000)
        await history.begin()
        await it.cycle(200)
        await history.end()
        for notice in history.sent:
            await it.tell(notice)
        await it.cycle(1000)
        assert await ran(it) == {str(issue.number): 1 for issue in history.issues}
        for issue in history.issues:
            assert "harken:done" in issue.labels
