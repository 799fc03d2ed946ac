"""Translate aiohttp's errors (no response came) to Harken's, which say whether to retry or to ask a person.

aiohttp's messages contain the whole URL with its tokens, so their text is never used.
"""

from __future__ import annotations

import errno
import os
import socket
import ssl

import aiohttp
from yarl import URL

from harken.errors import ConnectionFault, HarkenError, NeedsAttention, NoConnection, Refused, RetryLater
from harken.http.guard import server_name

__all__ = ["FAILURES", "connection_fault", "translate_error"]

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

_NO_ROUTE = frozenset({errno.ENETUNREACH, errno.ENETDOWN, errno.EADDRNOTAVAIL})


def translate_error(error: BaseException, url: URL, seconds: float, *, private: bool = False) -> HarkenError:
    """Return the error to raise in place of `error`; it names the host and the kind of failure, nothing else.

    `private`: the request may go to a private network."""
    host = server_name(url)
    if isinstance(error, aiohttp.ConnectionTimeoutError):
        message = f"{host} did not answer completely within {seconds:g} s"
        return NoConnection(message, host=url.host or "", cause="timeout", private=private, reason="timeout")
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
            text, fault = message.format(host=host) + _cause(error), connection_fault(error)
            return NoConnection(text, host=url.host or "", cause=fault, private=private) if fault else RetryLater(text)
    return Refused(f"the request to {host} cannot be sent: its address or a header is not valid")


def connection_fault(error: BaseException) -> ConnectionFault | None:
    """What was met on the way, if no connection could be made; None if there was one, or TLS refused it."""
    if isinstance(error, aiohttp.ClientSSLError) or not isinstance(error, aiohttp.ClientConnectorError | OSError):
        return None
    if isinstance(error, aiohttp.ClientProxyConnectionError):
        # every request goes through it: without it there is no way out
        return "no_route"
    inner = getattr(error, "os_error", None) or error
    if isinstance(inner, socket.gaierror):
        return "no_dns" if inner.errno == socket.EAI_AGAIN else "unknown_name"
    if isinstance(error, aiohttp.ClientConnectorDNSError):
        return "unknown_name"
    if inner.errno in _NO_ROUTE:
        return "no_route"
    refused = inner.errno in (errno.ECONNREFUSED, errno.EHOSTUNREACH, errno.EHOSTDOWN)
    # without a number it stands for several addresses, each of which failed in its own way
    return "refused" if refused or isinstance(error, aiohttp.ClientConnectorError) else None


def _cause(error: BaseException) -> str:
    inner = getattr(error, "os_error", None) or error
    if isinstance(inner, ssl.SSLError) or isinstance(error, aiohttp.ClientConnectorDNSError):
        return ""
    number = getattr(inner, "errno", None)
    return f" ({os.strerror(number).lower()})" if isinstance(number, int) and number > 0 else ""
