"""Base classes for what people write in YAML: an account, a query, the parameters of an action.

All of them refuse fields that they do not know, so that a typing error is found before anything is read, and cannot be
changed once they are validated.
"""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict

from harken.kit.digest import digest_of_json

__all__ = ["AccountModel", "ParamsModel", "QueryModel"]


class AccountModel(BaseModel):
    """How an integration signs in. Validation errors never show the value, because it may be a secret."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)


class ParamsModel(BaseModel):
    """What a step passes to an action, or an agent to a tool."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class QueryModel(BaseModel):
    """What a feed asks for."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    def fingerprint(self) -> str:
        """A digest that changes with any field. Keep it in the cursor to notice that the query was edited."""
        return digest_of_json(self.model_dump(mode="json"))
