"""Frames made by hand, for tests that say what no client would say."""

import socket
import struct

import msgpack

SELECT, EVAL, CALL, PING = 1, 8, 10, 64


def frame(kind, sync, body=None):
    """A request as it goes over the wire."""
    packet = msgpack.packb({0: kind, 1: sync}) + msgpack.packb({} if body is None else body)
    return b"\xce" + struct.pack(">I", len(packet)) + packet


def call(sync, name, *arguments):
    return frame(CALL, sync, {0x22: name, 0x21: list(arguments)})


def read_exactly(sock, count):
    data = b""
    while len(data) < count:
        piece = sock.recv(count - len(data))
        if not piece:
            raise ConnectionError(f"closed after {len(data)} of {count} bytes")
        data += piece
    return data


def read_reply(sock):
    """The next reply: its code, sync and body."""
    prefix = read_exactly(sock, 5)
    assert prefix[0] == 0xCE, prefix
    packet = read_exactly(sock, struct.unpack(">I", prefix[1:])[0])
    unpacker = msgpack.Unpacker(strict_map_key=False, raw=False, unicode_errors="surrogateescape")
    unpacker.feed(packet)
    header = unpacker.unpack()
    try:
        body = unpacker.unpack()
    except msgpack.OutOfData:
        body = {}
    return header[0], header[1], body


def ask(sock, request):
    """Sends one request and gives the data of its reply; an error reply is an assertion."""
    sock.sendall(request)
    code, _, body = read_reply(sock)
    assert code == 0, body.get(0x31)
    return body.get(0x30)


def is_closed(sock, seconds=60):
    """Whether the server closes within this time; what it still sends is thrown away."""
    sock.settimeout(seconds)
    try:
        while sock.recv(1 << 16):
            pass
    except socket.timeout:
        return False
    except ConnectionError:
        return True
    return True
