"""The synchronous client `tarantool`: schema, data, calls, errors, the life of a task, a restart under a connection."""

from contextlib import closing

import pytest
import tarantool

from server import ADMIN_PASSWORD

FORMAT = [
    {"name": "id", "type": "unsigned"},
    {"name": "name", "type": "string"},
    {"name": "n", "type": "number", "is_nullable": True},
]


def connect(server, **options):
    return tarantool.Connection(server.host, server.port, **options)


@pytest.fixture
def connection(server):
    connection = connect(server)
    yield connection
    connection.close()


@pytest.fixture
def people(connection):
    """A space `people` made by plain requests, as a client without Lua makes one."""
    connection.insert("_space", [600, 1, "people", "memtx", 0, {}, FORMAT])
    connection.insert("_index", [600, 0, "primary", "tree", {"unique": True}, [[0, "unsigned"]]])
    connection.insert("_index", [600, 1, "name", "tree", {"unique": True}, [[1, "string"]]])
    connection.flush_schema()
    return connection.space("people")


def rows(response):
    return [list(row) for row in response.data]


def test_ping(connection):
    assert connection.ping() >= 0


def test_rows_by_names(people):
    assert rows(people.insert((1, "ada", 10))) == [[1, "ada", 10]]
    people.insert((2, "grace", 2.5))
    people.insert((3, "edsger"))
    assert rows(people.select(2)) == [[2, "grace", 2.5]]
    assert rows(people.select("edsger", index="name")) == [[3, "edsger"]]
    assert rows(people.select([], iterator=tarantool.const.ITERATOR_GE, offset=1, limit=1)) == [[2, "grace", 2.5]]
    assert rows(people.update(1, [("+", "n", 5), ("=", 1, "ada l.")])) == [[1, "ada l.", 15]]
    assert rows(people.replace((3, "edsger", 1))) == [[3, "edsger", 1]]
    people.upsert((3, "edsger", 0), [("+", 2, 41)])
    assert rows(people.select(3)) == [[3, "edsger", 42]]
    assert rows(people.delete("grace", index="name")) == [[2, "grace", 2.5]]
    assert rows(people.select()) == [[1, "ada l.", 15], [3, "edsger", 42]]


def test_errors_have_code_and_text(people):
    people.insert((1, "ada"))
    with pytest.raises(tarantool.error.DatabaseError) as caught:
        people.insert((1, "eve"))
    assert caught.value.code == 3
    assert "Duplicate key exists in unique index 'primary' in space 'people'" in str(caught.value)
    with pytest.raises(tarantool.error.DatabaseError) as caught:
        people.connection.call("no.such.function")
    assert caught.value.code == 33
    with pytest.raises(tarantool.error.SchemaError):
        people.connection.select("no_such_space")


def test_authentication(server):
    with closing(connect(server, user="admin", password=ADMIN_PASSWORD)) as admin:
        admin.call("box.schema.user.create", ["bob", {"password": "secret"}])
    with closing(connect(server, user="bob", password="secret")) as bob:
        bob.ping()
        with pytest.raises(tarantool.error.DatabaseError) as caught:
            bob.call("queue.statistics")
        assert caught.value.code == 42
    with pytest.raises(tarantool.error.Error, match="Incorrect password supplied for user 'bob'"):
        connect(server, user="bob", password="wrong")


def test_life_of_a_task(connection):
    connection.call("queue.create_tube", ["jobs", "fifottl", {"if_not_exists": True}])
    [task] = connection.call("queue.tube.jobs:put", [{"do": "it", "n": [1, 2.5, None]}, {"ttl": 60, "pri": 1}])
    assert task[1:] == ["r", {"do": "it", "n": [1, 2.5, None]}]
    [taken] = connection.call("queue.tube.jobs:take", [1])
    assert taken[:2] == [task[0], "t"]
    [released] = connection.call("queue.tube.jobs:release", [task[0], {"delay": 60}])
    assert released[1] == "~"
    [buried] = connection.call("queue.tube.jobs:bury", [task[0]])
    assert buried[1] == "!"
    assert list(connection.call("queue.tube.jobs:kick", [10])) == [1]
    assert connection.call("queue.tube.jobs:take", [0]).data[0][0] == task[0]
    assert connection.call("queue.tube.jobs:ack", [task[0]]).data[0][1] == "-"
    with pytest.raises(tarantool.error.DatabaseError) as caught:
        connection.call("queue.tube.jobs:ack", [task[0]])
    assert caught.value.code == 32 and "Task was not taken" in str(caught.value)
    [statistics] = connection.call("queue.statistics", ["jobs"])
    assert statistics["tasks"]["total"] == 0 and statistics["tasks"]["done"] == 1
    assert statistics["calls"]["put"] == 1 and statistics["calls"]["take"] == 2


def test_tasks_in_batches(connection):
    connection.call("queue.create_tube", ["jobs", "fifottl"])
    [put] = connection.call("queue.tube.jobs:put_many", [["a", {"n": 1}, None], {"pri": 2}])
    assert put == [[0, "r", "a"], [1, "r", {"n": 1}], [2, "r", None]]
    [urgent] = connection.call("queue.tube.jobs:put_many", [["b", "c"], [{"pri": 1}, {"delay": 60}]])
    assert [task[1] for task in urgent] == ["r", "~"]
    [taken] = connection.call("queue.tube.jobs:take_many", [3, 1])
    assert [task[0] for task in taken] == [3, 0, 1]
    [released] = connection.call("queue.tube.jobs:release_many", [[1, 0], {"delay": 60}])
    assert [task[:2] for task in released] == [[1, "~"], [0, "~"]]
    with pytest.raises(tarantool.error.DatabaseError) as caught:
        connection.call("queue.tube.jobs:ack_many", [[3, 0]])
    assert caught.value.code == 32 and "task 0: Task was not taken" in str(caught.value)
    [done] = connection.call("queue.tube.jobs:ack_many", [[3]])
    assert done == [[3, "-", "b"]]
    assert [len(tasks) for tasks in connection.call("queue.tube.jobs:take_many", [10, 0])] == [1]
    assert list(connection.call("queue.tube.jobs:take_many", [10, 0])) == [[]]
    [statistics] = connection.call("queue.statistics", ["jobs"])
    assert statistics["calls"]["put"] == 5 and statistics["calls"]["take"] == 4


def test_payloads_come_back_as_they_went(connection):
    connection.call("queue.create_tube", ["t", "fifo"])
    numbers = [0, -1, 2**64 - 1, -(2**63), 1.5]
    texts = ["", "текст ✓ \0", "x" * 70000, b"\x00\xff"]
    payloads = [None, True, *numbers, *texts, [], {}, {"a": {"b": [1, [2, [3]]]}}]
    for payload in payloads:
        [task] = connection.call("queue.tube.t:put", [payload])
        assert task[2] == payload
        [peeked] = connection.call("queue.tube.t:peek", [task[0]])
        assert peeked[2] == payload


def test_the_client_reconnects_after_a_restart(server):
    with closing(connect(server, reconnect_max_attempts=100, reconnect_delay=0.1)) as connection:
        connection.call("queue.create_tube", ["t", "fifo"])
        connection.call("queue.tube.t:put", ["survives"])
        server.restart()
        [task] = connection.call("queue.tube.t:take", [1])
        assert task == [0, "t", "survives"]


def test_a_row_over_the_size_limit_is_refused_and_the_connection_lives(people):
    with pytest.raises(tarantool.error.DatabaseError) as caught:
        people.insert((1, "x" * (2 << 20)))
    assert caught.value.code == 110
    assert rows(people.insert((1, "x" * 100_000)))[0][0] == 1
