"""Which pipeline a ticket starts. Polls and webhooks ask the same function."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from harken.tickets.lifecycle_labels import LifecycleLabels

__all__ = ["Route", "Routes", "route"]


class Routes(msgspec.Struct, frozen=True, kw_only=True):
    """`by_label` maps labels to pipelines in the order in which the user wrote them. `default` counts without it."""

    by_label: Mapping[str, str] = {}
    default: str = ""


class Route(msgspec.Struct, frozen=True, kw_only=True):
    """The pipeline, and the label that chose it. Without a pipeline, `reason` says why there is none."""

    pipeline: str = ""
    label: str = ""
    reason: str = ""


def route(labels: Iterable[str], routes: Routes, lifecycle: LifecycleLabels) -> Route:
    """Choose the pipeline of the first key of the map whose label is on the ticket, whatever its case."""
    if not routes.by_label:
        if routes.default:
            return Route(pipeline=routes.default)
        return Route(reason="no pipeline_from_label and no default_pipeline is configured")
    present = {label.casefold(): label for label in lifecycle.others(labels)}
    for wanted, pipeline in routes.by_label.items():
        if (label := present.get(wanted.casefold())) is not None:
            return Route(pipeline=pipeline, label=label)
    known = ", ".join(routes.by_label)
    return Route(reason=f"none of the labels of pipeline_from_label is on the ticket ({known})")
