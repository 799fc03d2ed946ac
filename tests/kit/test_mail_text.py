"""What is read in a mail: headers, texts and HTML, whoever wrote them and however broken."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from harken.kit.mail import MailMessage, Part, mail_fields
from harken.kit.mail.field_patterns import LONGEST
from harken.kit.mail.message_parts import body_text
from harken.kit.mail.text_decoding import charset_text, header_text


def letter(text: str = "", **headers: str) -> MailMessage:
    named = {name.replace("_", "-"): [value] for name, value in headers.items()}
    return MailMessage(headers=named, root=Part(data=text.encode()), received=datetime(2026, 1, 5, 9, tzinfo=UTC))


class TestHeaders:
    @pytest.mark.parametrize(
        ("written", "read"),
        [
            ("=?utf-8?b?w4RyZ2VyIPCfmqg=?=", "Ärger 🚨"),
            ("=?ISO-8859-1?Q?Preis_f=FCr?= =?ISO-8859-1?Q?_Montag?= (neu)", "Preis für Montag (neu)"),
            ("=?utf-8?b?8J+a?=\r\n =?utf-8?b?qA==?=", "🚨"),
            ("=?iso-2022-jp?B?GyRCRnxLXDhsGyhC?=", "日本語"),
            ("Re: =?utf-8?q?caf=C3=A9?= today", "Re: café today"),
            ("=?unheard-of?q?caf=C3=A9?=", "café"),
            ("=?utf-8?b?!!!?=", "=?utf-8?b?!!!?="),
            ("=?hex?q?41?=", "41"),
            ("plain\r\n\tand folded", "plain and folded"),
            ("already 🚨 decoded", "already 🚨 decoded"),
            ("bell\x07 and nul\x00", "bell and nul"),
        ],
    )
    def test_a_subject_is_read_as_people_read_it(self, written: str, read: str):
        assert header_text(written) == read

    def test_a_mail_without_any_header_has_all_fields(self):
        fields = mail_fields(letter("hello"), {})
        assert (fields["subject"], fields["sender"], fields["to"], fields["body"]) == ("", "", "", "hello")
        assert fields["date"] == "2026-01-05T09:00:00Z"

    def test_the_date_is_that_of_the_header_in_utc(self):
        assert mail_fields(letter(date="Mon, 05 Jan 2026 08:30:00 +0200"), {})["date"] == "2026-01-05T06:30:00Z"
        assert mail_fields(letter(date="yesterday, more or less"), {})["date"] == "2026-01-05T09:00:00Z"


def part(mime: str, text: str, **more: Any) -> Part:
    return Part(mime=mime, data=text.encode(), size=len(text), **more)


class TestBody:
    def test_the_plain_text_wins_over_html(self):
        both = (part("text/plain", "plain"), part("text/html", "<b>rich</b>"))
        assert body_text(Part(mime="multipart/alternative", parts=both)) == "plain"

    def test_html_is_read_where_the_plain_text_is_missing_or_empty(self):
        both = (part("text/plain", " \n"), part("text/html", "<p>rich</p>"))
        assert body_text(Part(mime="multipart/alternative", parts=both)) == "rich"

    def test_a_plain_footer_does_not_hide_a_mail_in_html(self):
        both = (part("text/html", "<p>the mail</p>"), part("text/plain", "the footer of a list"))
        assert body_text(Part(mime="multipart/mixed", parts=both)) == "the mail\n\nthe footer of a list"

    def test_an_attached_text_is_no_part_of_the_body(self):
        both = (part("text/plain", "see it"), part("text/plain", "log", filename="a.log", attached=True))
        mixed = MailMessage(headers={}, root=Part(mime="multipart/mixed", parts=both))
        fields = mail_fields(mixed, {})
        assert fields["body"] == "see it"
        assert fields["attachments"] == [{"name": "a.log", "type": "text/plain", "size": 3}]

    def test_a_large_body_is_cut_and_says_so(self):
        body = mail_fields(letter("word " * 50_000), {})["body"]
        assert len(body) <= LONGEST
        assert body.endswith("more characters]")

    def test_parts_within_parts_without_end_are_not_followed(self):
        root = part("text/plain", "deep")
        for _ in range(5_000):
            root = Part(mime="multipart/mixed", parts=(root,))
        assert mail_fields(MailMessage(headers={}, root=root), {})["body"] == ""

    @pytest.mark.parametrize(
        ("data", "charset", "utf8_first", "text"),
        [
            ("Ärger".encode("latin-1"), "iso-8859-1", False, "Ärger"),
            ("Ärger".encode(), "iso-8859-1", True, "Ärger"),
            ("Ärger".encode("latin-1"), "iso-8859-1", True, "Ärger"),
            ("Ärger".encode("latin-1"), "utf-8", False, "Ärger"),
            ("日本".encode("iso-2022-jp"), "iso-2022-jp", True, "日本"),
            (b"x", "base64", False, "x"),
            (b"x", "no\x00such", False, "x"),
        ],
    )
    def test_bytes_become_text_whatever_charset_they_claim(
        self, data: bytes, charset: str, utf8_first: bool, text: str
    ):
        assert charset_text(data, charset, utf8_first=utf8_first) == text
