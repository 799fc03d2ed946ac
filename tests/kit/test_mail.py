"""What is read out of mails, whoever wrote them: texts, senders, values, and what must hold before one is delivered."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel, ValidationError

from harken.kit.mail import MailMessage, MailQuery, Part, condition, delivery, mail_fields
from harken.kit.mail.field_patterns import LONGEST, extract_fields
from harken.kit.mail.sender_address import sender_of
from harken.language.cel import bind, compile_condition
from harken.services.gmail import Query as GmailQuery
from harken.services.imap import Account, MarkParams
from harken.services.imap import Query as ImapQuery
from tests.cpu_time import cpu_at_most


def letter(text: str = "", **headers: str) -> MailMessage:
    named = {name.replace("_", "-"): [value] for name, value in headers.items()}
    return MailMessage(headers=named, root=Part(data=text.encode()), received=datetime(2026, 1, 5, 9, tzinfo=UTC))


def told(query: dict[str, Any], mail: MailMessage) -> str:
    """Why the mail is not delivered; empty when it is."""
    asked = MailQuery.model_validate(query)
    held = compile_condition(condition(asked))
    return held.decide(bind({"event": {**mail_fields(mail, asked.extract), "labels": []}})).reason


class TestSender:
    @pytest.mark.parametrize(
        "written",
        [
            "Eve@X.org",
            "<eve@x.org>",
            "Eve <eve@x.org>",
            "boss@company.com <eve@x.org>",
            '"boss@company.com" <eve@x.org>',
            '"a \\" <boss@company.com> \\" b" <eve@x.org>',
            "=?utf-8?q?boss=40company.com?= <eve@x.org>",
            "eve@x.org (boss@company.com)",
            "(boss@company.com (really)) eve@x.org",
            "Doe, Eve <eve@x.org>",
        ],
    )
    def test_it_is_the_address_and_never_the_name(self, written: str):
        assert sender_of([written]) == "eve@x.org"

    @pytest.mark.parametrize(
        "written",
        [
            "",
            "nobody",
            "eve@x.org, boss@company.com",
            "eve@x.org, Boss <boss@company.com>",
            "<boss@company.com> <eve@x.org>",
            "<eve@x.org> boss@company.com",
            "eve@x.org <boss@company.com",
            "boss@company.com@x.org",
            "boss@company.com\x00@x.org" + "y" * 3000,
            "boss@ company.com",
            "Undisclosed recipients:;",
        ],
    )
    def test_what_can_be_read_in_two_ways_names_nobody(self, written: str):
        assert sender_of([written]) == ""

    def test_two_from_headers_name_nobody(self):
        assert sender_of(["eve@x.org", "boss@company.com"]) == ""

    def test_a_domain_in_any_script_is_the_one_that_dns_knows(self):
        assert sender_of(["ana@Bücher.example"]) == "ana@xn--bcher-kva.example"

    def test_a_long_hostile_header_takes_no_time(self):
        with cpu_at_most(0.5):
            for header in ("(" * 2000, '"' * 1999, "<" * 2000, '"\\' * 1000, "a@" * 1000):
                assert sender_of([header]) == ""


class TestAllowlist:
    @pytest.mark.parametrize("entry", ["@company.com", "company.com", "COMPANY.com", "Ana@Company.COM"])
    def test_a_listed_sender_passes_in_any_case(self, entry: str):
        assert told({"sender_allowlist": [entry]}, letter(**{"from": "ANA@company.COM"})) == ""

    @pytest.mark.parametrize(
        "sender",
        [
            "ana@notcompany.com",
            "ana@company.com.evil.org",
            "ana@mail.company.com",
            "company.com@evil.org",
            '"ana@company.com" <eve@evil.org>',
            "ana@company.com <eve@evil.org>",
            "",
        ],
    )
    def test_nobody_else_passes_by_looking_like_it(self, sender: str):
        assert "sender_domain in" in told({"sender_allowlist": ["@company.com"]}, letter(**{"from": sender}))

    def test_another_person_of_a_listed_persons_domain_does_not_pass(self):
        assert told({"sender_allowlist": "ana@company.com"}, letter(**{"from": "eve@company.com"}))

    def test_the_reason_names_the_sender_and_the_list(self):
        reason = told({"sender_allowlist": ["@company.com", "boss@x.org"]}, letter(**{"from": "Eve <eve@evil.org>"}))
        assert 'event.sender_domain in ["company.com"] is false (event.sender_domain = "evil.org")' in reason
        assert 'event.sender in ["boss@x.org"] is false (event.sender = "eve@evil.org")' in reason

    @pytest.mark.parametrize("entry", ["", "@", "*@company.com", "a b@company.com", "ana@", "Ana <ana@x.org>", '"; x'])
    def test_an_entry_that_is_no_sender_is_refused(self, entry: str):
        with pytest.raises(ValidationError, match="is no sender"):
            MailQuery(sender_allowlist=[entry])

    def test_a_list_that_no_condition_can_hold_is_refused(self):
        with pytest.raises(ValidationError, match="too long for a condition"):
            MailQuery(sender_allowlist=[f"customer-{number}.example.com" for number in range(200)])


class TestExtract:
    def test_group_one_of_the_body_is_a_field(self):
        query = {"name": r"Nombre:\s*(.+)", "phone": r"Tel:\s*(\+?\d+)"}
        fields = mail_fields(letter("Hola\r\nNombre:  José Ñandú 🚨\r\nTel: +573001\r\n"), query)
        assert (fields["name"], fields["phone"]) == ("José Ñandú 🚨", "+573001")

    def test_what_is_not_in_the_body_is_looked_for_in_the_snippet(self):
        assert extract_fields({"n": r"no (\d+)"}, ["nothing", "no 7"]) == {"n": "7"}
        assert extract_fields({"n": r"no (\d+)"}, ["no 8", "no 7"]) == {"n": "8"}

    def test_what_is_nowhere_is_empty_and_not_missing(self):
        assert extract_fields({"n": r"no (\d+)", "m": "(x)?y"}, ["y", ""]) == {"n": "", "m": ""}

    @pytest.mark.parametrize(
        "pattern", [r"(a+)+$", r"(a|aa)+$", r"(.*)*b", r"(a*)*c", r"([a-z]+)*\d", r"((a?){90}a{90})Q"]
    )
    @pytest.mark.parametrize("text", ["a" * LONGEST + "!", "ab" * (LONGEST // 2)])
    def test_no_mail_makes_an_expression_run_for_ever(self, pattern: str, text: str):
        with cpu_at_most(2):
            extract_fields({"x": pattern}, [text])

    @pytest.mark.parametrize(
        ("pattern", "why"),
        [
            (r"(?=a)(b)", "look-around"),
            (r"(a)\1", "back references"),
            (r"Nombre: .+", "has no group"),
            (r"(", "cannot be used"),
            (r"((a?){500}(a){500})", "too large"),
            ("(a)" + "b" * 1000, "longer than"),
        ],
    )
    def test_an_expression_that_cannot_be_used_is_refused_at_once(self, pattern: str, why: str):
        with pytest.raises(ValidationError, match=why):
            MailQuery(extract={"x": pattern})

    @pytest.mark.parametrize(
        ("name", "why"), [("subject", "every mail has"), ("a-b", "is no name"), ("", "is no name")]
    )
    def test_a_name_that_is_taken_or_no_name_is_refused(self, name: str, why: str):
        with pytest.raises(ValidationError, match=why):
            MailQuery(extract={name: "(x)"})


class TestRequired:
    def test_the_reason_names_the_field_that_is_missing(self):
        query = {"extract": {"name": "Name: (.+)", "phone": r"Tel: (\d+)"}, "require_fields": ["name", "phone"]}
        assert told(query, letter("Name: Ana\nTel: 7")) == ""
        assert told(query, letter("Name: Ana")) == 'event.phone != "" is false (event.phone = "")'
        assert "event.name" in told(query, letter("Tel: 7"))

    def test_the_fields_of_every_mail_can_be_required(self):
        assert told({"require_fields": ["subject"]}, letter(subject="hi")) == ""
        assert "event.subject" in told({"require_fields": "subject"}, letter())
        assert "event.labels" in told({"require_fields": ["labels"]}, letter())

    def test_a_field_whose_name_is_a_word_of_the_language_can_be_required(self):
        query = {"extract": {"package": "parcel (.+)"}, "require_fields": ["package"]}
        assert told(query, letter("parcel 9")) == ""
        assert "package" in told(query, letter("no"))

    def test_a_field_that_no_mail_can_have_is_refused(self):
        with pytest.raises(ValidationError, match="'phone', which is no field"):
            MailQuery(require_fields=["phone"])

    def test_the_mail_is_marked_as_read_after_its_message_and_never_before(self):
        made = delivery(MailQuery(), {"action": "google.mark_read"})
        assert (list(made.before), list(made.after)) == ([], [{"action": "google.mark_read"}])
        assert list(delivery(MailQuery(mark_read_on_dispatch=False), {"action": "x"}).after) == []


@pytest.mark.parametrize(
    ("written", "seconds"), [("12h", 43_200), ("1d", 86_400), ("2w", 1_209_600), ("1y", 31_536_000)]
)
def test_an_age_is_hours_days_weeks_or_years(written: str, seconds: float):
    assert MailQuery(newer_than=written).reach == seconds


@pytest.mark.parametrize(
    ("written", "why"), [("2m", "months to Gmail and minutes"), ("1 day", "no age"), ("7", "no age")]
)
def test_an_age_that_two_people_read_differently_is_refused(written: str, why: str):
    with pytest.raises(ValidationError, match=why):
        MailQuery(newer_than=written)


@pytest.mark.parametrize(
    ("page", "model"), [("gmail", GmailQuery), ("imap", ImapQuery), ("imap", Account), ("imap", MarkParams)]
)
def test_every_field_is_in_the_reference(page: str, model: type[BaseModel]):
    text = (Path(__file__).parents[2] / "docs" / "reference" / "services" / f"{page}.md").read_text("utf-8")
    assert [name for name in model.model_fields if f"`{name}`" not in text] == []
