"""What signs in at Google: a client of your own Google Cloud project, and the consent of one user.

https://developers.google.com/identity/protocols/oauth2/native-app
"""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field, SecretStr, field_validator

from harken.kit.account_fields import server_address, word

__all__ = ["CONFIGURE", "GoogleAccount", "OAuthClient"]

CONFIGURE = "harken integrations google configure"


class OAuthClient(BaseModel):
    """Who asks for consent, and where."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)
    client_id: str = Field(description="id of an OAuth client of the type Desktop app, in your Google Cloud project")
    client_secret: SecretStr = Field(description="secret of this client")
    base_url: str = Field("", description="address of something that stands in for Google (optional)")

    @field_validator("client_id")
    @classmethod
    def _client(cls, value: str) -> str:
        return word(value, "an OAuth client's id, such as 1234-abcd.apps.googleusercontent.com")

    @field_validator("client_secret")
    @classmethod
    def _secret(cls, value: SecretStr) -> SecretStr:
        return _hidden_word(value)

    @field_validator("base_url")
    @classmethod
    def _address(cls, value: str) -> str:
        if value:
            server_address(value, "an address, such as http://127.0.0.1:8085")
        return value.rstrip("/")

    def address(self, home: str, path: str) -> str:
        """The address of a path at Google's host `home`, or at what stands in for all of them."""
        return f"{self.base_url or f'https://{home}'}{path}"

    @property
    def token_url(self) -> str:
        return self.address("oauth2.googleapis.com", "/token")

    @property
    def consent_url(self) -> str:
        return self.address("accounts.google.com", "/o/oauth2/v2/auth")

    @property
    def device_url(self) -> str:
        return self.address("oauth2.googleapis.com", "/device/code")

    @property
    def gmail_url(self) -> str:
        return self.address("gmail.googleapis.com", "/gmail/v1")

    @property
    def calendar_url(self) -> str:
        return self.address("www.googleapis.com", "/calendar/v3")


class GoogleAccount(OAuthClient):
    """An OAuth client and the refresh token that one user's consent gave it."""

    refresh_token: SecretStr = Field(description="what the user's consent gave; configure has it given in a browser")

    @field_validator("refresh_token")
    @classmethod
    def _token(cls, value: SecretStr) -> SecretStr:
        return _hidden_word(value)


def _hidden_word(value: SecretStr) -> SecretStr:
    return SecretStr(word(value.get_secret_value(), "a secret of Google, which is one word without spaces"))
