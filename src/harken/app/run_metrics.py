"""Metrics of what becomes of events: runs by outcome, what is held or dead, and deliveries."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from harken.app.metric_registry import Labels, Metrics
from harken.config.loaded import Loaded
from harken.runs import Claimed
from harken.store import Backlog

__all__ = ["RunMetrics"]

OUTCOMES = frozenset({"done", "filtered", "failed", "dead", "cancelled", "again"})
"""What a try of a run ends with; `again` is a try that failed or waits and is followed by another."""
USUAL_OUTCOMES = ("done", "failed", "dead")
DELIVERY_RESULTS = ("delivered", "rate_limited", "failed")


class RunMetrics:
    """Counts the ends of runs and deliveries; `backlogs` is set before each page, None while the store is away.

    `workflow_name` gives the name of a workflow by its revision.
    """

    def __init__(self, workflow_name: Callable[[str], str]) -> None:
        self._workflow_name = workflow_name
        # ends of runs since the last page by revision and outcome, and the workflows of these revisions
        self._ends: dict[tuple[str, str], int] = {}
        self._names: dict[str, str] = {}
        self.backlogs: Mapping[str, Backlog] | None = None
        # workflows, triggers and channels are configured by the operator, so no outsider can add series
        self._metrics = metrics = Metrics(most=None)
        self._runs = metrics.counter("harken_runs_total", "Tries of runs that ended, by workflow and outcome.")
        self._deliveries = metrics.counter("harken_deliveries_total", "Messages handed to a channel, by result.")
        self._refused = metrics.counter("harken_events_refused_total", "Events that the store refused to keep.")
        metrics.series("harken_runs_held", "Runs that are held now, by trigger and reason.", self._held)
        metrics.series("harken_dead_letters", "Runs that are dead now, by trigger.", self._dead)

    def use(self, loaded: Loaded, channels: Collection[str]) -> None:
        """Create the series of each workflow and channel at 0; drop those of workflows and channels that are gone."""
        self._add_ends()
        self._metrics.keep("workflow", loaded.workflows)
        self._metrics.keep("channel", channels)
        for workflow in loaded.workflows:
            # those of rows may be many: each begins with its first run
            for outcome in () if workflow in loaded.rows else USUAL_OUTCOMES:
                self._runs(0, workflow=workflow, outcome=outcome)
        for channel in channels:
            for result in DELIVERY_RESULTS:
                self._deliveries(0, channel=channel, result=result)
        self._refused(0)

    def page(self) -> bytes:
        self._add_ends()
        return self._metrics.page()

    def count_run(self, what: str, claimed: Claimed) -> None:
        if what not in OUTCOMES:
            return
        # this is called for every run, so it only counts; labels are made for the page
        key = (claimed.workflow_rev, what)
        ended = self._ends.get(key)
        if ended is None:
            self._names[claimed.workflow_rev] = self._workflow_name(claimed.workflow_rev)
        self._ends[key] = (ended or 0) + 1

    def _add_ends(self) -> None:
        for (rev, outcome), number in self._ends.items():
            self._runs(number, workflow=self._names[rev], outcome=outcome)
        self._ends.clear()
        self._names.clear()

    def count_delivery(self, channel: str, result: str) -> None:
        self._deliveries(channel=channel, result=result)

    def count_refused_event(self) -> None:
        self._refused()

    def _held(self) -> Mapping[Labels, float]:
        return {
            (("trigger", trigger), ("hold", hold)): number
            for trigger, backlog in (self.backlogs or {}).items()
            for hold, number in backlog.held.items()
        }

    def _dead(self) -> Mapping[Labels, float]:
        return {(("trigger", trigger),): backlog.dead for trigger, backlog in (self.backlogs or {}).items()}
