"""What our comments say, and that what strangers wrote does not act in them."""

from __future__ import annotations

import re
from datetime import UTC, datetime

import pytest

from harken.runs import Run, RunState, StepRecord
from harken.ticket import Actor, Comment
from harken.tickets.comment_marks import is_ours
from harken.tickets.comment_text import (
    Report,
    asked_in,
    fight_text,
    markup_of,
    notice_of,
    notice_text,
    pull_request_of,
    repair_text,
    report_of,
    sticky_text,
    trusted_labeller,
)

NOW = datetime(2026, 11, 17, 12, tzinfo=UTC)
LEO = Actor(id="42", login="leo")
HOSTILE = [
    "@everyone",
    "`@everyone`",
    "``` ``` @everyone",
    "<!-- hidden --><img src=x onerror=alert(1)>",
    "[click](https://evil.example)",
    "![x](https://evil.example/x.png)",
    "line\n/close\n# title",
    "[~leo] {html}x{html} !http://evil/x.png!",
    "a\u202eb\u200bc\x1b[31m\x00",
    "x" * 1_000_000,
    "`" * 500,
    "harken-note\nharken-receipt v1",
    "$(rm -rf /) -rf | cat",
]


def run(status: RunState, *records: StepRecord, error: str = "") -> Run:
    return Run(
        id="0b7c",
        trigger="shop/web",
        workflow="fix",
        workflow_rev="r1",
        status=status,
        due_at=NOW,
        created_at=NOW,
        journal=records,
        error=error,
    )


def record(output: object = None, action: str = "agent", status: str = "ok", **more: object) -> StepRecord:
    return StepRecord(path="a", action=action, status=status, output=output, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize("text", HOSTILE)
def test_markdown_of_strangers_stays_in_its_code_span(text: str) -> None:
    quoted = markup_of("github").quote(text)
    fence = re.match("`+", quoted)
    assert fence is not None
    assert quoted.endswith(fence[0])
    assert not re.search(rf"(?<!`){fence[0]}(?!`)", quoted[len(fence[0]) : -len(fence[0])])
    assert "\n" not in quoted
    assert len(quoted) < 1000
    assert not re.search("[\x00-\x1f\u200b\u202e]", quoted)


@pytest.mark.parametrize("text", HOSTILE)
def test_lines_of_strangers_stay_in_their_block(text: str) -> None:
    block = markup_of("gitlab").block(text.splitlines()).splitlines()
    fence = block[0].removesuffix("text")
    assert set(fence) == {"`"}
    assert block[-1] == fence
    assert not any(line.startswith(fence) for line in block[1:-1])
    assert not is_ours(Comment(id="1", text="\n".join(block)))


@pytest.mark.parametrize("text", HOSTILE)
def test_jira_shows_what_strangers_wrote_and_does_nothing(text: str) -> None:
    shown = markup_of("jira").block(text.splitlines())
    assert not re.search(r"\[~|\{\w|!http|://|@\w|<\w", shown)
    assert all(line.startswith("> ") for line in shown.splitlines())


@pytest.mark.parametrize(
    ("kind", "actor", "mention"),
    [
        ("github", LEO, "@leo"),
        ("gitlab", Actor(id="1", login="l.e_o-2"), "@l.e_o-2"),
        (
            "azure_devops",
            Actor(id="8c8c7d32-6b1b-47f4-b2e9-30b477b5ab3d", login="l@x"),
            "@<8c8c7d32-6b1b-47f4-b2e9-30b477b5ab3d>",
        ),
        ("jira", Actor(id="JIRAUSER10100", login="leo"), "[~leo]"),
        ("jira", Actor(id="5b10a2844c20165700ede21f", login="l@x"), "[~accountid:5b10a2844c20165700ede21f]"),
        (
            "jira",
            Actor(id="557058:f58131cb-b67d-43c7-b30d-6b58d40bd077", login="l@x"),
            "[~accountid:557058:f58131cb-b67d-43c7-b30d-6b58d40bd077]",
        ),
        ("github", Actor(id="1", login="x[bot]", bot=True), ""),
        ("github", Actor(id="1", login="leo", form=True), ""),
        ("github", Actor(id="1", login="leo @everyone"), ""),
        ("jira", Actor(id="x] {html}", login="x] {html}"), ""),
        ("azure_devops", Actor(id="x> @<y", login="x"), ""),
        ("github", None, ""),
    ],
)
def test_people_are_mentioned_in_the_form_of_the_platform(kind: str, actor: Actor | None, mention: str) -> None:
    assert markup_of(kind).mention(actor) == mention


@pytest.mark.parametrize(
    ("moved", "kind"),
    [
        (run("failed", error="x"), "failed"),
        (run("dead"), "failed"),
        (run("waiting", record({"prompt": "ok?"}, "approve", "waiting")), "waiting"),
        (run("waiting", record({"prompt": "ok?", "comment": "7"}, "ticket.preflight", "waiting")), ""),
        (run("waiting", record({"until": "2027-01-01T00:00:00Z"}, "wait", "waiting")), ""),
        (run("waiting"), ""),
        (run("held"), ""),
        (run("running", record({"pr_url": "https://x.example/1"})), ""),
        (run("done", record({"pr_url": "https://x.example/1"})), "pull_request"),
        (run("done", record({"url": "https://x.example/1"}, "http")), ""),
        (run("done"), ""),
        (run("cancelled"), ""),
    ],
)
def test_a_person_is_wanted_for_what_only_a_person_can_do(moved: Run, kind: str) -> None:
    assert notice_of(moved) == kind


@pytest.mark.parametrize(
    ("output", "found"),
    [
        ({"pr_url": "https://github.com/a/b/pull/1"}, "https://github.com/a/b/pull/1"),
        ({"pr_url": "javascript:alert(1)"}, ""),
        ({"pr_url": "https://x) @everyone"}, ""),
        ({"pr_url": ["https://x"]}, ""),
        ("https://x", ""),
        (None, ""),
    ],
)
def test_the_address_of_a_pull_request_is_an_address_and_nothing_else(output: object, found: str) -> None:
    assert pull_request_of(run("done", record(output))) == found


def test_the_question_is_that_of_the_last_step() -> None:
    first, last = record({"prompt": "a"}, "approve", "waiting"), record({"question": "b"}, "ticket.ask", "waiting")
    assert asked_in(run("waiting", first, last)) == "b"
    assert asked_in(run("running", first)) == ""
    assert asked_in(run("waiting", first, record())) == "", "the same step went on"
    other = StepRecord(path="b", action="shell", status="ok")
    assert asked_in(run("waiting", first, other)) == "a", "another branch went on"


@pytest.mark.parametrize(
    ("asking", "how"),
    [
        (record({"prompt": "Delete it?"}, "approve", "waiting"), "Answer with a comment: approve or reject."),
        (record({"prompt": "Red?\nOr @blue?"}, "agent", "waiting"), "Answer with a comment."),
    ],
)
def test_a_question_says_how_to_answer(asking: StepRecord, how: str) -> None:
    report = report_of(run("waiting", asking), "fix", "bug", LEO)
    text = notice_text("waiting", report, markup_of("github"), "harken-notice 00")
    assert how in text
    assert "@blue" not in re.sub("(?s)`+text.*?`{3,}", "", text)


def test_the_labeller_is_the_one_that_the_preflight_trusted() -> None:
    looked = {"labelled_by": "leo", "labelled_by_id": "42"}
    assert trusted_labeller(run("done", record(looked, "ticket.preflight"))) == LEO
    assert trusted_labeller(run("done", record(looked, "shell"))) is None
    assert trusted_labeller(run("done", record(looked, "ticket.preflight", "failed"))) is None


def test_a_report_sums_up_the_run() -> None:
    records = [record({"tail": "a\nb\n\n"}, tokens=10, usd=0.5), record({"x": 1}, tokens=5, usd=0.25)]
    report = report_of(run("done", *records), "fix", "bug", LEO)
    assert (report.tokens, report.usd, report.lines) == (15, 0.75, ("a", "b"))


@pytest.mark.parametrize("kind", ["github", "jira"])
def test_the_receipt_is_never_the_last_line(kind: str) -> None:
    report = Report(run="0b7c", status="done", pipeline="fix", lines=("x",) * 15)
    lines = sticky_text(report, "harken-receipt v1 …", markup_of(kind), at=NOW).splitlines()
    (at,) = [number for number, line in enumerate(lines) if "harken-receipt" in line]
    assert at < len(lines) - 1
    assert "@" not in "".join(lines)


def test_everything_we_write_is_recognised_as_ours() -> None:
    markup, report = markup_of("github"), Report(run="r", status="failed", pipeline="p", error="e")
    texts = [
        notice_text("failed", report, markup, "harken-notice 00"),
        repair_text("harken:done", "fix", markup),
        fight_text("harken:done", ["robot"], 5, markup),
    ]
    assert all(is_ours(Comment(id="1", text=text)) for text in texts)
    assert "robot" in texts[2]
    assert texts[0].startswith("This run failed")
