"""Several servers and the blocking client: which one is connected to, and when it is left because it says nothing."""

from __future__ import annotations

import queue
import socket
import threading
import time
import weakref
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from . import _standing
from ._connection import tls_socket
from ._standing import Choice, Standing
from .address import Address, Options
from .errors import ConnectionFailed, LycosaError

if TYPE_CHECKING:
    from .client import Client


def ask(address: Address, options: Options, timeout: float) -> Standing:
    """The standing of a server, asked on a connection of its own."""
    deadline = time.monotonic() + timeout
    try:
        with socket.create_connection((address.host, address.port), timeout) as plain:
            plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with tls_socket(plain, address, options) if address.tls else plain as stream:
                greeting = _exactly(stream, _standing.GREETING_SIZE, deadline)
                stream.sendall(_standing.VOTE)
                length = _standing.length_of(_exactly(stream, _standing.LENGTH_SIZE, deadline))
                return _standing.read(greeting, _exactly(stream, length, deadline))
    except (OSError, ValueError) as error:
        raise ConnectionFailed(f"cannot connect to {address}: {error}") from error


def _exactly(stream: socket.socket, count: int, deadline: float) -> bytes:
    received = b""
    while len(received) < count:
        left = deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError("it says nothing")
        stream.settimeout(left)
        piece = stream.recv(count - len(received))
        if not piece:
            raise ConnectionError("it closed the connection")
        received += piece
    return received


def ask_all(
    addresses: Sequence[Address], options: Options, timeout: float
) -> Iterator[tuple[Address, Standing | LycosaError] | None]:
    """Asks all at once. Gives each answer when it comes, and None now and then while there is none."""
    answers: queue.SimpleQueue[tuple[Address, Standing | LycosaError]] = queue.SimpleQueue()

    def ask_one(address: Address) -> None:
        try:
            answers.put((address, ask(address, options, timeout)))
        except LycosaError as error:
            answers.put((address, error))

    for address in addresses:
        threading.Thread(target=ask_one, args=(address,), name="lycosa-vote", daemon=True).start()
    left = len(addresses)
    while left:
        try:
            answer = answers.get(timeout=0.02)
        except queue.Empty:
            yield None
            continue
        left -= 1
        yield answer


def choose(options: Options) -> tuple[Address, Standing]:
    """The server that takes writes; of a group its leader, or after a short time a member that passes requests on."""
    choice = Choice()
    for answer in ask_all(options.addresses, options, options.connect_timeout):
        if answer is not None:
            choice.note(*answer, time.monotonic())
        if not choice.is_open(time.monotonic()):
            break
    return choice.best()


def is_replaced(address: Address, known: Standing, options: Options) -> bool:
    """Whether the server says nothing to a new client either, while another one serves."""
    patient_until, ends = time.monotonic() + known.patience, time.monotonic() + known.patience + _standing.ROUND
    serves = False
    for answer in ask_all(options.addresses, options, known.patience + _standing.ROUND):
        if answer is not None and isinstance(answer[1], Standing):
            if answer[0] == address:
                return False
            serves = serves or answer[1].replaces(known)
        now = time.monotonic()
        if serves and now >= patient_until:
            return True
        if now >= ends:
            return False
    return serves


class Lookout:
    """A thread that looks at the calls in progress of a client, and leaves a server that says nothing while another one serves."""

    def __init__(self, client: Client) -> None:
        self._client = weakref.ref(client)
        self._calls = threading.Event()
        threading.Thread(target=self._run, name="lycosa-lookout", daemon=True).start()

    def note_call(self) -> None:
        """A call begins, or the client is closed."""
        self._calls.set()

    def _run(self) -> None:
        asked: dict[Address, float] = {}
        while True:
            self._calls.wait(_standing.IDLE_PERIOD)
            client = self._client()
            if client is None or client._is_closed:
                return
            self._calls.clear()
            # The calls that have begun just now get time for their answers.
            time.sleep(_standing.TICK)
            busy = client._busy()
            if busy:
                self._calls.set()
            for address, calls in busy.items():
                known, now = client._standings.get(address), time.monotonic()
                if known is not None and _standing.is_due(calls, asked.get(address, 0.0), now):
                    asked[address] = now
                    self._look(client, address, known)
            del client

    def _look(self, client: Client, address: Address, known: Standing) -> None:
        try:
            ask(address, client._options, known.patience)
        except LycosaError:
            if is_replaced(address, known, client._options):
                client._leave(address)
