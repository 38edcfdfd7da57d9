"""The standing of a server for a client with several addresses: whether it takes writes, and whether it leads its group.

VOTE needs no log-in. A member of a group that does not lead passes it on to the leader, so an answer proves that the group has one.
Here are only bytes and decisions; the sockets are those of the two clients.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import msgpack

from .address import Address
from .errors import LycosaError, NoMaster, UnexpectedAnswer

GREETING_SIZE = 128
#: The request: a length, the header {type: VOTE, sync: 1} and an empty body.
VOTE = bytes.fromhex("ce00000006" "82004401" "01" "80")
#: The bytes of an answer's length.
LENGTH_SIZE = 5

_BALLOT, _IS_READ_ONLY, _FOLLOWING, _BEFORE_REPLY, _ELECTION = 0x29, 0x04, 0x60, 0x61, 0x63

#: Seconds for which the leader of a group is waited for when another member has answered.
LEADER_GRACE = 0.1
#: Seconds for which other servers are waited for when one takes writes and may not be the only one.
RIVAL_GRACE = 1.0
#: Seconds between two looks at calls in progress.
TICK = 0.1
#: Seconds between two looks at a server whose calls wait by intention.
IDLE_PERIOD = 1.0
#: Seconds for which all servers may take to answer before they are asked again.
ROUND = 1.0


@dataclass(frozen=True)
class Standing:
    """The answer of one server."""

    #: The UUID in the greeting: one for all members of a group; each other server has its own.
    instance: str
    #: None: it does not say, as it does not know the request.
    takes_writes: bool | None
    #: Of a member of a group: whether it passes requests on to the leader.
    forwards: bool | None
    #: It confirms changes, and replicas follow it if it has any.
    is_sound: bool = True

    @property
    def is_best(self) -> bool:
        """No other server can be a better choice."""
        return self.takes_writes is True and self.is_sound and not self.forwards

    @property
    def grace(self) -> float:
        """Seconds for which a better one is waited for."""
        return LEADER_GRACE if self.forwards else RIVAL_GRACE

    @property
    def patience(self) -> float:
        """Seconds without a sign of life after which the server counts as silent."""
        return 0.2 if self.forwards is not None else 2.0

    def replaces(self, known: Standing) -> bool:
        """Whether this server takes the place of one that says nothing any more, and said `known` when it was chosen."""
        if known.forwards is not None:
            return self.instance == known.instance and self.takes_writes is True
        return self.takes_writes is True and self.is_sound


class Choice:
    """The choice among servers that answer one after the other."""

    def __init__(self) -> None:
        #: When a better server is not waited for any longer; None: no server will do so far.
        self.deadline: float | None = None
        self._best: tuple[Address, Standing] | None = None
        self._reasons: list[str] = []

    def is_open(self, now: float) -> bool:
        """Whether further answers are waited for."""
        return self.deadline is None or now < self.deadline

    def note(self, address: Address, answer: Standing | LycosaError, now: float) -> None:
        """Weighs the answer of one server."""
        if isinstance(answer, LycosaError):
            self._reasons.append(str(answer))
        elif answer.takes_writes is False:
            self._reasons.append(f"{address} takes no writes")
        else:
            until = now if answer.is_best else now + answer.grace
            self.deadline = until if self.deadline is None else min(self.deadline, until)
            if self._best is None or answer.is_best or answer.is_sound and not self._best[1].is_sound:
                self._best = address, answer

    def best(self) -> tuple[Address, Standing]:
        """The server to connect to. Raises NoMaster."""
        if self._best is None:
            raise NoMaster("no server takes writes: " + "; ".join(sorted(self._reasons)))
        return self._best


def is_due(calls: Iterable[float], asked: float, now: float) -> bool:
    """Whether a server is to be asked for a sign of life. `calls` are the times at which its calls in progress began.

    A call that was answered at once asks nothing. One that waits is followed soon, and once a second from then on.
    """
    waiting = [began for began in calls if now - began >= TICK]
    return bool(waiting) and (now - asked >= IDLE_PERIOD or any(asked - began < TICK for began in waiting))


def length_of(head: bytes) -> int:
    """How many bytes of the answer follow its length."""
    if len(head) != LENGTH_SIZE or head[0] != 0xCE:
        raise UnexpectedAnswer("the answer to VOTE has no length")
    return min(int.from_bytes(head[1:], "big"), 1 << 16)


def read(greeting: bytes, answer: bytes) -> Standing:
    """Reads the answer to VOTE, without its length, and the greeting that came before it."""
    words = greeting[:63].split()
    if not words or words[0] != b"Tarantool":
        raise UnexpectedAnswer("the peer is no Lycosa or Tarantool")
    instance = words[-1].decode("ascii", "replace")
    unpacker = msgpack.Unpacker(raw=False, strict_map_key=False, unicode_errors="surrogateescape")
    unpacker.feed(answer)
    try:
        header, body = unpacker.unpack(), unpacker.unpack()
        ballot: Any = body.get(_BALLOT) if header.get(0) == 0 else None
    except (msgpack.UnpackException, ValueError, AttributeError) as error:
        raise UnexpectedAnswer(f"the answer to VOTE cannot be read: {error}") from error
    if not isinstance(ballot, dict):
        return Standing(instance, None, None)
    election = ballot.get(_ELECTION)
    following, wanted = ballot.get(_FOLLOWING), ballot.get(_BEFORE_REPLY, 0)
    return Standing(
        instance,
        not ballot.get(_IS_READ_ONLY),
        bool(election[1]) if isinstance(election, list) and len(election) > 1 else None,
        following is None or following >= max(wanted, 1),
    )
