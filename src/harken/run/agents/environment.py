"""The environment of an agent: a few variables of ours, those that the step names, and no token of a tracker."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Mapping
from pathlib import Path

from harken.run.agents.orphan_processes import WORKSPACE_VARIABLE

__all__ = ["agent_variables", "is_tracker_token"]

INHERITED = ("PATH", "HOME", "LANG", "LC_ALL", "TZ", "TMPDIR", "USER", "LOGNAME", "SHELL", "SSL_CERT_FILE", "TERM")
_TRACKER_TOKEN = re.compile(
    r"(?:GITHUB|GH|GITLAB|CI_JOB|JIRA|ATLASSIAN|AZURE_DEVOPS|AZURE_DEVOPS_EXT|SYSTEM|VSS)_(?:[A-Z_]*_)?"
    r"(?:TOKEN|PAT|ACCESSTOKEN|PASSWORD|API_TOKEN|KEY|SECRET)"
)
_SHORTEST_SECRET = 6


def is_tracker_token(name: str) -> bool:
    """Whether a variable of this name holds the credential of a tracker, as far as names tell."""
    return _TRACKER_TOKEN.fullmatch(name.upper()) is not None


def agent_variables(
    given: Mapping[str, str], inherit: Collection[str], tracker_secrets: Collection[str], workspace: Path
) -> tuple[dict[str, str], list[str]]:
    """The variables for an agent, and warnings about those that were left out.

    With a tracker's token an agent that was talked into it could label, comment and approve in our name."""
    named = {name: os.environ[name] for name in (*INHERITED, *inherit) if name in os.environ}
    wanted, warnings = {**named, **given}, []
    secrets = [secret for secret in tracker_secrets if len(secret) >= _SHORTEST_SECRET]
    for name in sorted(wanted):
        if is_tracker_token(name) or any(secret in wanted[name] for secret in secrets):
            del wanted[name]
            warnings.append(f"the variable {name} was left out, because it holds the credential of a tracker")
    return {**wanted, "GIT_TERMINAL_PROMPT": "0", WORKSPACE_VARIABLE: str(workspace)}, warnings
