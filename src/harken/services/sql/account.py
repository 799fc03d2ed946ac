"""Which database, and who we are there: an address, or its parts. Nothing of it but the host and name is ever shown."""

from __future__ import annotations

from typing import Any, Literal, TypeAlias
from urllib.parse import parse_qsl, unquote, urlsplit

import msgspec
from pydantic import BaseModel, ConfigDict, Field, SecretStr, field_validator, model_validator

__all__ = ["Account", "Address", "Engine", "Tls"]

Engine: TypeAlias = Literal["postgresql", "mysql", "sqlite"]
Tls: TypeAlias = Literal["off", "prefer", "require", "verify"]

_ENGINES: dict[str, Engine] = {
    "postgresql": "postgresql",
    "postgres": "postgresql",
    "mysql": "mysql",
    "mariadb": "mysql",
    "sqlite": "sqlite",
}
_PORTS: dict[Engine, int] = {"postgresql": 5432, "mysql": 3306, "sqlite": 0}
_TLS: dict[str, Tls] = {
    "disable": "off",
    "allow": "prefer",
    "prefer": "prefer",
    "require": "require",
    "verify-ca": "verify",
    "verify-full": "verify",
}
_ENCODE = "Write special characters of the user and password as %XX, or give the parts instead of a url"


class Address(msgspec.Struct, frozen=True, kw_only=True):
    """How a database is reached. `host` may be the path of a socket; `database` of SQLite is the path of the file."""

    engine: Engine
    database: str
    host: str = ""
    port: int = 0
    user: str = ""
    password: str = ""
    tls: Tls = "prefer"
    ca: str = ""

    def __repr__(self) -> str:
        return f"Address({self.shown})"

    @property
    def shown(self) -> str:
        """What an error may say of it."""
        if self.engine == "sqlite":
            return self.database
        where = self.host if self.host.startswith("/") else f"{self.host}:{self.port}"
        return f"{self.database or 'the default database'} at {where}"


class Account(BaseModel):
    """A database, by `url` or by its parts."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)
    url: SecretStr | None = Field(
        None, description="postgresql://user:password@host:port/database, mysql://…, mariadb://… or sqlite:///path"
    )
    engine: Literal["postgresql", "mysql", "mariadb", "sqlite"] | None = Field(
        None, description="instead of url: postgresql, mysql, mariadb or sqlite, with the fields below"
    )
    host: str = Field("", description="name or address of the server, or the path of its socket")
    port: int = Field(0, ge=0, le=65535, description="0 for the usual one: 5432 (PostgreSQL) or 3306 (MySQL, MariaDB)")
    database: str = Field("", description="name of the database; for sqlite the path of the file")
    user: str = Field("", description="to sign in; one that may only SELECT is enough")
    password: SecretStr | None = Field(None, description="of the user")
    tls: Tls | None = Field(
        None, description="off, prefer (default), require, or verify: encrypted, and the certificate must be valid"
    )
    ca: str = Field("", description="file of certificates to trust, if your own authority signs the server's")

    @field_validator("url")
    @classmethod
    def _readable(cls, value: SecretStr | None) -> SecretStr | None:
        if value is not None:
            _read(value.get_secret_value())
        return value

    @model_validator(mode="after")
    def _one_way(self) -> Account:
        parts = [self.engine, self.host, self.port, self.database, self.user, self.password]
        if self.url is not None and any(parts):
            raise ValueError("write url or the parts, not both")
        if self.url is None and self.engine is None:
            raise ValueError("which database? Write url: postgresql://user:password@host/database, or engine and parts")
        if self.url is None and self.engine != "sqlite" and not self.host:
            raise ValueError("host is missing")
        if self.address.engine == "sqlite" and not self.address.database:
            raise ValueError("the path of the SQLite file is missing")
        return self

    @property
    def address(self) -> Address:
        """The database as it is reached."""
        if self.url is not None:
            found = _read(self.url.get_secret_value())
        else:
            engine = _ENGINES[self.engine or ""]
            found = Address(
                engine=engine,
                database=self.database,
                host=self.host,
                port=self.port or _PORTS[engine],
                user=self.user,
                password=self.password.get_secret_value() if self.password else "",
            )
        return msgspec.structs.replace(found, tls=self.tls or found.tls, ca=self.ca)


def _read(url: str) -> Address:
    try:
        parts = urlsplit(url.strip())
        port = parts.port
    except ValueError:
        # the parser's own words may hold a piece of the password
        raise ValueError(f"this is not an address. {_ENCODE}") from None
    engine = _ENGINES.get(parts.scheme.partition("+")[0])
    if engine is None:
        raise ValueError("the address must begin with postgresql://, mysql://, mariadb:// or sqlite:///")
    if parts.fragment:
        raise ValueError(f"the address has a # in it. {_ENCODE}")
    if engine == "sqlite":
        if parts.netloc or parts.query:
            raise ValueError("write sqlite:///path, with four slashes for one from the root: sqlite:////var/lib/app.db")
        return Address(engine=engine, database=unquote(parts.path[1:]))
    options = _options(parts.query)
    host = options.get("host") or unquote(parts.hostname or "")
    if not host:
        raise ValueError(f"the address names no host. {_ENCODE}")
    return Address(
        engine=engine,
        database=unquote(parts.path[1:]),
        host=host,
        port=port or _PORTS[engine],
        user=unquote(parts.username or ""),
        password=unquote(parts.password or ""),
        tls=_tls(options),
    )


def _options(query: str) -> dict[str, Any]:
    options = dict(parse_qsl(query, keep_blank_values=True))
    if set(options) - {"sslmode", "host"}:
        raise ValueError("only sslmode and host may stand behind the ? of the address")
    return options


def _tls(options: dict[str, Any]) -> Tls:
    mode = options.get("sslmode", "prefer")
    if mode not in _TLS:
        raise ValueError(f"sslmode is one of {', '.join(_TLS)}")
    return _TLS[mode]
