"""The package `lycosa`: the blocking client."""

import decimal
import pathlib
import pickle
import re
import socket
import threading
import time
import uuid
from datetime import timedelta

import pytest

import lycosa
from lycosa import State
from lycosa.address import Address
from lycosa.requests import Request
from proxy import Proxy
from server import ADMIN_PASSWORD, MORE_AND_MORE, free_port

TOP = pathlib.Path(__file__).resolve().parents[2]
TLS_FILES = TOP / "crates" / "tls" / "test-files"


@pytest.fixture
def client(server):
    with lycosa.Client(f"{server.host}:{server.port}") as client:
        yield client


@pytest.fixture
def proxied(request, start_server):
    """A server whose sessions outlive their connections, a proxy in front of it, and a client behind the proxy."""
    server = start_server(queue={"ttr": 60})
    proxy = Proxy(server.port)
    with lycosa.Client(f"127.0.0.1:{proxy.port}") as client:
        yield server, proxy, client
    proxy.close()


def test_the_life_of_a_task(client):
    tube = client.create_tube("mail", "fifottl", ttr=60)
    low = tube.put({"to": "ann"}, pri=5, delay=timedelta(0))
    high = tube.put("first", pri=1, ttl=3600, ttr=30.5)
    late = tube.put("late", delay=3600)
    assert (low.id, low.state, low.data) == (0, State.READY, {"to": "ann"})
    assert late.state is State.DELAYED

    task = tube.take(0, extended=True)
    assert (task.id, task.state, task.data) == (high.id, State.TAKEN, "first")
    assert (task.info.attempts, task.info.pri, task.info.ttr, task.info.ttl) == (1, 1, 30.5, 3600)
    task.touch(10)
    assert tube.peek(high.id, extended=True).info.ttr == 40.5
    task.release(reason="later")
    task = tube.take(0, extended=True)
    assert (task.id, task.info.attempts, task.info.last_error) == (high.id, 2, "later")
    task.bury("never")
    assert [each.id for each in tube.list_tasks(state=State.BURIED).tasks] == [high.id]
    assert tube.kick(5) == 1
    tube.take(0).ack()
    assert tube.take(0).id == low.id
    low.delete()
    assert tube.take(0.01) is None
    assert tube.statistics()["tasks"]["delayed"] == 1
    assert client.tubes() == ["mail"]
    assert client.statistics().keys() == {"mail"}
    tube.truncate()
    tube.drop()
    assert client.tubes() == []


def test_payloads_come_back_as_they_went(client):
    tube = client.create_tube("all", "fifo")
    payloads = [
        None, True, -7, 2**63, 1.5, "text", "ö", b"\x00\xff", [1, [2]], {"a": {"b": None}}, {1: "number"},
        decimal.Decimal("3.14"), uuid.UUID(int=7), {}, [], "",
    ]  # fmt: skip
    tube.put_many(payloads)
    tasks = tube.take_many(100, 0)
    assert [task.data for task in tasks] == payloads
    assert [task.id for task in tube.ack_many(task.id for task in tasks)] == list(range(len(payloads)))


def test_pages_and_batches(client):
    tube = client.create_tube("many", "utubettl")
    tube.put_many(range(7), utube="a")
    seen, after = [], None
    while True:
        page = tube.list_tasks(limit=3, after=after)
        seen += [task.data for task in page.tasks]
        after = page.after
        if after is None:
            break
    assert seen == list(range(7))
    assert tube.list_tasks(utube="b").tasks == []
    assert [task.state for task in tube.bury_many([0, 1], "no")] == [State.BURIED] * 2
    assert [task.state for task in tube.kick_many([0, 1])] == [State.READY] * 2
    [task] = tube.take_many(5, 0)
    assert task.data == 0
    assert [task.state for task in tube.release_many([task.id], delay=60)] == [State.DELAYED]
    tube.delete_many(range(7))
    assert tube.statistics()["tasks"]["total"] == 0


def test_each_refusal_has_its_class(client, server):
    tube = client.create_tube("mail", "fifo")
    full = client.create_tube("full", "limfifottl", capacity=1)
    full.put(1)
    ended = {
        lycosa.NotTaken: lambda: tube.ack(0),
        lycosa.NoSuchTask: lambda: tube.peek(9),
        lycosa.NoSuchTube: lambda: client.tube("mial").put(1),
        lycosa.TubeExists: lambda: client.create_tube("mail", "fifo"),
        lycosa.UnknownTubeType: lambda: client.create_tube("odd", "fifi"),
        lycosa.Unavailable: lambda: full.put(2, timeout=0.01),
        lycosa.TaskTooLarge: lambda: tube.put("x" * 2_000_000),
        lycosa.NoSuchProcedure: lambda: tube.client.call(Request("no.such")),
    }
    for kind, action in ended.items():
        with pytest.raises(kind) as caught:
            action()
        assert type(caught.value) is kind
    with pytest.raises(lycosa.NotTaken) as caught:
        tube.ack(0)
    assert (caught.value.code, caught.value.name, caught.value.passes) == (32, "TASK_NOT_TAKEN", False)
    again = pickle.loads(pickle.dumps(caught.value))
    assert (type(again), again.code, again.name, str(again)) == (lycosa.NotTaken, 32, "TASK_NOT_TAKEN", str(caught.value))
    tube.put(1)
    tube.take(0)
    with pytest.raises(lycosa.TouchUnsupported):
        tube.touch(0, 5)
    with pytest.raises(lycosa.TubeInUse):
        tube.drop()
    with pytest.raises(lycosa.WrongCredentials):
        lycosa.Client(f"{server.host}:{server.port}", user="admin", password="wrong").ping()


def test_rights_and_the_environment(server, monkeypatch):
    monkeypatch.setenv("LYCOSA_ADDRESS", f"{server.host}:{server.port}")
    monkeypatch.setenv("LYCOSA_USER", "admin")
    monkeypatch.setenv("LYCOSA_PASSWORD", ADMIN_PASSWORD)
    with lycosa.Client() as client:
        client.create_tube("mail", "fifo").put(1)
        assert client.ping() >= 0
    monkeypatch.setenv("LYCOSA_ADDRESS", f"127.0.0.1:{free_port()}")
    client = lycosa.Client(connect_timeout=0.2)
    with pytest.raises(lycosa.ConnectionFailed) as caught:
        client.ping()
    assert caught.value.passes and not caught.value.outcome_unknown
    client.close()
    with pytest.raises(lycosa.ConnectionFailed, match="closed"):
        client.ping()


def test_threads_share_the_session_and_do_not_wait_for_each_other(client):
    tube = client.create_tube("mail", "fifottl")
    taken = []
    waiting = threading.Thread(target=lambda: taken.append(tube.take(60)))
    waiting.start()
    # The take holds its own connection: this put goes over another one and is what it waits for.
    tube.put("for the thread")
    waiting.join(30)
    assert taken[0].data == "for the thread"
    tube.ack(taken[0].id)

    tube.put_many(range(200))
    done, lock = [], threading.Lock()

    def work():
        while (task := tube.take(0)) is not None:
            with lock:
                done.append(task.data)
            task.ack()

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert sorted(done) == list(range(200))


def test_a_session_with_a_ttr_outlives_its_connections(proxied):
    _, proxy, client = proxied
    tube = client.create_tube("mail", "fifottl")
    tube.put("x")
    task = tube.take(0)
    assert proxy.cut() >= 1
    task.ack()
    assert client.session_changes == 0
    assert tube.take(0) is None


def test_a_session_that_is_gone_is_counted(client, server):
    tube = client.create_tube("mail", "fifottl")
    tube.put("x")
    task = tube.take(0)
    server.restart()
    with pytest.raises(lycosa.NotTaken):
        task.ack()
    assert client.session_changes == 1
    assert tube.take(0).id == task.id


def test_a_call_whose_connection_breaks_says_that_its_outcome_is_unknown(proxied):
    _, proxy, client = proxied
    tube = client.create_tube("mail", "fifottl")
    failures = []

    def take():
        try:
            tube.take(60)
        except lycosa.LycosaError as error:
            failures.append(error)

    waiting = threading.Thread(target=take)
    waiting.start()
    while not client.call(Request("box.stat.net"))[0]["REQUESTS"]["current"]:
        time.sleep(0.01)
    proxy.cut()
    waiting.join(30)
    [failure] = failures
    assert type(failure) is lycosa.Disconnected
    assert failure.outcome_unknown and failure.passes


def test_a_server_that_never_greets_is_given_up():
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        # The timeout of a call is none of a connection.
        with lycosa.Client(address, connect_timeout=0.2, request_timeout=3600) as client, pytest.raises(lycosa.ConnectionFailed):
            client.ping()


def test_a_silent_server_ends_a_call_and_its_connection(server):
    silent = socket.create_server(("127.0.0.1", 0))
    with lycosa.Client(f"127.0.0.1:{silent.getsockname()[1]}", connect_timeout=0.2, request_timeout=0.2) as client:
        with pytest.raises(lycosa.ConnectionFailed):
            client.ping()
    silent.close()


def test_a_server_that_does_not_say_whether_it_takes_writes_was_asked_nothing_else():
    """As a member of a group that ceases to lead in that moment: the caller's request has not been sent."""

    class Connection:
        is_closed = False

        def call(self, *_):
            raise lycosa.OutcomeUnknown(32, "the journal has not confirmed its rows")

        def close(self):
            self.is_closed = True

    connection = Connection()
    with pytest.raises(lycosa.ConnectionFailed, match="has not said whether it takes writes"):
        lycosa.client._takes_writes(connection)
    assert connection.is_closed


def test_of_several_addresses_the_one_that_takes_writes_is_used(start_server):
    reader, writer = start_server(options=["read_only = true"]), start_server()
    addresses = [f"127.0.0.1:{free_port()}", f"127.0.0.1:{reader.port}", f"127.0.0.1:{writer.port}"]
    with lycosa.Client(addresses) as client:
        assert client.create_tube("mail", "fifo").put(1).id == 0
        writer.stop()
    for seconds in MORE_AND_MORE:
        with lycosa.Client(addresses, connect_timeout=seconds) as client:
            with pytest.raises(lycosa.ConnectionFailed) as caught:
                client.tube("mail").put(1)
        if isinstance(caught.value, lycosa.NoMaster):
            break
    assert isinstance(caught.value, lycosa.NoMaster) and "takes no writes" in str(caught.value)
    with lycosa.Client(f"127.0.0.1:{reader.port}") as client:
        with pytest.raises(lycosa.Unavailable, match="state WAITING"):
            client.create_tube("mail", "fifo")
        with pytest.raises(lycosa.ReadOnly):
            client.tube("mail").take(0)


def test_tls_checks_the_certificate_and_the_name(start_server):
    port = free_port()
    options = [
        f'listen_tls = "localhost:{port}"',
        f'tls.certificate = "{TLS_FILES / "server.pem"}"',
        f'tls.key = "{TLS_FILES / "server.key"}"',
    ]
    start_server(options=options)
    with lycosa.Client(f"tls://localhost:{port}", tls_ca=str(TLS_FILES / "ca.pem")) as client:
        tube = client.create_tube("mail", "fifo")
        payload = "x" * 500_000
        tube.put(payload)
        assert tube.take(0).data == payload
    strangers = {"stranger.pem": "localhost", "ca.pem": "127.0.0.2"}
    for ca, host in strangers.items():
        options = {"tls_ca": str(TLS_FILES / ca), "connect_timeout": 0.2}
        with lycosa.Client(f"tls://{host}:{port}", **options) as client, pytest.raises(lycosa.ConnectionFailed):
            client.ping()


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("mail.example", Address("mail.example", 3301, False)),
        ("127.0.0.1:3302", Address("127.0.0.1", 3302, False)),
        ("tls://[::1]:3303", Address("::1", 3303, True)),
        ("::1", Address("::1", 3301, False)),
    ],
)
def test_addresses(text, address):
    assert Address.parse(text) == address


@pytest.mark.parametrize("text", ["", ":3301", "http://a:1", "a:b", "a:0", "a:65536", "ann:secret@a:1"])
def test_what_is_no_address_is_refused(text):
    with pytest.raises(ValueError, match="address"):
        Address.parse(text)


def test_the_texts_of_the_lua_module_have_their_classes():
    from lycosa.errors import server_error

    cases = {
        "/usr/share/tarantool/queue/abstract.lua:83: Task was not taken": lycosa.NotTaken,
        "abstract.lua:237: Task 9 not found": lycosa.NoSuchTask,
        "abstract.lua:1: Space 'f' already exists": lycosa.TubeExists,
        "abstract.lua:1: The UUID 1-2 is unknown.": lycosa.NoSuchSession,
        "abstract.lua:1: Unknown tube type nope": lycosa.UnknownTubeType,
        "There are taken tasks in the tube": lycosa.TubeInUse,
        "a program's own": lycosa.ServerError,
    }
    for text, kind in cases.items():
        assert type(server_error(32, text, None)) is kind
    assert type(server_error(2, "Task was not taken", None)) is lycosa.MemoryLimit
    assert type(server_error(33, "Procedure 'queue.tube.a:put_many' is not defined", None)) is lycosa.NoSuchProcedure


def test_the_first_example_of_the_readme_runs(server, monkeypatch, capsys):
    text = (TOP / "python" / "README.md").read_text()
    example = re.search(r"```python\n(.*?)```", text, re.DOTALL).group(1)
    assert example.count("\n") <= 12
    monkeypatch.setenv("LYCOSA_ADDRESS", f"{server.host}:{server.port}")
    # The example works for ever; here it ends when the tube is empty.
    exec(example.replace("jobs=4", "jobs=4, until_empty=0.1"), {})
    assert "ann" in capsys.readouterr().out


def test_a_lease_outlives_its_client_and_is_stale_in_the_end(server):
    address = f"{server.host}:{server.port}"
    with lycosa.Client(address) as client:
        tube = client.create_tube("mail", "fifo")
        tube.put_many(["a", "b", "c"])
        task, lease = tube.take_leased(0, lease=timedelta(minutes=1))
        assert (task.data, task.info.attempts, task.info.lease) == ("a", 1, lease.token)
        with pytest.raises(lycosa.NotTaken):
            task.ack()
        others = tube.take_many_leased(5, 0, lease=60)
        assert [other.data for other, _ in others] == ["b", "c"]
        assert tube.take_leased(0, lease=60) is None
        assert tube.take_many_leased(5, 0, lease=60) == []
    with lycosa.Client(address) as client:
        tube = client.tube("mail")
        lease = tube.lease(lease.token)
        assert lease.renew(600) > task.info.lease_ends
        peeked = tube.peek(task.id, extended=True).info
        assert peeked.lease is None and peeked.lease_ends > task.info.lease_ends
        lease.release(reason="no such host")
        with pytest.raises(lycosa.StaleLease) as caught:
            lease.ack()
        assert (caught.value.code, caught.value.name) == (32, "STALE_LEASE")
        again, lease = tube.take_leased(0, lease=60)
        assert (again.info.attempts, again.info.last_error) == (2, "no such host")
        lease.ack()
        tube.lease(others[0][1].token).bury("never")
        assert tube.peek(1).state is State.BURIED
        tube.lease(others[1][1].token).ack()
        assert tube.statistics()["tasks"]["total"] == 1
        with pytest.raises(lycosa.ServerError, match="more than 0 and at most 86400"):
            tube.take_leased(0, lease=0)
