"""What authors of services share, built-in or not. The names that most services need can be imported from here.

The other modules each have one purpose, which their first line tells: docs/how-to/write-a-service.md has the table.
"""

from harken.kit.account_fields import basic_auth, configure_hint, one_word
from harken.kit.cursor import dump_cursor, load_cursor
from harken.kit.fields import instant, text_of
from harken.kit.json_api import JsonApi
from harken.kit.models import AccountModel, ParamsModel, QueryModel

__all__ = [
    "AccountModel",
    "JsonApi",
    "ParamsModel",
    "QueryModel",
    "basic_auth",
    "configure_hint",
    "dump_cursor",
    "instant",
    "load_cursor",
    "one_word",
    "text_of",
]
