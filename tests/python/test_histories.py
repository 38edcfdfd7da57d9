"""Random histories of real servers, in small, and whether violations() finds what it is for. `histories.py` runs long ones by hand."""

import os
import random

import pytest

from histories import run
from history import OK, REFUSED, UNKNOWN, Operation, violations

SEED = int(os.environ.get("LYCOSA_TEST_SEED", 0)) or random.SystemRandom().randrange(1 << 32)


@pytest.mark.parametrize("kind, rounds", [("group", 1), ("troubles", 3), ("pair", 2)])
def test_a_history_violates_nothing(kind, rounds):
    said = []
    found, history = run(kind, rounds, SEED, said.append)
    assert not found, "\n".join([f"LYCOSA_TEST_SEED={SEED}", *said, *found])
    assert history.count("put") and history.count("ack") and history.count("read")


def put(begin, outcome=OK):
    return Operation(1, "put", "x", 7, begin, begin + 0.5, outcome)


def take(begin, client=1):
    return Operation(client, "take", None, 7, begin, begin + 0.5, OK, found="x")


def ack(begin, client=1, outcome=OK, error=""):
    return Operation(client, "ack", "x", 7, begin, begin + 0.5, outcome, error=error)


def read(begin, found):
    return Operation(2, "read", "x", 7, begin, begin + 0.5, OK, found=found)


SOUND = [
    [put(0), take(1), ack(2)],
    [put(0, UNKNOWN)],
    [put(0, UNKNOWN), take(1), ack(2)],
    [put(0), take(1), ack(2, outcome=UNKNOWN)],
    [put(0), take(1), ack(2, outcome=UNKNOWN), take(3, 2), ack(4, 2)],
    # The put is answered late; the ack is under way while the task is read.
    [put(1), take(0), ack(2)],
    [put(0), take(1), read(2, "x"), ack(2.2), read(2.3, "x"), read(2.4, None)],
    [put(0), take(1), Operation(1, "release", "x", 7, 2, 3, OK), take(2.2, 2), ack(4, 2)],
]


@pytest.mark.parametrize("history", SOUND)
def test_a_sound_history_is_accepted(history):
    assert violations(history) == []


@pytest.mark.parametrize(
    "fault, history",
    [
        ("the acknowledged task is missing", [put(0)]),
        ("the acknowledged task is missing", [put(0), take(1)]),
        ("acknowledged twice", [put(0), take(1), ack(2), take(2.2, 2), ack(4, 2)]),
        ("comes again after its ack", [put(0), take(1), ack(2), take(3, 2)]),
        ("its put was refused", [put(0, REFUSED), take(1), ack(2)]),
        ("was never put", [take(1), ack(2)]),
        ("has two owners", [put(0), take(1), take(2, 2), ack(3), ack(4, 2)]),
        ("its owner has lost it", [put(0), take(1), ack(2, outcome=REFUSED, error="NotTaken: it was"), take(3, 2), ack(4, 2)]),
        ("is not shown after its put", [put(0), read(1, None), take(2), ack(3)]),
        ("is shown after its ack", [put(0), take(1), ack(2), read(3, "x")]),
    ],
)
def test_a_violation_is_found(fault, history):
    assert any(fault in text for text in violations(history)), violations(history)
