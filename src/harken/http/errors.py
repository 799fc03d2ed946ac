"""Translate aiohttp's errors (no response came) to Harken's, which say whether to retry or to ask a person.

aiohttp's messages contain the whole URL with its tokens, so their text is never used.
"""

from __future__ import annotations

import os
import ssl

import aiohttp
from yarl import URL

from harken.errors import HarkenError, NeedsAttention, Refused, RetryLater
from harken.http.guard import server_name

__all__ = ["FAILURES", "translate_error"]

FAILURES = (aiohttp.ClientError, OSError, TimeoutError, ValueError)

# subclasses first: aiohttp's errors inherit from one another
_RETRYABLE: tuple[tuple[type[BaseException], str], ...] = (
    (aiohttp.ClientConnectorDNSError, "the name {host} could not be resolved"),
    (aiohttp.ClientProxyConnectionError, "the proxy could not be reached on the way to {host}"),
    (aiohttp.ClientSSLError, "no TLS connection could be made with {host}"),
    (aiohttp.ClientConnectorError, "could not connect to {host}"),
    (aiohttp.ServerDisconnectedError, "{host} closed the connection without an answer"),
    (aiohttp.ClientPayloadError, "{host} broke off in its answer, or garbled it"),
    (aiohttp.ClientResponseError, "{host} answered with something that is not HTTP"),
    (aiohttp.ClientError, "the connection to {host} failed"),
    (OSError, "the connection to {host} failed"),
)


def translate_error(error: BaseException, url: URL, seconds: float) -> HarkenError:
    """Return the error to raise in place of `error`; it names the host and the kind of failure, nothing else."""
    host = server_name(url)
    if isinstance(error, TimeoutError):
        return RetryLater(f"{host} did not answer completely within {seconds:g} s", reason="timeout")
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        why = getattr(error.certificate_error, "verify_message", "") or "it could not be verified"
        fix = "If it is signed by your own authority, set http.ca_bundle to that authority's certificates"
        return NeedsAttention(f"the certificate of {host} is not trusted ({why})", fix=fix)
    if isinstance(error, aiohttp.ClientHttpProxyError) and error.status == 407:
        return NeedsAttention("the proxy wants other credentials", fix="Check the user and password in http.proxy")
    for kind, message in _RETRYABLE:
        if isinstance(error, kind) and not isinstance(error, ValueError):
            return RetryLater(message.format(host=host) + _cause(error))
    return Refused(f"the request to {host} cannot be sent: its address or a header is not valid")


def _cause(error: BaseException) -> str:
    inner = getattr(error, "os_error", None) or error
    if isinstance(inner, ssl.SSLError) or isinstance(error, aiohttp.ClientConnectorDNSError):
        return ""
    number = getattr(inner, "errno", None)
    return f" ({os.strerror(number).lower()})" if isinstance(number, int) and number > 0 else ""
