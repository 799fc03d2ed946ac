"""What every reader of webhooks about tickets does. Each platform subclasses it:

class TestGitHubNotices(SignatureContract):
    payload, proof = {...}, "x-hub-signature-256"

    def reader(self, secret: str) -> NoticeReader: ...

    def headers(self, body: bytes, secret: str = SECRET) -> dict[str, str]: ...
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, ClassVar

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from harken.errors import Unauthorized
from harken.source import Request
from harken.testing import HandClock
from harken.ticket import Notice, NoticeReader

SECRET = "it's a secret: größe"
CLOCK = HandClock()

# every platform is another executor of these tests
FUZZ = settings(deadline=None, suppress_health_check=[HealthCheck.differing_executors])
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text()
    | st.sampled_from(["open", "0", "-1", "\ud800"]),
    lambda inside: st.lists(inside, max_size=3) | st.dictionaries(st.text(max_size=5), inside, max_size=3),
    max_leaves=8,
)
RUBBISH = {
    "nothing": b"",
    "no json": b"<html>",
    "no utf-8": b'{"action":"\xff\xfe"}',
    "half": b'{"action": "opened", "issue": {',
    "null": b"null",
    "number": b"12",
    "list": b"[]",
    "empty": b"{}",
    "nested": b"[" * 200_000,
    "nested objects": b'{"issue":' * 50_000 + b"1" + b"}" * 50_000,
    "long number": b'{"issue": {"number": ' + b"9" * 6000 + b', "id": 1}}',
    "nan": b'{"issue": NaN, "resource": Infinity}',
    "null bytes": b"\0" * 100,
}


def request(headers: Mapping[str, str], body: bytes) -> Request:
    return Request(headers=headers, body=body, path="/webhooks/x", received_at=CLOCK.now())


def paths(value: Any, here: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Where all parts of a document are."""
    parts = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [here, *(path for key, part in parts for path in paths(part, (*here, key)))]


def replaced(value: Any, path: tuple[Any, ...], new: Any) -> Any:
    if not path:
        return new
    key, rest = path[0], path[1:]
    copy = dict(value) if isinstance(value, dict) else list(value)
    copy[key] = replaced(copy[key], rest, new)
    return copy


class NoticeReaderContract:
    """`payload` tells about a ticket; `proof` is the header that proves where it comes from."""

    payload: ClassVar[Mapping[str, Any]]
    proof: ClassVar[str]

    def reader(self, secret: str) -> NoticeReader:
        raise NotImplementedError

    def headers(self, body: bytes, secret: str = SECRET) -> dict[str, str]:
        raise NotImplementedError

    def read(self, body: bytes, **changes: str) -> list[Notice]:
        headers = self.headers(body) | changes
        return list(self.reader(SECRET).read(request(headers, body)))

    def body(self) -> bytes:
        return json.dumps(self.payload).encode()

    def refuses(self, headers: Mapping[str, str], body: bytes, secret: str = SECRET) -> None:
        with pytest.raises(Unauthorized) as refused:
            self.reader(secret).read(request(headers, body))
        assert not secret or secret not in str(refused.value)

    def test_a_verified_webhook_is_a_notice(self):
        (notice,) = self.read(self.body())
        assert notice.id
        assert notice.ticket is None or notice.ticket.id == notice.id

    def test_a_missing_proof_is_refused(self):
        body = self.body()
        headers = self.headers(body)
        self.refuses({name: value for name, value in headers.items() if name != self.proof}, body)
        self.refuses(headers | {self.proof: ""}, body)

    def test_a_wrong_or_truncated_proof_is_refused(self):
        body = self.body()
        headers = self.headers(body)
        right = headers[self.proof]
        self.refuses(self.headers(body, "another secret"), body)
        for wrong in (right[:-1], right[1:], right[:-8], right + "0", right.swapcase(), "sha256=", "Basic ", "v1,"):
            self.refuses(headers | {self.proof: wrong}, body)

    @pytest.mark.parametrize("secret", ["", "\n"])
    def test_an_empty_secret_never_verifies(self, secret: str):
        body = self.body()
        self.refuses(self.headers(body, ""), body, secret)
        self.refuses(self.headers(body, secret), body, secret)
        self.refuses({}, body, secret)

    def test_a_secret_that_was_read_from_a_file_may_end_with_a_line_end(self):
        body = self.body()
        assert self.reader(f"{SECRET}\n").read(request(self.headers(body), body))

    @pytest.mark.parametrize("name", RUBBISH)
    def test_verified_rubbish_tells_nothing(self, name: str):
        assert self.read(RUBBISH[name]) == []

    @settings(FUZZ, max_examples=60)
    @given(body=st.binary(max_size=200))
    def test_any_verified_bytes_tell_nothing(self, body: bytes):
        assert self.read(body) == []

    # others in each run: many runs see many
    @settings(FUZZ, max_examples=100)
    @given(data=st.data(), new=VALUES)
    def test_a_webhook_with_any_part_replaced_is_read_or_tells_nothing(self, data: st.DataObject, new: Any):
        path = data.draw(st.sampled_from(paths(self.payload)))
        for notice in self.read(json.dumps(replaced(self.payload, path, new)).encode()):
            assert notice.id.isprintable()
            assert notice.ticket is None or notice.ticket.id == notice.id
            assert notice.comment is None or notice.comment.id


class SignatureContract(NoticeReaderContract):
    """For a proof that depends on the body."""

    def test_another_body_is_refused(self):
        body = self.body()
        headers = self.headers(body)
        for changed in (body[:-1], body + b" ", body.replace(b": ", b":"), b""):
            self.refuses(headers, changed)
