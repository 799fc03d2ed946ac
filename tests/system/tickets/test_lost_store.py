"""The store is gone: what is on the tickets brings memory back, and nothing that was done runs again."""

from __future__ import annotations

from pathlib import Path

from harken.testing import VirtualClock, virtual
from tests.system.tickets.lagging_github import lifecycle_of
from tests.system.tickets.replicas import replicas

BUSY = """
name: fix-bug
steps:
  - {id: break, action: transform, if: 'event.title == "broken"', set: {said: "{{.trigger.event.nothing}}"}}
  - {id: rest, action: wait, for: 1h, if: 'event.title == "long"'}
"""


@virtual
async def test_after_adopting_only_what_was_interrupted_runs_again(clock: VirtualClock, tmp_path: Path) -> None:
    async with replicas(clock, tmp_path, pipeline=BUSY) as fleet:
        hub = fleet.hub
        await clock.sleep(40)
        done, failed = hub.open("fix", by="leo"), hub.open("fix", by="leo", title="broken")
        interrupted = hub.open("fix", by="leo", title="long")
        # somebody else has set our labels by hand, on a ticket that never had a run
        foreign = hub.open("fix", "harken:done", by="leo")
        idle = hub.open("bug", by="leo")
        await clock.sleep(600)
        assert [lifecycle_of(issue) for issue in (done, failed)] == [["harken:done"], ["harken:failed"]]
        assert lifecycle_of(interrupted) in (["harken:in-progress"], ["harken:waiting"])
        for replica in list(fleet.living):
            await fleet.kill(replica)
        await fleet.forget_everything()
        first = await fleet.start()
        adopted = await first.app.operator.call("tickets.adopt", name="acme")
        await fleet.start()
        refs = {issue.number: f"acme/shop#{issue.number}" for issue in (done, failed, interrupted, foreign, idle)}
        assert sorted(adopted["finished"]) == sorted([refs[done.number], refs[failed.number]])
        assert list(adopted["interrupted"]) == [refs[interrupted.number]]
        assert list(adopted["foreign"]) == [refs[foreign.number]]
        hub.comment(done, by="leo")
        await clock.sleep(4_500)
        assert await fleet.outcomes() == {str(interrupted.number): ["done"]}
        assert [lifecycle_of(issue) for issue in (done, failed, interrupted)] == [
            ["harken:done"],
            ["harken:failed"],
            ["harken:done"],
        ]
        assert [lifecycle_of(issue) for issue in (foreign, idle)] == [["harken:done"], []]
        # and a person may still ask for another run
        hub.unlabel(failed, "harken:failed", by="leo")
        await clock.sleep(300)
        assert (await fleet.outcomes())[str(failed.number)] == ["dead"]
