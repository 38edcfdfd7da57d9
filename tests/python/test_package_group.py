"""The package `lycosa` at a group: it goes to the leader, and leaves each member that is killed or says nothing."""

import asyncio
import threading

import pytest

import lycosa
from group import Group
from lycosa import _standing, aio

# Longer than a test takes: only a client that notices the silence goes on, and a task of a lost answer never comes back by itself.
FOREVER = 3600


@pytest.fixture(scope="module")
def group():
    group = Group()
    yield group
    group.remove()


FAULTS = [("kill", "start"), ("freeze", "thaw")]


def again(make):
    """Makes a call until it is answered: its outcome may not be known."""
    while True:
        try:
            return make()
        except lycosa.LycosaError as error:
            if not error.passes:
                raise


def put(tube, payload):
    return again(lambda: tube.put(payload))


def take(tube, wanted):
    """Takes until this payload comes. A task in hand is acknowledged in any case: nothing gives it out again."""
    data = None
    while data != wanted:
        task = again(lambda: tube.take(FOREVER))
        data = task.data
        try:
            again(task.ack)
        except lycosa.NotTaken:
            # It was acknowledged, and the answer was lost.
            pass


def test_the_leader_is_chosen_whichever_address_comes_first(group, monkeypatch):
    # On a busy machine the leader may answer long after another member; the client waits for it as long as this.
    monkeypatch.setattr(_standing, "LEADER_GRACE", 30)
    for first in range(3):
        leader = group.leader()
        with lycosa.Client(group.listens[first:] + group.listens[:first]) as client:
            client.ping()
            (chosen,) = client._standings
            # A busy machine may make the members elect another leader meanwhile.
            assert str(chosen) == group.listens[leader] or group.leader() != leader


@pytest.mark.parametrize("fault, remedy", FAULTS)
def test_a_client_outlives_each_member(group, fault, remedy):
    with lycosa.Client(group.listens, request_timeout=FOREVER) as client:
        tube = client.create_tube(f"blocking-{fault}", "fifo", if_not_exists=True)
        for turn in range(4):
            victim = turn if turn < 3 else group.leader()
            put(tube, f"before {turn}")
            take(tube, f"before {turn}")
            taken = threading.Thread(target=take, args=(tube, f"during {turn}"))
            taken.start()
            getattr(group, fault)(victim)
            put(tube, f"during {turn}")
            taken.join()
            getattr(group, remedy)(victim)
            group.until(victim, lambda status: status["leader"] is not None and status["state"] == "running")
        assert client.session_changes == 0


def test_a_member_that_is_chosen_and_says_nothing_more_is_left(group, monkeypatch):
    leader = group.leader()
    chosen = []

    def choose(options):
        found = choice(options)
        if not chosen:
            # Between the choice and the greeting.
            group.freeze(leader)
        chosen.append(found)
        return found

    choice = lycosa.client.choose
    monkeypatch.setattr(lycosa.client, "choose", choose)
    with lycosa.Client(group.listens, request_timeout=FOREVER) as client:
        try:
            assert client.create_tube("chosen", "fifo", if_not_exists=True).name == "chosen"
        finally:
            group.thaw(leader)
    assert len(chosen) > 1
    group.until(leader, lambda status: status["leader"] is not None and status["state"] == "running")


@pytest.mark.parametrize("fault, remedy", FAULTS)
def test_an_asynchronous_client_outlives_each_member(group, fault, remedy):
    async def again(make):
        while True:
            try:
                return await make()
            except lycosa.LycosaError as error:
                if not error.passes:
                    raise

    async def take_one(tube, wanted):
        data = None
        while data != wanted:
            task = await again(lambda: tube.take(FOREVER))
            data = task.data
            try:
                await again(task.ack)
            except lycosa.NotTaken:
                # It was acknowledged, and the answer was lost.
                pass

    async def scenario():
        async with aio.Client(group.listens, request_timeout=FOREVER) as client:
            tube = await client.create_tube(f"asyncio-{fault}", "fifo", if_not_exists=True)
            for turn in range(4):
                victim = turn if turn < 3 else group.leader()
                taken = asyncio.ensure_future(take_one(tube, f"during {turn}"))
                await again(lambda: tube.put(f"before {turn}"))
                getattr(group, fault)(victim)
                await again(lambda: tube.put(f"during {turn}"))
                await taken
                getattr(group, remedy)(victim)
                group.until(victim, lambda status: status["leader"] is not None and status["state"] == "running")
            assert client.session_changes == 0

    asyncio.run(scenario())
