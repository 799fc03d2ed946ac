"""Keys of the role that a machine (EC2), a container (ECS) or a pod (EKS) has at Amazon.

https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/instancedata-data-retrieval.html (version 2, with a session token)
https://docs.aws.amazon.com/sdkref/latest/guide/feature-container-credentials.html
"""

from __future__ import annotations

import re
from datetime import datetime

import msgspec

from harken.errors import HarkenError, NeedsAttention, RetryLater
from harken.http.cloud_metadata_client import MetadataReply, MetadataServer, ask_metadata

__all__ = ["GivenKey", "container_key", "instance_key", "parse_container_uri"]

SESSION_SECONDS = 300
ROLES = "/latest/meta-data/iam/security-credentials/"
_ROLE = re.compile(r"[A-Za-z0-9+=,.@_-]{1,64}")
_WORD = re.compile(r"[\x21-\x7e]{1,4096}")
_SERVERS: dict[str, MetadataServer] = {
    "": "container",
    "http://169.254.170.2": "container",
    "http://169.254.170.23": "pod",
    "http://[fd00:ec2::23]": "pod",
}
_URI = re.compile(r"(https?://[^/?#]*)?(/[^\s#]*)")


class GivenKey(msgspec.Struct, frozen=True, kw_only=True, rename="pascal"):
    access_key_id: str
    secret_access_key: str
    token: str
    expiration: datetime
    code: str = "Success"

    def __repr__(self) -> str:
        return f"<GivenKey {self.access_key_id}>"


_decode = msgspec.json.Decoder(GivenKey).decode


async def instance_key() -> GivenKey:
    """The key of the role of this machine."""
    asked = {"X-aws-ec2-metadata-token-ttl-seconds": str(SESSION_SECONDS)}
    answer = await ask_metadata("instance", "/latest/api/token", method="PUT", headers=asked)
    session = _word(_expect(answer, "a session"))
    headers = {"X-aws-ec2-metadata-token": session}
    listed = await ask_metadata("instance", ROLES, headers=headers)
    if listed.status == 404:
        raise NeedsAttention("this machine has no role", fix="Give it an instance profile, or remove metadata: true")
    names = _expect(listed, "the name of its role").decode("ascii", "replace").split()
    # the name becomes part of an address
    if len(names) != 1 or not _ROLE.fullmatch(names[0]):
        raise _garbled("the name of its role")
    return _key(await ask_metadata("instance", f"{ROLES}{names[0]}", headers=headers))


def parse_container_uri(uri: str) -> tuple[MetadataServer, str]:
    """The server and the path of the address that a container was given. ValueError for any other address."""
    found = _URI.fullmatch(uri)
    if found is None or (found[1] or "") not in _SERVERS:
        raise ValueError("container_uri is a path, or an address at 169.254.170.2 or 169.254.170.23")
    return _SERVERS[found[1] or ""], found[2]


async def container_key(uri: str, authorization: str) -> GivenKey:
    """The key of the role of this container or pod. `authorization` is what its token file has, if there is one."""
    server, path = parse_container_uri(uri)
    if authorization and not _WORD.fullmatch(authorization):
        raise NeedsAttention("container_token_file has no token", fix="Check container_token_file")
    headers = {"Authorization": authorization} if authorization else {}
    return _key(await ask_metadata(server, path, headers=headers))


def _key(reply: MetadataReply) -> GivenKey:
    body = _expect(reply, "a key")
    try:
        found = _decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise _garbled("a key") from None
    words = (found.access_key_id, found.secret_access_key, found.token)
    if found.code != "Success" or found.expiration.tzinfo is None or not all(map(_WORD.fullmatch, words)):
        raise _garbled("a key")
    return found


def _expect(reply: MetadataReply, what: str) -> bytes:
    if reply.status == 200:
        return reply.body
    message = f"the metadata server answered {reply.status} when it was asked for {what}"
    if reply.status in (400, 401, 403, 404):
        raise NeedsAttention(message, fix="Allow the metadata service (version 2) for this machine, and give it a role")
    raise RetryLater(message)


def _word(body: bytes) -> str:
    text = body.decode("ascii", "replace").strip()
    if not _WORD.fullmatch(text):
        raise _garbled("a session")
    return text


def _garbled(what: str) -> HarkenError:
    return RetryLater(f"the metadata server did not answer like Amazon's when it was asked for {what}")
