"""PagerDuty and Slack for a page that is followed: fakes on loopback, and the accounts that name them."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager

from harken.clock import SystemClock
from harken.testing.fakes.pagerduty import PagerDuty
from harken.testing.fakes.slack import TOKEN, FakeSlack

__all__ = ["OnCall", "on_call"]

CHANNEL = "#oncall"
ACCOUNTS = """\
integrations:
  pagerduty:
    {{kind: pagerduty, token: "${{PAGERDUTY_TOKEN}}", base_url: "{pagerduty}", allow_private_networks: true}}
  slack:
    {{kind: slack, token: "${{SLACK_BOT_TOKEN}}", base_url: "{slack}", allow_private_networks: true}}
"""
SECONDS = 120


class OnCall:
    """What the section of the README is about. Harken's directory needs `settings`, its processes `environ`."""

    def __init__(self) -> None:
        self._pagerduty = PagerDuty(SystemClock())
        self._slack = FakeSlack(SystemClock())
        self._slack.channel("oncall", id=CHANNEL)
        self.environ = {"PAGERDUTY_TOKEN": "personal-key", "SLACK_BOT_TOKEN": TOKEN}
        self.settings = ""

    async def serve(self, stack: AsyncExitStack) -> None:
        pagerduty = await stack.enter_async_context(self._pagerduty.serve())
        slack = await stack.enter_async_context(self._slack.serve())
        self.settings = ACCOUNTS.format(pagerduty=pagerduty, slack=slack)

    def happen(self) -> None:
        """Two incidents, once Harken has read, and in a later second: before its start line nothing fires."""
        until = time.monotonic() + SECONDS
        while not self._pagerduty.seen or int(time.time()) <= int(self._pagerduty.seen[0].at):
            assert time.monotonic() < until, "Harken has not read"
            time.sleep(0.05)
        self._pagerduty.trigger("answers 502", service="PSVC1", urgency="high")
        self._pagerduty.trigger("is slow", service="PSVC2", urgency="low")

    @property
    def said(self) -> list[str]:
        """The messages in the channel."""
        return [message.fields["text"] for message in self._slack.channels[CHANNEL].messages.values()]


@contextmanager
def on_call() -> Iterator[OnCall]:
    """Serve until the block ends."""
    standing, ready, over = OnCall(), threading.Event(), threading.Event()

    async def serve() -> None:
        async with AsyncExitStack() as stack:
            await standing.serve(stack)
            ready.set()
            await asyncio.to_thread(over.wait)

    thread = threading.Thread(target=asyncio.run, args=(serve(),), daemon=True)
    thread.start()
    assert ready.wait(60)
    try:
        yield standing
    finally:
        over.set()
        thread.join(60)
