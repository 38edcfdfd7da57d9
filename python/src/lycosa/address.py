"""Where servers are: addresses, TLS, credentials, and how long to wait for them."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from urllib.parse import unquote

DEFAULT_ADDRESS = "127.0.0.1:3301"
DEFAULT_PORT = 3301


@dataclass(frozen=True)
class Address:
    """One server."""

    host: str
    port: int
    tls: bool

    @classmethod
    def parse(cls, text: str) -> Address:
        """Reads `HOST`, `HOST:PORT`, `[IPV6]:PORT`, each perhaps behind `tls://`."""
        scheme, _, rest = text.strip().rpartition("://")
        if scheme not in ("", "tls", "tcp"):
            raise ValueError(f'address "{text}": "{scheme}://" is no scheme of a server; use HOST:PORT or tls://HOST:PORT')
        if rest.startswith("["):
            host, _, port = rest[1:].partition("]")
            port = port.removeprefix(":")
        elif rest.count(":") > 1:
            host, port = rest, ""
        else:
            host, _, port = rest.partition(":")
        if not host or "@" in host:
            raise ValueError(f'address "{text}": expected HOST:PORT; user and password are arguments of their own')
        if port and not (port.isascii() and port.isdigit() and 0 < int(port) < 65536):
            raise ValueError(f'address "{text}": "{port}" is no port; expected a number from 1 to 65535')
        return cls(unquote(host), int(port) if port else DEFAULT_PORT, scheme == "tls")

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'tls://' if self.tls else ''}{host}:{self.port}"


@dataclass(frozen=True)
class Options:
    """How a client reaches its servers."""

    addresses: tuple[Address, ...]
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    #: Seconds for which a call waits for its answer, beyond those for which the server may wait.
    request_timeout: float = 30.0
    #: Seconds for which a call tries to get a connection before it fails.
    connect_timeout: float = 10.0
    #: Files in PEM form for `tls://`.
    tls_ca: str | None = None
    tls_certificate: str | None = None
    tls_key: str | None = None

    @property
    def attempt_timeout(self) -> float:
        """Seconds for a connection to one server, greeting and log-in included. Of several addresses another one gets a turn then."""
        return self.connect_timeout if len(self.addresses) == 1 else self.connect_timeout / 3

    @classmethod
    def of(
        cls,
        address: str | Iterable[str] | None,
        user: str | None,
        password: str | None,
        request_timeout: float,
        connect_timeout: float,
        tls_ca: str | None = None,
        tls_certificate: str | None = None,
        tls_key: str | None = None,
    ) -> Options:
        """What a program has given; what it leaves out comes from the variables that `lycosa` reads, too."""
        if address is None:
            address = os.environ.get("LYCOSA_ADDRESS") or DEFAULT_ADDRESS
        texts = address.split(",") if isinstance(address, str) else list(address)
        if not texts:
            raise ValueError("a client needs an address")
        if user is None:
            user = os.environ.get("LYCOSA_USER")
        if password is None and user is not None:
            password = os.environ.get("LYCOSA_PASSWORD")
        return cls(
            tuple(Address.parse(text) for text in texts),
            user,
            password,
            request_timeout,
            connect_timeout,
            tls_ca if tls_ca is not None else os.environ.get("LYCOSA_TLS_CA"),
            tls_certificate if tls_certificate is not None else os.environ.get("LYCOSA_TLS_CERTIFICATE"),
            tls_key if tls_key is not None else os.environ.get("LYCOSA_TLS_KEY"),
        )


def pauses() -> Iterable[float]:
    """Seconds between two attempts to connect: short ones first, never more than one."""
    pause = 0.02
    while True:
        yield pause
        pause = min(pause * 2, 1.0)
