"""The measurement of what a group costs (group_cost.py), with few tasks: that it measures what it says."""

import json
import pathlib
import subprocess
import sys

SCRIPT = pathlib.Path(__file__).with_name("group_cost.py")


def test_a_group_is_measured_beside_a_single_server():
    numbers = ["--cycles", "1000", "--rounds", "1", "--tasks", "1000", "--joined", "1000"]
    ran = subprocess.run([sys.executable, str(SCRIPT), *numbers], capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    result = json.loads(ran.stdout)
    assert set(result["medians"]) == {
        *("single", "group", "single_1x1", "group_1x1", "follower_1x1", "group_with_a_frozen_follower")
    }
    for of_kind in result["medians"].values():
        assert of_kind["put"]["p99"] >= of_kind["put"]["p50"] > 0
    assert result["join"]["meanwhile"]["ack"]["p50"] > 0
    assert len(result["transfers"]["longest_gap_ms"]) == 1
