"""A ticket as every platform can tell it: an issue of GitHub, GitLab or Jira, a work item of Azure DevOps."""

from __future__ import annotations

from datetime import datetime

import msgspec

__all__ = ["Ticket"]


class Ticket(msgspec.Struct, frozen=True, kw_only=True):
    """`id` never changes, also when the ticket is moved or its project renamed; `ref` is what people call it.

    `status` is the platform's own word. `closed` is what the platform says, whatever the status is called.
    `repo` is the repository of the ticket, `area_path` its place in Azure DevOps; empty where there is none.
    """

    id: str
    ref: str
    title: str
    url: str
    status: str
    closed: bool
    labels: tuple[str, ...] = ()
    repo: str = ""
    area_path: str = ""
    author: str = ""
    updated_at: datetime | None = None
