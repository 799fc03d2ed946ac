"""What agent steps may use: where they work, the repositories of projects, and which secrets they never get."""

from __future__ import annotations

import os
from base64 import b64encode
from collections.abc import Callable, Mapping
from typing import TypeAlias

import msgspec
from pydantic import SecretStr

from harken.config.loaded import Account, Loaded
from harken.config.model_validation import Invalid
from harken.config.secret_values_to_mask import secrets_in
from harken.config.settings import local_base
from harken.config.trackers.address import repository_in
from harken.run.agents.host_settings import AgentHost
from harken.run.agents.workspace import CodeSource
from harken.source import Host, Plugin
from harken.tickets.settings import TrackerSettings, trigger_name

__all__ = ["agent_host"]

_USERS = {"github": "x-access-token", "gitlab": "oauth2", "azure_devops": "harken"}
"""With which name a token is a password for git, by kind of service."""


HostFor: TypeAlias = Callable[[Account, str], Host]


def agent_host(
    loaded: Callable[[], Loaded], plugins: Mapping[str, Plugin], host_for: HostFor | None = None
) -> AgentHost | None:
    """What agent steps may use by the configuration; None if it does not allow them.

    `host_for` gives what credentials need that are made when they are used."""
    now = loaded()
    steps = now.settings.steps
    if not steps.allow_agents:
        return None
    beside = local_base(now.store, now.directory)
    named = now.directory.absolute() / os.path.expanduser(steps.workspaces or "")
    return AgentHost(
        directory=named if steps.workspaces else beside.with_name(beside.name + ".agents"),
        configuration=now.directory.absolute(),
        keep_seconds=now.settings.retention.runs,
        code_of=lambda trigger: code_of(loaded(), trigger, host_for),
        tracker_secrets=lambda: tracker_secrets(loaded(), plugins),
    )


def tracker_secrets(loaded: Loaded, plugins: Mapping[str, Plugin]) -> frozenset[str]:
    """The credentials of services that have tickets."""
    kinds = {kind for kind, plugin in plugins.items() if plugin.tracker is not None}
    accounts = [account for account in loaded.integrations.values() if account.kind in kinds]
    return frozenset(secret for account in accounts for secret in secrets_in(account.model))


def code_of(loaded: Loaded, trigger: str, host_for: HostFor | None = None) -> CodeSource | None:
    """Where the code of the trigger's project is; None if the trigger has no project, or the project no code."""
    for tracker in loaded.trackers.values():
        for project in tracker.projects:
            if trigger_name(tracker.name, project.name) == trigger and project.repository:
                code = CodeSource(url=project.repository, base=project.base)
                return _with_credential(code, loaded, tracker, host_for)
    return None


def _with_credential(
    code: CodeSource, loaded: Loaded, tracker: TrackerSettings, host_for: HostFor | None
) -> CodeSource:
    """The credential, if the code is at the same server as the tickets. Elsewhere git uses that of this machine."""
    account, user = loaded.integrations.get(tracker.account), _USERS.get(tracker.kind)
    token = getattr(account.model, "token", None) if account is not None else None
    if account is None or user is None or not isinstance(token, SecretStr):
        return code
    repository = _repository(tracker.kind, code.url, str(getattr(account.model, "base_url", "")))
    if not repository:
        return code
    make = getattr(account.model, "tokens_for_git", lambda: None)()
    if make is None:
        return msgspec.structs.replace(code, header=_header(user, token.get_secret_value()))
    if host_for is None:
        return code
    host = host_for(account, f"git/{tracker.name}")

    async def sign_in() -> str:
        return _header(user, await make(host, repository))

    return msgspec.structs.replace(code, sign_in=sign_in)


def _header(user: str, token: str) -> str:
    return f"Authorization: Basic {b64encode(f'{user}:{token}'.encode()).decode()}"


def _repository(kind: str, url: str, base_url: str) -> str:
    """The repository that the address of the code names; empty if it is at another server."""
    try:
        return repository_in(kind, url, base_url) if url.startswith("https://") else ""
    except Invalid:
        return ""
