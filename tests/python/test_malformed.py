"""Input that no client would send: the server answers an error or closes, and goes on serving everybody else."""

import os
import random
import socket
import struct

import msgpack
import pytest

from protocol import CALL, PING, ask, call, frame, is_closed, read_reply

SEED = int(os.environ.get("LYCOSA_TEST_SEED", random.SystemRandom().getrandbits(32)))
ROUNDS = int(os.environ.get("LYCOSA_TEST_FUZZ_ROUNDS", 300))
MIB = 1 << 20


@pytest.fixture
def dice(capsys):
    print(f"LYCOSA_TEST_SEED={SEED}")
    return random.Random(SEED)


@pytest.fixture
def witness(server):
    """A well-behaved connection that must go on working."""
    with server.connect() as sock:
        ask(sock, call(1, "queue.create_tube", "t", "fifo"))
        yield sock
        assert ask(sock, frame(PING, 2)) is None
        [task] = ask(sock, call(3, "queue.tube.t:put", "still here"))
        assert task[2] == "still here"


def test_random_bytes(server, witness, dice):
    for _ in range(ROUNDS):
        with server.connect() as sock:
            try:
                sock.sendall(dice.randbytes(dice.randrange(1, 400)))
            except ConnectionError:
                pass
    server.check_alive()


def valid_requests(dice):
    """Requests of all kinds, as bodies with their codes."""
    number = dice.randrange(5)
    return dice.choice(
        [
            (1, {0x10: 280, 0x11: 0, 0x12: 10, 0x13: 0, 0x14: 2, 0x20: []}),
            (2, {0x10: 512, 0x21: [number, "x"]}),
            (4, {0x10: 512, 0x11: 0, 0x15: 0, 0x20: [number], 0x21: [["=", 1, "y"], [":", 1, 0, 1, "z"]]}),
            (5, {0x10: 512, 0x11: 0, 0x20: [number]}),
            (7, {0x23: "guest", 0x21: ["chap-sha1", b"x" * 20]}),
            (9, {0x10: 512, 0x15: 0, 0x21: [number, "x"], 0x28: [["+", 0, 1]]}),
            (CALL, {0x22: "queue.tube.t:put", 0x21: [{"a": [1, None, 2.5]}, {"ttl": 1, "delay": 0.1, "pri": 1}]}),
            (CALL, {0x22: "queue.tube.t:take", 0x21: [0]}),
            (CALL, {0x22: "queue.tube.t:ack", 0x21: [number]}),
            (CALL, {0x22: "queue.tube.t:release", 0x21: [number, {"delay": 1}]}),
            (CALL, {0x22: "queue.identify", 0x21: [b"0123456789abcdef"]}),
            (CALL, {0x22: "queue.statistics", 0x21: []}),
            (PING, {}),
        ]
    )


def test_mutated_requests(server, witness, dice):
    """Bytes flipped, inserted, removed and cut inside of frames whose length is right."""
    for _ in range(ROUNDS):
        with server.connect() as sock:
            for sync in range(dice.randrange(1, 8)):
                kind, body = valid_requests(dice)
                packet = bytearray(msgpack.packb({0: kind, 1: sync}) + msgpack.packb(body))
                for _ in range(dice.randrange(1, 4)):
                    at = dice.randrange(len(packet))
                    match dice.randrange(4):
                        case 0:
                            packet[at] ^= 1 << dice.randrange(8)
                        case 1:
                            packet[at] = dice.randrange(256)
                        case 2:
                            packet[at:at] = dice.randbytes(dice.randrange(1, 9))
                        case _:
                            del packet[at:]
                            packet.append(0xC0)
                try:
                    sock.sendall(b"\xce" + struct.pack(">I", len(packet)) + packet)
                except ConnectionError:
                    break
    server.check_alive()


def test_a_request_cut_off_anywhere(server, witness):
    whole = call(7, "queue.tube.t:put", "cut", {"ttl": 1})
    for end in range(1, len(whole)):
        with server.connect() as sock:
            sock.sendall(whole[:end])
    server.check_alive()


def test_nothing_of_a_cut_off_request_is_done(server, witness):
    with server.connect() as sock:
        sock.sendall(call(7, "queue.tube.t:put", "never")[:-1])
    [statistics] = ask(witness, call(4, "queue.statistics", "t"))
    assert statistics["tasks"]["total"] == 0


def test_deep_nesting_is_neither_a_crash_nor_a_stall(server, witness):
    for opening, closing in ((b"\x91", b"\xc0"), (b"\x81\xa1a", b"\xc0"), (b"\xdd\x00\x00\x00\x01", b"\xc0")):
        deep = opening * 100_000 + closing
        for body in (
            b"\x82\x22" + msgpack.packb("queue.tube.t:put") + b"\x21\x91" + deep,
            b"\x82\x10\xcd\x02\x00\x21\x91" + deep,
            b"\x82\x10\xcd\x02\x00\x20\x91" + deep,
            b"\x81\x55" + deep,
            deep,
        ):
            for kind in (1, 2, 4, CALL, PING):
                packet = msgpack.packb({0: kind, 1: 1}) + body
                with server.connect() as sock:
                    sock.sendall(b"\xce" + struct.pack(">I", len(packet)) + packet)
                    try:
                        read_reply(sock)
                    except (ConnectionError, ValueError, RecursionError, msgpack.exceptions.UnpackException):
                        pass
    server.check_alive()


def test_lying_lengths_inside_of_a_frame(server, witness):
    """Arrays, maps and texts that claim more than the frame holds must not make the server allocate what they claim."""
    before = server.resident_bytes()
    for marker in (b"\xdd", b"\xdf", b"\xdb", b"\xc6", b"\xc9"):
        claim = marker + b"\xff\xff\xff\xff"
        for kind, key in ((CALL, 0x21), (2, 0x21), (1, 0x20), (9, 0x28), (7, 0x21)):
            with server.connect() as sock:
                body = b"\x82" + msgpack.packb(0x22) + msgpack.packb("queue.state") + msgpack.packb(key) + claim
                packet = msgpack.packb({0: kind, 1: 1}) + body
                sock.sendall(b"\xce" + struct.pack(">I", len(packet)) + packet)
                code, _, _ = read_reply(sock)
                assert code & 0x8000
    assert server.resident_bytes() < before + 64 * MIB


@pytest.mark.parametrize("length", [100 * MIB, (1 << 31) - 1, 1 << 31, (1 << 32) - 1])
def test_an_announced_giant_is_not_made_room_for(server, witness, length):
    """A hundred connections announce a huge frame and send little of it."""
    before = server.resident_bytes()
    socks = []
    try:
        for _ in range(100):
            sock = server.connect()
            socks.append(sock)
            try:
                sock.sendall(b"\xce" + struct.pack(">I", length) + b"\x82\x00" * 1000)
            except ConnectionError:
                pass
        ask(witness, frame(PING, 9))
        assert server.resident_bytes() < before + 64 * MIB
    finally:
        for sock in socks:
            sock.close()


def test_a_length_beyond_32_bits_closes_the_connection(server, witness):
    with server.connect() as sock:
        sock.sendall(b"\xcf" + struct.pack(">Q", 1 << 40) + b"\x00" * 100)
        assert is_closed(sock)


def test_half_closed_connections_are_let_go(server, witness):
    for _ in range(50):
        with server.connect() as sock:
            sock.sendall(frame(PING, 1))
            sock.shutdown(socket.SHUT_WR)
            assert is_closed(sock)
