"""The account of a mail server."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, SecretStr, field_validator, model_validator

from harken.errors import HarkenError
from harken.services.email.message import address

__all__ = ["Account"]

_PORTS = {"starttls": 587, "ssl": 465, "none": 25}


class Account(BaseModel):
    """A mail server, and who we are there."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)
    host: str = Field(pattern=r"^[A-Za-z0-9.:_-]{1,253}$", description="name of the mail server")
    sender: str = Field(description="where letters come from: harken@example.com, or Harken <harken@example.com>")
    security: Literal["starttls", "ssl", "none"] = Field("starttls", description="starttls, ssl, or none")
    port: int = Field(0, ge=0, le=65535, description="0 for the usual one: 587 (starttls), 465 (ssl) or 25 (none)")
    username: str = Field("", description="to sign in; empty where the server wants nobody to")
    password: SecretStr | None = Field(None, description="of the user; often an app password")
    ca_bundle: str = Field("", description="certificates to trust, if your own authority signs the server's")
    timeout: float = Field(20.0, gt=0, le=300, description="seconds for the whole conversation")

    @field_validator("sender")
    @classmethod
    def _one_address(cls, value: str) -> str:
        try:
            address(value)
        except HarkenError as error:
            raise ValueError(error.message) from None
        return value.strip()

    @model_validator(mode="after")
    def _safe(self) -> Account:
        if bool(self.username) != (self.password is not None):
            raise ValueError("username and password belong together")
        if self.password is not None and self.security == "none":
            raise ValueError("security: none would send the password in the clear. Use starttls or ssl")
        return self

    @property
    def gate(self) -> int:
        """The port to knock at."""
        return self.port or _PORTS[self.security]
