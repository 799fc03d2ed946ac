"""The HTTP client of Harken and its services: limits on time and size, no access to private networks, clear errors."""

from harken.http.client import Client, HttpSettings
from harken.http.connectivity import Connectivity
from harken.http.known_secret_redaction import redact
from harken.http.rate_limited_client import Metered
from harken.http.replies import Reply, Validators, mended, raise_for
from harken.http.service_clock import ServiceClock

__all__ = [
    "Client",
    "Connectivity",
    "HttpSettings",
    "Metered",
    "Reply",
    "ServiceClock",
    "Validators",
    "mended",
    "raise_for",
    "redact",
]
