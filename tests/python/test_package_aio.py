"""The package `lycosa`: the client for asyncio. Its calls are those of the blocking one; here stands what differs."""

import asyncio

import pytest

import lycosa
from lycosa import State, aio
from lycosa.requests import Request
from proxy import Proxy
from server import MORE_AND_MORE


def run(scenario):
    """Runs a coroutine with a limit, so that a lost wake-up fails the test instead of hanging it."""
    return asyncio.run(asyncio.wait_for(scenario, 120))


def address(server):
    return f"{server.host}:{server.port}"


def test_the_life_of_a_task(server):
    async def scenario():
        async with aio.Client(address(server)) as client:
            tube = await client.create_tube("mail", "utubettl", ttr=60)
            await tube.put_many([{"n": 1}, b"\xff"], utube="a", pri=1)
            task = await tube.take(0, extended=True)
            assert (task.data, task.state, task.info.attempts, task.info.utube) == ({"n": 1}, State.TAKEN, 1, "a")
            assert await tube.take(0) is None, "the sub-queue is busy"
            await task.touch(5)
            await task.release(reason="later")
            [task] = await tube.take_many(5, 0, extended=True)
            assert (task.info.attempts, task.info.last_error) == (2, "later")
            await task.ack()
            task = await tube.take(0)
            assert task.data == b"\xff"
            await task.bury("no")
            assert await tube.kick() == 1
            page = await tube.list_tasks(utube="a")
            assert ([each.id for each in page.tasks], page.after) == ([1], None)
            await (await tube.peek(1)).delete()
            assert (await tube.statistics())["tasks"]["total"] == 0
            assert await client.tubes() == ["mail"]
            await tube.truncate()
            await tube.drop()

    run(scenario())


def test_refusals_have_their_classes(server):
    async def scenario():
        async with aio.Client(address(server)) as client:
            tube = await client.create_tube("mail", "fifo")
            with pytest.raises(lycosa.NotTaken) as caught:
                await tube.ack(0)
            assert (caught.value.code, caught.value.name) == (32, "TASK_NOT_TAKEN")
            with pytest.raises(lycosa.NoSuchTube):
                await client.tube("mial").put(1)
            with pytest.raises(lycosa.TubeExists):
                await client.create_tube("mail", "fifo")
        with pytest.raises(lycosa.ConnectionFailed, match="closed"):
            await tube.take(0)
        with pytest.raises(lycosa.WrongCredentials):
            await aio.Client(address(server), user="admin", password="wrong").ping()
        with pytest.raises(ValueError, match="no TLS"):
            aio.Client("tls://127.0.0.1:1")

    run(scenario())


def test_calls_do_not_wait_for_a_take(server):
    async def scenario():
        async with aio.Client(address(server)) as client:
            tube = await client.create_tube("mail", "fifo")
            takes = [asyncio.ensure_future(tube.take(60)) for _ in range(100)]
            await asyncio.sleep(0)
            await tube.put_many(range(100))
            tasks = await asyncio.gather(*takes)
            assert sorted(task.data for task in tasks) == list(range(100))
            await tube.ack_many(task.id for task in tasks)

    run(scenario())


def test_a_cancelled_take_gives_its_task_back(server):
    async def scenario():
        async with aio.Client(address(server)) as client, aio.Client(address(server)) as other:
            tube = await client.create_tube("mail", "fifottl")
            for many in (False, True):
                taking = asyncio.ensure_future(tube.take_many(5, 20) if many else tube.take(20))
                while not (await other.call(Request("box.stat.net")))[0]["REQUESTS"]["current"]:
                    await asyncio.sleep(0.01)
                taking.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await taking
                put = await tube.put("late")
                task = await other.tube("mail").take(60)
                assert task.id == put.id
                await task.ack()

    run(scenario())


def test_a_session_outlives_its_connection_for_the_ttr(start_server):
    server = start_server(queue={"ttr": 60})
    proxy = Proxy(server.port)

    async def scenario():
        async with aio.Client(f"127.0.0.1:{proxy.port}") as client:
            tube = await client.create_tube("mail", "fifottl")
            await tube.put("x")
            task = await tube.take(0)
            proxy.cut()
            # The loop has to hear of the end, or the call goes into a connection that is no more.
            while client._is_connected():
                await asyncio.sleep(0.01)
            await task.ack()
            assert client.session_changes == 0

    run(scenario())
    proxy.close()


def test_a_session_that_is_gone_is_counted(server):
    async def scenario():
        async with aio.Client(address(server)) as client:
            tube = await client.create_tube("mail", "fifottl")
            await tube.put("x")
            task = await tube.take(0)
            await asyncio.to_thread(server.restart)
            while client._is_connected():
                await asyncio.sleep(0.01)
            with pytest.raises(lycosa.NotTaken):
                await task.ack()
            assert client.session_changes == 1

    run(scenario())


def test_of_several_addresses_the_one_that_takes_writes_is_used(start_server):
    reader, writer = start_server(options=["read_only = true"]), start_server()

    async def scenario():
        async with aio.Client([address(reader), address(writer)]) as client:
            tube = await client.create_tube("mail", "fifo")
            assert (await tube.put(1)).id == 0
        async with aio.Client([address(reader)]) as client:
            with pytest.raises(lycosa.Unavailable, match="state WAITING"):
                await client.create_tube("mail", "fifo")
        for seconds in MORE_AND_MORE:
            async with aio.Client([address(reader), address(reader)], connect_timeout=seconds) as client:
                with pytest.raises(lycosa.ConnectionFailed) as caught:
                    await client.ping()
            if isinstance(caught.value, lycosa.NoMaster):
                break
        assert isinstance(caught.value, lycosa.NoMaster) and "takes no writes" in str(caught.value)

    run(scenario())


def test_a_lease_is_settled_by_its_token(server):
    async def scenario():
        async with aio.Client(address(server)) as client:
            tube = await client.create_tube("mail", "utube")
            await tube.put_many(["a", "b"])
            task, lease = await tube.take_leased(0, lease=60)
            assert (task.data, task.info.lease) == ("a", lease.token)
            assert await lease.renew(600) > task.info.lease_ends
            await lease.ack()
            with pytest.raises(lycosa.StaleLease):
                await lease.ack()
            [(_, second)] = await tube.take_many_leased(5, 0, lease=60)
            await tube.lease(second.token).release(reason="later")
            task, third = await tube.take_leased(0, lease=60)
            assert task.info.last_error == "later"
            await third.bury()
            assert (await tube.peek(1)).state is State.BURIED

    run(scenario())


def test_a_cancelled_take_for_a_lease_gives_its_task_back(server):
    async def scenario():
        async with aio.Client(address(server)) as client, aio.Client(address(server)) as other:
            tube = await client.create_tube("mail", "fifo")
            taking = asyncio.ensure_future(tube.take_leased(30, lease=3600))
            while not (await other.call(Request("box.stat.net")))[0]["REQUESTS"]["current"]:
                await asyncio.sleep(0.01)
            taking.cancel()
            with pytest.raises(asyncio.CancelledError):
                await taking
            await tube.put("late")
            task = await other.tube("mail").take(60, extended=True)
            assert (task.data, task.info.attempts) == ("late", 1)

    run(scenario())
