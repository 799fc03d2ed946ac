"""Retention goes in slices, and leaves the store to others between them; refused webhooks reach the audit log."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import msgspec
import pytest
import structlog

from harken.app.housekeeping import audit_unverified, repeat_slices
from harken.app.lost_event_alerts import LedgerAlerts
from harken.errors import StoreUnavailable
from harken.ingest.refused_webhooks import Refusals
from harken.ingest.webhook import Webhooks
from harken.store import Store
from harken.testing import HandClock, VirtualClock, virtual
from tests.services.whole import running, write
from tests.timings import LONG_NAPS

NAPS = msgspec.structs.replace(LONG_NAPS, housekeeping_round=5.0)


class Resting(HandClock):
    def __init__(self) -> None:
        super().__init__()
        self.rests: list[float] = []

    async def sleep(self, seconds: float) -> None:
        self.rests.append(round(seconds, 6))
        await super().sleep(seconds)


async def test_after_each_slice_others_have_as_long_as_it_took() -> None:
    clock, slices = Resting(), [(0.25, 7), (0.5, 3), (0.125, 0), (9.0, 9)]

    async def slice() -> int:
        seconds, rows = slices.pop(0)
        clock.advance(seconds)
        return rows

    assert await repeat_slices(slice, clock) == 10
    assert clock.rests == [0.25, 0.5]
    assert slices == [(9.0, 9)]


HOOK = """\
name: hook
trigger: {webhook: {id: shop, secret: s3cret, id_field: id}}
steps:
  - {id: sum, action: transform, set: {text: done}}
"""


async def send_unsigned(webhooks: Webhooks, sender: str = "203.0.113.7") -> int:
    """Returns the status of the answer."""
    scope = {
        "path": "/webhooks/generic/shop",
        "method": "POST",
        "headers": [(b"x-signature-256", b"sha256=w0rd")],
        "query_string": b"",
        "client": (sender, 4711),
    }
    statuses: list[int] = []

    async def receive() -> Any:
        return {"type": "http.request", "body": b'{"id": "b0dy"}'}

    async def send(message: Any) -> None:
        statuses.append(message.get("status", 0))

    await webhooks(scope, receive, send)
    return statuses[0]


@virtual
async def test_refused_webhooks_are_one_line_a_minute_in_the_audit_log(clock: VirtualClock, tmp_path: Path) -> None:
    write(tmp_path, "models: {default: echo}\n", hook=HOOK)
    async with running(tmp_path, clock, timings=NAPS) as app:
        for _ in range(3):
            with structlog.testing.capture_logs():
                assert [await send_unsigned(app.intake.webhooks) for _ in range(50)] == [401] * 50
            await clock.sleep(70)
        with structlog.testing.capture_logs():
            await send_unsigned(app.intake.webhooks, "203.0.113.8")
        rows = (await app.store.audits()).items
    assert [(row["who"], row["did"], row["what"]) for row in rows] == [
        ("unverified sender", "webhook.refused", "generic/shop")
    ] * 3
    assert [row["detail"]["number"] for row in rows] == [50, 50, 50]
    assert rows[0]["detail"]["senders"] == ["203.0.113.7"]
    assert not any(word in str(rows) for word in ("w0rd", "b0dy", "s3cret"))
    async with running(tmp_path, clock, timings=NAPS) as app:
        newest = (await app.store.audits()).items[0]
    assert (newest["detail"]["number"], newest["detail"]["senders"]) == (1, ["203.0.113.8"])


@virtual
async def test_an_alert_that_fails_keeps_no_run_of_a_dead_worker_waiting(
    clock: VirtualClock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, "models: {default: echo}\n", hook=HOOK)
    requeued: list[float] = []

    async def fail(alerts: LedgerAlerts) -> None:
        raise TypeError("a fault in an alert")

    async with running(tmp_path, clock) as app:
        requeue = app.store.requeue_expired

        async def noted() -> int:
            requeued.append(clock.time())
            return await requeue()

        monkeypatch.setattr(LedgerAlerts, "check", fail)
        monkeypatch.setattr(app.store, "requeue_expired", noted)
        with structlog.testing.capture_logs() as logs:
            await clock.sleep(120)
    assert len(requeued) > 1
    assert "housekeeping.failed" in [line["event"] for line in logs]


class Deaf:
    """A store that cannot write for a while."""

    def __init__(self) -> None:
        self.away = True
        self.rows: list[tuple[str, Any]] = []

    async def audit(self, who: str, did: str, what: str, detail: Any) -> None:
        if self.away:
            raise StoreUnavailable("the store is away")
        self.rows.append((what, detail["number"]))


async def test_a_count_that_could_not_be_written_goes_on() -> None:
    clock, store = HandClock(), Deaf()
    refusals = Refusals(clock)
    for _ in range(2):
        with structlog.testing.capture_logs():
            refusals.note("generic/shop", "203.0.113.7", "signature", "the signature is wrong")
        clock.advance(60)
        with pytest.raises(StoreUnavailable):
            await audit_unverified(refusals, cast(Store, store))
    store.away = False
    await audit_unverified(refusals, cast(Store, store))
    await audit_unverified(refusals, cast(Store, store), ending=True)
    assert store.rows == [("generic/shop", 2)]
