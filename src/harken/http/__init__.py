"""The one HTTP client: bounded in time and size, guarded on the address it dials, and honest about what went wrong."""

from harken.http.client import Client, HttpSettings
from harken.http.metered import Metered
from harken.http.redact import redact
from harken.http.replies import Reply, Validators, mended, raise_for

__all__ = ["Client", "HttpSettings", "Metered", "Reply", "Validators", "mended", "raise_for", "redact"]
