"""The account of a mail server that is read by IMAP."""

from __future__ import annotations

from ipaddress import ip_address
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, SecretStr, field_validator, model_validator

__all__ = ["CONFIGURE", "Account", "is_here"]

CONFIGURE = "harken integrations imap configure"


class Account(BaseModel):
    """A mail server, and who we are there."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)
    host: str = Field(pattern=r"^[A-Za-z0-9.:_-]{1,253}$", description="name of the mail server")
    port: int = Field(993, ge=1, le=65535, description="usually 993, with tls: starttls 143")
    username: str = Field(min_length=1, max_length=300, description="to sign in; often the whole address")
    password: SecretStr = Field(description="of the user; often an app password")
    tls: Literal["true", "starttls", "false"] = Field(
        "true", description="true, starttls, or false (this machine only)"
    )
    ca_bundle: str = Field("", description="certificates to trust, if your own authority signs the server's")
    timeout: float = Field(9.0, gt=0, le=300, description="seconds for one conversation")

    @field_validator("tls", mode="before")
    @classmethod
    def _as_written(cls, value: Any) -> Any:
        return str(value).lower() if isinstance(value, bool | str) else value

    @field_validator("username")
    @classmethod
    def _one_line(cls, value: str) -> str:
        if not value.isprintable():
            raise ValueError("a username has no control characters")
        return value

    @field_validator("password")
    @classmethod
    def _without_ends(cls, value: SecretStr) -> SecretStr:
        if not value.get_secret_value() or any(char in value.get_secret_value() for char in "\r\n\0"):
            raise ValueError("a password is not empty, and has no line ends")
        return value

    @model_validator(mode="after")
    def _safe(self) -> Account:
        if self.tls == "false" and not is_here(self.host) and self.host.lower() != "localhost":
            raise ValueError("tls: false would send the password in the clear. It is for this machine only")
        return self


def is_here(address: str) -> bool:
    """Whether the address is this machine's own."""
    try:
        return ip_address(address).is_loopback
    except ValueError:
        return False
