"""What one client notices while strangers and other users send a kind of request without pause.

    python tests/python/strangers.py [--seconds N] [--attackers N] [--only WORD]

`LYCOSA_BIN` names the server, as for the tests; a release build is meant. Each kind is sent by several processes, in bursts, by
a guest without rights or by a user of one tube. Beside them a process sends a PING, in turn to the server and to a second one
that only this process talks to: the second one's times tell what the machine itself costs. It prints one JSON object for each kind,
times in milliseconds, memory in MiB.
"""

import argparse
import base64
import hashlib
import json
import multiprocessing
import os
import socket
import struct
import time

import msgpack

from protocol import PING, ask, call, frame, read_reply
from server import ADMIN_PASSWORD, Server

SELECT, INSERT, REPLACE, UPDATE, DELETE, AUTH, EVAL, UPSERT, EXECUTE, PREPARE = 1, 2, 3, 4, 5, 7, 8, 9, 11, 13
JOIN, SUBSCRIBE, VOTE, FETCH_SNAPSHOT, ID = 65, 66, 68, 69, 73
PASSWORD = "ann's"
MIB = 1 << 20
# Of the tube, before a kind is sent.
TASKS = 2_000


class Guarded(Server):
    """A server on which guests have no right, with a user `ann` of the tube `mail`."""

    def _config(self):
        lines = [f'listen = "{self.host}:{self.port}"', f'data_dir = "{self.folder / "data"}"', "guest_on_loopback = false"]
        for name, password, more in [("admin", ADMIN_PASSWORD, ""), ("ann", PASSWORD, 'tubes = ["mail"]')]:
            lines += ["", "[[user]]", f'name = "{name}"', f'password = "{password}"', more]
        lines += ["", "[[tube]]", 'name = "mail"', 'type = "fifottl"']
        return "\n".join(lines) + "\n"

    def login(self, user, password):
        """A socket of that user, with the greeting's salt used up."""
        sock = socket.create_connection((self.host, self.port), 60)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        greeting = b""
        while len(greeting) < 128:
            greeting += sock.recv(128 - len(greeting))
        salt = base64.b64decode(greeting[64:108])[:20]
        first = hashlib.sha1(password.encode()).digest()
        second = hashlib.sha1(salt + hashlib.sha1(first).digest()).digest()
        scramble = bytes(left ^ right for left, right in zip(first, second))
        sock.sendall(frame(AUTH, 1, {0x23: user, 0x21: ["chap-sha1", scramble]}))
        code, _, body = read_reply(sock)
        assert code == 0, body
        return sock


def nested(depth):
    return b"\x91" * depth + b"\xc0"


def raw(kind, body):
    """A frame with a body of its own making."""
    packet = msgpack.packb({0: kind, 1: 1}) + body
    return b"\xce" + struct.pack(">I", len(packet)) + packet


def sql(text):
    return frame(EXECUTE, 1, {0x40: text, 0x41: []})


def mail(method, *arguments):
    return call(1, f"queue.tube.mail:{method}", *arguments)


WIDE = ",".join(f"t{n}.\"id\"" for n in range(900))
KINDS = {
    # kind: (user, or None for a guest; the request)
    "guest ping": (None, frame(PING, 1)),
    "guest select": (None, frame(SELECT, 1, {0x10: 281, 0x11: 0, 0x12: 1 << 31, 0x13: 0, 0x14: 2, 0x20: []})),
    "guest insert": (None, frame(INSERT, 1, {0x10: 512, 0x21: [1, "x" * 1000]})),
    "guest call": (None, mail("take", 0)),
    "guest long name": (None, call(1, "queue.tube." + "x" * 60_000 + ":take", 0)),
    "guest eval": (None, frame(EVAL, 1, {0x27: "while true do end", 0x21: []})),
    "guest execute": (None, sql("SELECT * FROM \"_vspace\" a, \"_vspace\" b, \"_vspace\" c")),
    "guest columns": (None, sql("SELECT " + ",".join(["1"] * 160_000))),
    "guest prepare": (None, frame(PREPARE, 1, {0x40: "SELECT " + ",".join(["1"] * 1000)})),
    "guest auth": (None, frame(AUTH, 1, {0x23: "ann", 0x21: ["chap-sha1", b"x" * 20]})),
    "guest auth of a stranger": (None, frame(AUTH, 1, {0x23: "x" * 10_000, 0x21: ["chap-sha1", b"x" * 20]})),
    "guest vote": (None, frame(VOTE, 1)),
    "guest id": (None, frame(ID, 1, {0x54: 3, 0x55: list(range(1000))})),
    "guest nested": (None, raw(10, b"\x82\x22" + msgpack.packb("queue.state") + b"\x21" + nested(100_000))),
    "guest megabyte": (None, call(1, "queue.tube.mail:put", "x" * MIB)),
    "user put": ("ann", mail("put", "x" * 100, {"ttl": 1})),
    "user put of a megabyte": ("ann", mail("put", "x" * (MIB - 200), {"ttl": 1})),
    "user put of options": ("ann", mail("put", 1, {f"option {n}": n for n in range(20_000)})),
    "user put_many": ("ann", mail("put_many", list(range(10_000)), {"ttl": 1})),
    "user take": ("ann", mail("take", 0)),
    "user waiting take": ("ann", mail("take", 3600)),
    "user take_many": ("ann", mail("take_many", 10_000, 0)),
    "user ack_many": ("ann", mail("ack_many", list(range(10_000)))),
    "user release_all": ("ann", mail("release_all")),
    "user kick": ("ann", mail("kick", 1 << 40)),
    "user list": ("ann", mail("list", {"limit": 1000})),
    "user find": ("ann", mail("find", {"field": {"path": "a", "value": 1}}, {"limit": 1000})),
    "user count": ("ann", mail("count", {"state": "ready"})),
    "user explain": ("ann", mail("explain", 0)),
    "user recount": ("ann", mail("recount")),
    "user apply": ("ann", mail("apply", "bury", {"state": "ready"}, {"dry_run": True})),
    "user pause": ("ann", mail("pause")),
    "user audit": ("ann", call(1, "queue.audit")),
    "user statistics": ("ann", call(1, "queue.statistics")),
    "user identify": ("ann", call(1, "queue.identify")),
    "user join": ("ann", frame(JOIN, 1, {0x24: "11111111-1111-1111-1111-111111111111"})),
    "user subscribe": ("ann", frame(SUBSCRIBE, 1, {0x24: "11111111-1111-1111-1111-111111111111"})),
    "user cross join": ("ann", sql("SELECT count(*) FROM \"_vspace\" a, \"_vspace\" b, \"_vspace\" c, \"_vspace\" d")),
    "user like": ("ann", sql(f"SELECT '{'a' * 900_000}' LIKE '{'%a' * 1000}b'")),
    "user concatenation": ("ann", sql("SELECT " + "||".join(["'" + "x" * 1000 + "'"] * 800))),
    "user depth": ("ann", sql("SELECT " + "(" * 5_000 + "1" + ")" * 5_000)),
    "user terms": ("ann", sql("SELECT 1 WHERE " + " OR ".join(["1=2"] * 100_000))),
    "user in": ("ann", sql("SELECT * FROM \"_vspace\" WHERE \"id\" IN (" + ",".join(map(str, range(100_000))) + ")")),
    "user order by": ("ann", sql("SELECT * FROM \"_vspace\" ORDER BY " + ",".join(["1"] * 100_000))),
    "user group by": ("ann", sql("SELECT \"id\", count(*) FROM \"_vspace\" GROUP BY " + ",".join(["\"id\""] * 2_000))),
    "user columns": ("ann", sql(f"SELECT {WIDE} FROM \"_vspace\"")),
    "user case": ("ann", sql("SELECT CASE " + "WHEN 1=2 THEN 3 " * 50_000 + "END")),
    "user join": ("ann", sql('SELECT count(*) FROM "mail" AS a, "mail" AS b, "mail" AS c')),
    "user subquery": ("ann", sql('SELECT count(*) FROM "mail" AS a WHERE EXISTS (SELECT 1 FROM "mail" AS b WHERE b."task_id" + a."task_id" < 0)')),
    "user union": ("ann", sql(" UNION ".join(['SELECT "task_id" FROM "mail"'] * 30))),
    "user recursion": ("ann", sql('WITH RECURSIVE "a"("x") AS (SELECT 1 UNION ALL SELECT "x" + 1 FROM "a") SELECT count(*) FROM "a"')),
    "user recursion of rows": ("ann", sql('WITH RECURSIVE "a"("x") AS (SELECT 1 UNION SELECT "x" + 1 FROM "a") SELECT * FROM "a"')),
    "user recursion that grows": ("ann", sql('WITH RECURSIVE "a"("x") AS (SELECT \'x\' UNION ALL SELECT "x" || "x" FROM "a") SELECT * FROM "a"')),
    "user bytes by number": ("ann", sql("SELECT HEX(RANDOMBLOB(1000000000)), HEX(ZEROBLOB(1000000000))")),
    "user width by number": ("ann", sql("SELECT PRINTF('%1000000000d %.1000000000f', 1, 1.5)")),
    "user replacement": ("ann", sql(f"SELECT LENGTH(REPLACE('{'a' * 400_000}', 'a', '{'b' * 400_000}'))")),
    "user prepare": ("ann", frame(PREPARE, 1, {0x40: "SELECT " + ",".join(["?"] * 10_000)})),
}


def attack(server, kind, seconds, sent):
    """Sends one kind of request in bursts, reads each answer, and begins anew when the server closes."""
    os.nice(5)
    user, request = KINDS[kind]
    burst = max(1, min(200, 256 * 1024 // len(request)))
    data = request * burst
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        try:
            sock = server.login(user, PASSWORD) if user else server.connect()
            with sock:
                sock.settimeout(1)
                while time.monotonic() < end:
                    sock.sendall(data)
                    sent.value += burst
                    sock.setblocking(False)
                    try:
                        while sock.recv(1 << 20):
                            pass
                    except BlockingIOError:
                        pass
                    sock.settimeout(1)
        except (OSError, AssertionError):
            time.sleep(0.05)


def pings(servers, seconds, out):
    """Times of pings in turn to all servers, in milliseconds."""
    socks = [server.login("ann", PASSWORD) for server in servers]
    times = [[] for _ in servers]
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        for sock, taken in zip(socks, times):
            start = time.perf_counter()
            ask(sock, frame(PING, 1))
            taken.append((time.perf_counter() - start) * 1e3)
        time.sleep(0.002)
    out.put(times)


def told(times):
    times = sorted(times)
    return {"p50": round(times[len(times) // 2], 2), "p99": round(times[len(times) * 99 // 100], 2), "max": round(times[-1], 2)}


def measure(kind, seconds, attackers):
    server, control = Guarded(), Guarded()
    try:
        with server.login("ann", PASSWORD) as sock:
            ask(sock, mail("put_many", list(range(TASKS))))
        out = multiprocessing.Queue()
        counts = [multiprocessing.Value("Q", 0) for _ in range(attackers)]
        work = [multiprocessing.Process(target=attack, args=(server, kind, seconds, count)) for count in counts]
        work.append(multiprocessing.Process(target=pings, args=([server, control], seconds, out)))
        for process in work:
            process.start()
        most = 0
        while any(process.is_alive() for process in work[:-1]):
            most = max(most, server.resident_bytes())
            time.sleep(0.05)
        times = out.get(timeout=120)
        for process in work:
            process.join()
        return {
            "kind": kind,
            "requests": sum(count.value for count in counts),
            "ping": told(times[0]),
            "beside": told(times[1]),
            "memory": most // MIB,
        }
    finally:
        server.remove()
        control.remove()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=5, help="for each kind (default: 5)")
    parser.add_argument("--attackers", type=int, default=2, help="processes that send a kind (default: 2)")
    parser.add_argument("--only", default="", help="kinds with this word in their name")
    options = parser.parse_args()
    for kind in KINDS:
        if options.only in kind:
            print(json.dumps(measure(kind, options.seconds, options.attackers)), flush=True)


if __name__ == "__main__":
    main()
