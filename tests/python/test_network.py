"""A random history of a group whose members cannot always hear each other. `histories.py network` runs long ones by hand."""

import os
import random

import pytest

from histories import run
from network import may_make_namespaces

SEED = int(os.environ.get("LYCOSA_TEST_SEED", 0)) or random.SystemRandom().randrange(1 << 32)
NETWORK_FAULTS = ["cut", "cut two", "mute", "slow", "lossy"]


@pytest.mark.skipif(not may_make_namespaces(), reason="this process may not make network namespaces")
def test_whatever_the_network_does_a_history_violates_nothing():
    said = []
    # One round of each.
    found, history = run("network", len(NETWORK_FAULTS), SEED, said.append)
    assert not found, "\n".join([f"LYCOSA_TEST_SEED={SEED}", *said, *found])
    assert history.count("put") and history.count("ack") and history.count("read")
    assert all(any(f": {fault}" in line for line in said) for fault in NETWORK_FAULTS), said
