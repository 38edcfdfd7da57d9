"""The asynchronous client `asynctnt`: many consumers on few connections, schema, reconnect, a session taken up again."""

import asyncio
import hashlib

import asynctnt
import pytest
from asynctnt.exceptions import TarantoolDatabaseError, TarantoolNotConnectedError

CONSUMERS = 100
CONNECTIONS = 10
TASKS = 3000


def run(scenario):
    """Runs a coroutine with a limit, so that a lost wake-up fails the test instead of hanging it."""
    return asyncio.run(asyncio.wait_for(scenario, 120))


async def connect(server, **options):
    options.setdefault("reconnect_timeout", 0)
    connection = asynctnt.Connection(host=server.host, port=server.port, **options)
    await connection.connect()
    return connection


def work(seed):
    """Something a worker could be asked to do."""
    return hashlib.sha256(seed.encode()).hexdigest()


def test_a_hundred_consumers_do_each_task_once(server):
    """All tasks are done, each by one consumer, and parked takes do not hold up other requests of their connection."""

    async def consume(connection, done):
        while True:
            taken = await connection.call("queue.tube.jobs:take", [1])
            if not taken.body:
                return
            task_id, status, payload = taken.body[0]
            assert status == "t"
            done.append((task_id, work(payload)))
            acked = await connection.call("queue.tube.jobs:ack", [task_id])
            assert acked.body[0][1] == "-"

    async def scenario():
        connections = [await connect(server) for _ in range(CONNECTIONS)]
        await connections[0].call("queue.create_tube", ["jobs", "fifottl"])
        done = []
        consumers = [asyncio.create_task(consume(connections[n % CONNECTIONS], done)) for n in range(CONSUMERS)]
        await asyncio.sleep(0.1)
        puts = [connections[n % CONNECTIONS].call("queue.tube.jobs:put", [f"job {n}"]) for n in range(TASKS)]
        ids = sorted(reply.body[0][0] for reply in await asyncio.gather(*puts))
        await asyncio.gather(*consumers)
        assert sorted(task_id for task_id, _ in done) == ids
        assert sorted(result for _, result in done) == sorted(work(f"job {n}") for n in range(TASKS))
        [statistics] = (await connections[0].call("queue.statistics", ["jobs"])).body
        assert statistics["tasks"] == {"taken": 0, "buried": 0, "ready": 0, "done": TASKS, "delayed": 0, "total": 0}
        assert statistics["calls"]["ack"] == TASKS
        for connection in connections:
            await connection.disconnect()

    run(scenario())


def test_sub_queues_are_worked_in_order_one_task_at_a_time(server):
    lanes, per_lane = 20, 15
    busy, order = set(), {lane: [] for lane in range(lanes)}

    async def consume(connection):
        while True:
            taken = await connection.call("queue.tube.lanes:take", [1])
            if not taken.body:
                return
            task_id, _, (lane, number) = taken.body[0]
            assert lane not in busy
            busy.add(lane)
            order[lane].append(number)
            await asyncio.sleep(0.001)
            busy.remove(lane)
            await connection.call("queue.tube.lanes:ack", [task_id])

    async def scenario():
        connection = await connect(server)
        await connection.call("queue.create_tube", ["lanes", "utube"])
        for number in range(per_lane):
            for lane in range(lanes):
                await connection.call("queue.tube.lanes:put", [[lane, number], {"utube": f"lane {lane}"}])
        await asyncio.gather(*(consume(connection) for _ in range(50)))
        assert order == {lane: list(range(per_lane)) for lane in range(lanes)}
        await connection.disconnect()

    run(scenario())


def test_schema_is_loaded_and_followed(server):
    async def scenario():
        connection = await connect(server)
        format = [{"name": "id", "type": "unsigned"}, {"name": "name", "type": "string"}]
        await connection.insert("_space", [600, 1, "people", "memtx", 0, {}, format])
        await connection.insert("_index", [600, 0, "primary", "tree", {"unique": True}, [[0, "unsigned"]]])
        await connection.refetch_schema()
        inserted = await connection.insert("people", {"id": 1, "name": "ada"})
        assert inserted.body[0]["name"] == "ada"
        selected = await connection.select("people", {"id": 1}, index="primary")
        assert [dict(row) for row in selected.body] == [{"id": 1, "name": "ada"}]
        updated = await connection.update("people", [1], [["=", "name", "ada l."]])
        assert updated.body[0]["name"] == "ada l."
        with pytest.raises(TarantoolDatabaseError) as caught:
            await connection.insert("people", [1, "eve"])
        assert caught.value.code == 3
        await connection.disconnect()

    run(scenario())


def test_the_client_reconnects_after_a_kill(server):
    async def scenario():
        connection = await connect(server, reconnect_timeout=0.05)
        await connection.call("queue.create_tube", ["t", "fifo"])
        await connection.call("queue.tube.t:put", ["survives"])
        server.kill()
        server.start()
        for _ in range(200):
            try:
                taken = await connection.call("queue.tube.t:take", [1])
                break
            except TarantoolNotConnectedError:
                await asyncio.sleep(0.05)
        assert list(taken.body[0]) == [0, "t", "survives"]
        await connection.disconnect()

    run(scenario())


def test_a_session_is_taken_up_again(start_server):
    """With a ttr a client that comes back within it goes on with the tasks that it had."""
    server = start_server(queue={"ttr": 30.0})

    async def scenario():
        first = await connect(server, encoding="latin-1")
        await first.call("queue.create_tube", ["t", "fifo"])
        await first.call("queue.tube.t:put", ["mine"])
        session = (await first.call("queue.identify")).body[0].encode("latin-1")
        assert len(session) == 16
        [task] = (await first.call("queue.tube.t:take", [0])).body
        await first.disconnect()

        stranger = await connect(server)
        assert (await stranger.call("queue.tube.t:take", [0.3])).body == []
        with pytest.raises(TarantoolDatabaseError) as caught:
            await stranger.call("queue.tube.t:ack", [task[0]])
        assert caught.value.code == 32

        second = await connect(server, encoding="latin-1")
        again = (await second.call("queue.identify", [session])).body[0].encode("latin-1")
        assert again == session
        [acked] = (await second.call("queue.tube.t:ack", [task[0]])).body
        assert list(acked) == [0, "-", "mine"]
        await second.disconnect()
        await stranger.disconnect()

    run(scenario())


def test_a_parked_take_ends_with_its_connection(server):
    """The task goes to who still waits, not to who has left."""

    async def scenario():
        leaver, stayer = await connect(server), await connect(server)
        await stayer.call("queue.create_tube", ["t", "fifo"])
        gone = asyncio.ensure_future(leaver.call("queue.tube.t:take", [60]))
        await asyncio.sleep(0.1)
        waiting = asyncio.ensure_future(stayer.call("queue.tube.t:take", [60]))
        await asyncio.sleep(0.1)
        await leaver.disconnect()
        await asyncio.gather(gone, return_exceptions=True)
        await asyncio.sleep(0.2)
        await stayer.call("queue.tube.t:put", ["for the stayer"])
        taken = await asyncio.wait_for(waiting, 60)
        assert list(taken.body[0]) == [0, "t", "for the stayer"]
        await stayer.disconnect()

    run(scenario())
