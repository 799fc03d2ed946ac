"""The actions acknowledge and note. A second try finds what the first one did.

https://developer.pagerduty.com/api-reference/8a0e1aa2ec666-update-an-incident
https://developer.pagerduty.com/api-reference/a1d6ed16c8a8d-create-a-note-on-an-incident
"""

from __future__ import annotations

from typing import Any

from pydantic import Field

from harken.http import Reply, raise_for
from harken.kit import ParamsModel
from harken.kit.idempotent_comments import step_mark
from harken.kit.values_from_payload import text_of
from harken.services.pagerduty.api import Api, Id
from harken.source import Act, Call

__all__ = ["ACTIONS"]

_FROM = (
    "A general API key writes in the name of a user: set from_email in the integration, or `from` in the step, "
    "to the e-mail address of a user of this account"
)


class Acknowledge(ParamsModel):
    incident: Id = Field(description="id or number of the incident")
    sender: str = Field("", alias="from", description="e-mail address of the user in whose name; default: from_email")


class Note(Acknowledge):
    content: str = Field(min_length=1, description="text of the note")


async def acknowledge(call: Call) -> dict[str, Any]:
    """Acknowledge a triggered incident; any other stays as it is."""
    api, params = Api(call.account, call.host), call.params
    status = await _status(api, params.incident)
    if status != "triggered":
        return {"incident": params.incident, "status": status, "changed": False}
    wanted = {"incident": {"type": "incident_reference", "status": "acknowledged"}}
    reply = await api.write("PUT", "incidents", params.incident, json=wanted, sender=params.sender)
    if reply.status == 400 and (status := await _status(api, params.incident)) != "triggered":
        # someone else acknowledged it meanwhile; PagerDuty has several error codes for that
        return {"incident": params.incident, "status": status, "changed": False}
    status = text_of(_expect_written(api, reply), "incident.status") or "acknowledged"
    return {"incident": params.incident, "status": status, "changed": True}


async def note(call: Call) -> dict[str, Any]:
    """Write a note that ends with a mark of this step, unless there is a note with that mark."""
    api, params = Api(call.account, call.host), call.params
    mark = f"(harken {step_mark(call)})"
    notes = (await api.read("incidents", params.incident, "notes")).get("notes")
    for found in notes if isinstance(notes, list) else []:
        if mark in (text_of(found, "content") or ""):
            return {"incident": params.incident, "note": text_of(found, "id") or "", "changed": False}
    wanted = {"note": {"content": f"{params.content}\n\n{mark}"}}
    reply = await api.write("POST", "incidents", params.incident, "notes", json=wanted, sender=params.sender)
    written = text_of(_expect_written(api, reply), "note.id") or ""
    return {"incident": params.incident, "note": written, "changed": True}


async def _status(api: Api, incident: str) -> str:
    return text_of(await api.read("incidents", incident), "incident.status") or ""


def _expect_written(api: Api, reply: Reply) -> dict[str, Any]:
    if reply.status == 400:
        raise_for(reply, fix=_FROM)
    return api.expect_object(reply)


ACTIONS = {"acknowledge": Act(params=Acknowledge, run=acknowledge), "note": Act(params=Note, run=note)}
