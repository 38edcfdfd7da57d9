"""The article's session with the module capped-expirationd, by a client that has nothing but CALL and INSERT."""

import math
import time
from contextlib import closing

import pytest
import tarantool

from server import ADMIN_PASSWORD

START, KILL = "libcapped-expirationd.start", "libcapped-expirationd.kill"
# Seconds; the article's tuples live for 60. Tuples of a test either expire while the test waits, or stay until the test changes them.
LIFETIME, LONG = 4, 3600


def index(number, name, unique, field):
    """What net.box makes of `box.space.tester.index.NAME`."""
    part = {"type": "unsigned", "is_nullable": False, "fieldno": field}
    return {"unique": unique, "parts": [part], "id": number, "type": "TREE", "space_id": 600, "name": name}


PRIMARY = index(0, "primary", True, 1)
EXP = index(1, "exp", False, 3)


@pytest.fixture
def admin(server):
    """A server with the article's space; its guest may call the two functions and nothing of the kind else."""
    with closing(tarantool.Connection(server.host, server.port, user="admin", password=ADMIN_PASSWORD)) as admin:
        for name in (START, KILL):
            admin.call("box.schema.func.create", [name, {"language": "C"}])
            admin.call("box.schema.user.grant", ["guest", "execute", "function", name])
        admin.insert("_space", [600, 1, "tester", "memtx", 0, {}, []])
        admin.insert("_index", [600, 0, "primary", "tree", {"unique": True}, [[0, "unsigned"]]])
        admin.flush_schema()
        yield admin


def ids(connection):
    return [row[0] for row in connection.select("tester").data]


def insert(connection, numbers, seconds=LIFETIME):
    lifetime = math.floor(time.time()) + seconds
    for number in numbers:
        connection.insert("tester", [number, f"user{number}@tarantool.io", lifetime])
    return lifetime


def wait_until(connection, wanted, seconds=30):
    deadline = time.monotonic() + seconds
    while ids(connection) != wanted:
        assert time.monotonic() < deadline, f"{ids(connection)} are left, not {wanted}"
        time.sleep(0.02)


def test_the_first_example(server, admin):
    """A pass over the primary index: with a scan time of an hour the tuples of a small space still go when they are due."""
    with closing(tarantool.Connection(server.host, server.port)) as guest:
        assert list(guest.call(START, ["non-indexed", 600, PRIMARY, PRIMARY, 3, 1024, 3600])) == [[]]
        lifetime = insert(admin, range(3))
        assert ids(admin) == [0, 1, 2] or time.time() >= lifetime
        wait_until(admin, [])
        assert time.time() >= lifetime, "nothing goes before its time"
        assert list(guest.call(KILL, ["non-indexed"])) == [[]]


def test_the_second_example(server, admin):
    """An index over the lifetime: the first three go, those that came later stay; kill and start in every order."""
    admin.insert("_index", [600, 1, "exp", "tree", {"unique": False}, [[2, "unsigned"]]])
    with closing(tarantool.Connection(server.host, server.port)) as guest:
        guest.call(KILL, ["indexed"])
        guest.call(START, ["indexed", 600, PRIMARY, EXP, 3, 1024, 3600])
        insert(admin, range(3))
        insert(admin, range(3, 6), LONG)
        wait_until(admin, [3, 4, 5])
        with pytest.raises(tarantool.error.DatabaseError, match="expiration task 'indexed' already exists") as caught:
            guest.call(START, ["indexed", 600, PRIMARY, EXP, 3, 1024, 3600])
        assert caught.value.code == 1
        for _ in range(3):
            guest.call(KILL, ["indexed"])
            guest.call(KILL, ["indexed"])
            guest.call(START, ["indexed", 600, PRIMARY, EXP, 3, 1024, 3600])
        assert ids(admin) == [3, 4, 5]
        for number in range(3, 6):
            admin.update("tester", number, [("=", 2, math.floor(time.time()))])
        wait_until(admin, [])


def test_a_task_is_kept_over_a_restart(server, admin):
    admin.insert("_index", [600, 1, "exp", "tree", {"unique": False}, [[2, "unsigned"]]])
    admin.call(START, ["indexed", 600, PRIMARY, EXP, 3, 1024, 3600])
    insert(admin, range(3))
    server.restart()
    with closing(tarantool.Connection(server.host, server.port, user="admin", password=ADMIN_PASSWORD)) as again:
        wait_until(again, [])
        [statistics] = again.call("expiration.stats", ["indexed"])
        assert statistics["expired"] == 3 and statistics["mode"] == "indexed" and statistics["errors"] == 0


def test_wrong_arguments_leave_no_name_taken(admin):
    right = ["t", 600, PRIMARY, PRIMARY, 3, 1024, 3600]
    wrong = [[], right[:6], right + [1]]
    for place, value in ((0, 5), (0, ""), (1, "tester"), (1, 4711), (2, 0), (2, {**PRIMARY, "unique": False})):
        wrong.append(right[:place] + [value] + right[place + 1 :])
    for place, value in ((3, None), (3, {"id": 9}), (4, 0), (4, -1), (5, "x"), (6, 1.5), (6, None)):
        wrong.append(right[:place] + [value] + right[place + 1 :])
    for arguments in wrong:
        with pytest.raises(tarantool.error.DatabaseError) as caught:
            admin.call(START, arguments)
        assert caught.value.code in (1, 35, 36), (arguments, caught.value)
    assert list(admin.call("expiration.list")) == [[]]
    admin.call(START, right)
