"""One connection of the blocking client, on top of the connector `tarantool`.

The connector reconnects in the middle of a call, which would change the queue session without a word, and it checks no
host name under TLS. This subclass leaves reconnecting to the client and checks certificates as Python does by default.
"""

from __future__ import annotations

import contextlib
import select
import socket
import ssl
import time
from collections.abc import Iterator
from typing import Any

import msgpack
import tarantool
from tarantool.error import DatabaseError, InterfaceError, MsgpackError, NetworkError, SslError

from .address import Address, Options
from .errors import ConnectionFailed, Disconnected, LycosaError, RequestTimeout, UnexpectedAnswer, server_error


def _unpacker(_: Any) -> Any:
    # Text that is not UTF-8 keeps its bytes as surrogates: a session's id is such a text.
    return msgpack.Unpacker(raw=False, strict_map_key=False, unicode_errors="surrogateescape", ext_hook=_extension)


def _extension(code: int, data: bytes) -> Any:
    from tarantool.msgpack_ext.unpacker import ext_hook

    return ext_hook(code, data, _unpacker(None))


def tls_socket(plain: socket.socket, address: Address, options: Options) -> ssl.SSLSocket:
    """Speaks TLS over a connected socket, and checks the certificate and the name of the host."""
    context = ssl.create_default_context(cafile=options.tls_ca)
    if options.tls_certificate is not None:
        context.load_cert_chain(options.tls_certificate, options.tls_key)
    return context.wrap_socket(plain, server_hostname=address.host)


class _Connector(tarantool.Connection):  # type: ignore[misc]
    _socket: Any

    def __init__(self, address: Address, options: Options) -> None:
        self.address, self.options = address, options
        super().__init__(
            host=address.host,
            port=address.port,
            user=options.user,
            password=options.password or ("" if options.user else None),
            connection_timeout=options.attempt_timeout,
            # For greeting and log-in; each call has a timeout of its own.
            socket_timeout=options.attempt_timeout,
            fetch_schema=False,
            transport="ssl" if address.tls else "",
            unpacker_factory=_unpacker,
        )

    def wrap_socket_ssl(self) -> None:
        try:
            self._socket = tls_socket(self._socket, self.address, self.options)
        except (OSError, ValueError) as error:
            raise SslError(error) from error

    def _opt_reconnect(self) -> None:
        if self._socket is None:
            raise NetworkError(OSError(107, "the connection is closed"))

    def is_stale(self) -> bool:
        """Whether the server has closed the connection, or has said something that was not asked."""
        if self._socket is None:
            return True
        poll = select.poll()
        poll.register(self._socket, select.POLLIN)
        return bool(poll.poll(0))

    def abort(self) -> None:
        """Ends the connection under a call of another thread, which fails."""
        # The socket may be gone already, or not be connected.
        with contextlib.suppress(OSError, AttributeError):
            socket.socket.shutdown(self._socket, socket.SHUT_RDWR)

    def set_timeout(self, timeout: float) -> None:
        if self._socket is not None:
            self._socket.settimeout(timeout)


class Connection:
    """A connection that is used by one thread at a time. The first error of the network closes it for good."""

    def __init__(self, address: Address, options: Options) -> None:
        """Connects and logs in."""
        self.address = address
        #: The queue session that it has joined.
        self.session: bytes | None = None
        #: When the call in progress began.
        self.began = 0.0
        self._options = options
        try:
            self._connector = _Connector(address, options)
        except (DatabaseError, InterfaceError, OSError) as error:
            raise _connect_error(address, error) from error

    def is_usable(self) -> bool:
        """Whether the next call has a chance."""
        return not self._connector.is_stale()

    def close(self) -> None:
        """Ends the connection."""
        with contextlib.suppress(OSError):
            self._connector.close()

    def abort(self) -> None:
        """Ends the connection under the call in progress, which raises Disconnected."""
        self._connector.abort()

    def call(self, function: str, arguments: list[Any], wait: float) -> list[Any]:
        """The values that a function returns, for which the server may wait `wait` seconds."""
        with self._errors(function):
            self.began = time.monotonic()
            self._connector.set_timeout(self._options.request_timeout + wait)
            data = self._connector.call(function, arguments).data
            return [] if data is None else list(data)

    @contextlib.contextmanager
    def _errors(self, function: str) -> Iterator[None]:
        try:
            yield
        except (NetworkError, SslError, OSError) as error:
            self.close()
            if _is_timeout(error):
                limit = self._options.request_timeout
                raise RequestTimeout(f"{self.address}: no answer to {function} within {limit:g} s") from error
            raise Disconnected(f"{self.address}: the connection ended before {function} was answered") from error
        except DatabaseError as error:
            raise _refusal(error) from error
        except (InterfaceError, MsgpackError, msgpack.UnpackException, ValueError, KeyError, TypeError) as error:
            # The rest of the stream cannot be read either. An argument that has no form in MessagePack was never sent.
            if isinstance(error, TypeError):
                raise
            self.close()
            raise UnexpectedAnswer(f"{self.address}: the answer to {function} cannot be read: {error}") from error
        except BaseException:
            # An interrupted call leaves its answer in the socket, where the next call would find it.
            self.close()
            raise


def _is_timeout(error: BaseException | None) -> bool:
    while error is not None:
        if isinstance(error, TimeoutError):
            return True
        error = error.__cause__
    return False


def _refusal(error: DatabaseError) -> LycosaError:
    code, message = (*error.args, 0, "")[:2]
    info = getattr(error, "extra_info", None)
    name = (getattr(info, "fields", None) or {}).get("name")
    return server_error(int(code or 0), str(message), name)


def _connect_error(address: Address, error: BaseException) -> LycosaError:
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, DatabaseError) and not isinstance(cause, (NetworkError, SslError)):
            return _refusal(cause)
        last, cause = cause, cause.__cause__
    return ConnectionFailed(f"cannot connect to {address}: {last}")
