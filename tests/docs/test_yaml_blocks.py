"""Every YAML block of the documentation is loaded, in the place where a reader would put it.

Whole workflows must load without a complaint (test_examples.py). A piece may lack what stands elsewhere on its page: an
account, a variable, a required field. It may not have a key that does not exist, a wrong type, or an expression that
does not compile.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from harken.config.findings import Finding
from harken.simulation.case_schema import CasesFile
from tests.docs.blocks import Block, blocks, pages
from tests.docs.test_examples import ENVIRON, loaded_with
from tests.docs.yaml_blocks import FOREIGN, UNPLACED, alternatives, files_of

ALL = [one for page in pages() for block in blocks(page) if block.language == "yaml" for one in alternatives(block)]
# what a piece may lack: it is somewhere else, or its reader's
ELSEWHERE = {"unset", "unknown_name", "missing", "depends"}
SECRETS = (
    "ALERTMANAGER_SECRET AZURE_DEVOPS_WEBHOOK_SECRET GITHUB_WEBHOOK_SECRET GITLAB_WEBHOOK_SECRET GRAFANA_SECRET "
    "INBOX_KEY JIRA_WEBHOOK_SECRET OIDC_CLIENT_SECRET PAGERDUTY_WEBHOOK_SECRET SENTRY_SECRET SLACK_WEBHOOK_SECRET "
    "STRIPE_SECRET TICKET_TOKEN DISCORD_BOT_TOKEN"
)
SET = {
    **ENVIRON,
    **dict.fromkeys(SECRETS.split(), "not-a-secret-but-long-enough-to-be-one"),
    "APPRISE_URL": "json://127.0.0.1",
    "GOOGLE_APPLICATION_CREDENTIALS": "/etc/harken/key.json",
}


def is_wrong(finding: Finding) -> bool:
    """An account as a whole may lack its credential, which is stored by `harken integrations NAME configure`."""
    lacks_credential = finding.code == "invalid" and finding.path[:1] == ("integrations",) and len(finding.path) == 2
    return finding.severity == "error" and finding.code not in ELSEWHERE and not lacks_credential


@pytest.mark.parametrize("block", ALL, ids=str)
def test_the_block_is_made_of_what_exists(block: Block, tmp_path: Path) -> None:
    files = files_of(block)
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text, "utf-8")
    if "tests/shown.yaml" in files:
        CasesFile.model_validate(yaml.safe_load(files["tests/shown.yaml"]))
    found = loaded_with(tmp_path, SET).findings
    assert [str(finding) for finding in found if is_wrong(finding)] == []


def test_what_cannot_be_loaded_is_counted_and_has_a_reason() -> None:
    left_out = [block for block in ALL if not files_of(block)]
    assert len(ALL) > 150
    assert len(left_out) == 3, [str(block) for block in left_out]
    assert all([*FOREIGN.values(), *UNPLACED.values()])


def test_a_key_that_does_not_exist_would_be_noticed(tmp_path: Path) -> None:
    block = Block(page="docs/x.md", line=1, language="yaml", text="poll: {integration: json, intervall: 1m}\n")
    for name, text in files_of(block).items():
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_text(text, "utf-8")
    assert "unknown_key" in {finding.code for finding in loaded_with(tmp_path, SET).findings}
