"""Comments that are written once, and strangers' names within them."""

from __future__ import annotations

import pytest

from harken.ticket import Actor, Comment
from harken.tickets import Trust
from harken.tickets.unique_comments import LONGEST_NOTE, find_note, inert, note, note_line
from harken.tickets.who_may_start_wording import how_to_start

OWN = Actor(id="1", login="harken[bot]")


def test_a_note_is_found_by_its_key_and_only_if_we_wrote_it() -> None:
    for kind in ("github", "gitlab", "jira", "azure_devops"):
        text = note("Hello", "run:step", kind)
        ours, copied = (
            Comment(id="2", text=text, author=OWN),
            Comment(id="1", text=text, author=Actor(id="9", login="x")),
        )
        assert find_note([copied, Comment(id="0", text=text), ours], "run:step", OWN) is ours
        assert find_note([ours], "run:other", OWN) is None


def test_the_line_is_hidden_where_the_platform_hides_html_and_says_nothing_about_the_key() -> None:
    assert note("Hello", "secret", "github") == f"<!--\n{note_line('secret')}\n-->\nHello"
    assert note("Hello", "secret", "jira") == f"Hello\n\n{note_line('secret')}"
    assert "secret" not in note_line("secret")


def test_a_long_text_is_cut_and_keeps_its_line() -> None:
    assert len(note("x" * 1_000_000, "k", "jira")) < LONGEST_NOTE + 50
    assert note("x" * 1_000_000, "k", "jira").endswith(note_line("k"))


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("mia", "mia"),
        ("renovate[bot]", "renovate[bot]"),
        ("renovate[bot](https://evil.example)", "renovate bot (https://evil.example)"),
        ("[bot]: https://evil.example", "bot : https://evil.example"),
        ("[Bot] [bot][x]", "Bot bot x"),
        ("@everyone <img src=x>", "everyone img src=x"),
        ("a\n# b\u202ec", "a b c"),
        ("`$(rm -rf /)`", "$(rm -rf /)"),
        ("-" * 500, "-" * 99 + "…"),
    ],
)
def test_a_strangers_name_cannot_act(name: str, shown: str) -> None:
    assert inert(name) == shown


@pytest.mark.parametrize(
    ("trust", "label", "seconds", "said"),
    [
        (Trust(), "fix", 0, "To start it, somebody with write access can take the label fix off and put it on again"),
        (Trust(label="triage"), "fix", 66, "somebody with triage access can take the label fix off"),
        (Trust(), "fix", 60, "put it on again 1 minute later"),
        (Trust(), "fix", 900, "put it on again 15 minutes later"),
        (Trust(label=("mia", "@all")), "fix", 0, "To start it, mia or all can take"),
        (Trust(label=()), "", 0, "Only tickets by nobody are started"),
    ],
)
def test_the_ticket_says_what_to_do(trust: Trust, label: str, seconds: float, said: str) -> None:
    assert said in how_to_start(trust, label, seconds)
