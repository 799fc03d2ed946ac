"""The same client and clock as the services' tests have."""

from tests.services.conftest import clock, host

__all__ = ["clock", "host"]
