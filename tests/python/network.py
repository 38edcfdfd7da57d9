"""A network of the test's own: a bridge, and on it a namespace for each server, whose link can be cut, slowed down or made to lose packets.

It takes the right to make namespaces, which root has. Names hold the process's number, so that runs do not meet. A change of the machine's network makes a
browser on it drop its requests: tests that use this module do not run beside those of the page.
"""

import os
import subprocess

# No host has it: packets to it vanish.
NOWHERE = "02:00:00:00:00:01"
# Otherwise the bridge's address is the lowest of its links', and changes with them.
BRIDGE = "02:00:00:00:00:02"
# Some hundred tasks a second.
SLOW = ("tbf", "rate", "400kbit", "burst", "8kb", "latency", "2s")
# `netem` is not in every kernel.
LOSSY = ("netem", "delay", "10ms", "5ms", "loss", "3%")


def may_make_namespaces():
    """Whether this process may; it tries."""
    name = f"lyp{os.getpid()}-try"
    made = subprocess.run(["ip", "netns", "add", name], capture_output=True, check=False).returncode == 0
    if made:
        ip("netns", "del", name)
    return made


def ip(*arguments):
    subprocess.run(["ip", *arguments], capture_output=True, check=True)


class Network:
    """Hosts count from 0; they have an address and a namespace each."""

    def __init__(self, hosts):
        number = os.getpid()
        self.bridge = f"lyp{number}b"
        # 10.128.0.0 to 10.191.255.0.
        net = f"10.{128 + (number >> 8) % 64}.{number % 256}"
        self.names = [f"lyp{number}-{host}" for host in range(hosts)]
        self.links = [f"lyp{number}v{host}" for host in range(hosts)]
        self.addresses = [f"{net}.{host + 2}" for host in range(hosts)]
        try:
            ip("link", "add", self.bridge, "address", BRIDGE, "type", "bridge")
            ip("addr", "add", f"{net}.1/24", "dev", self.bridge)
            ip("link", "set", self.bridge, "up")
            for name, link, address in zip(self.names, self.links, self.addresses):
                ip("netns", "add", name)
                ip("link", "add", link, "type", "veth", "peer", "name", "eth0", "netns", name)
                ip("link", "set", link, "master", self.bridge, "up")
                ip("-n", name, "addr", "add", f"{address}/24", "dev", "eth0")
                ip("-n", name, "link", "set", "eth0", "up")
                ip("-n", name, "link", "set", "lo", "up")
        except BaseException:
            self.remove()
            raise

    def inside(self, host):
        """What stands before a command that runs on a host."""
        return ["ip", "netns", "exec", self.names[host]]

    def cut(self, host):
        """Nothing reaches the host, and nothing leaves it; who sends gets no error."""
        ip("link", "set", self.links[host], "down")

    def join(self, host):
        ip("link", "set", self.links[host], "up")

    def mute(self, host, to):
        """What the host sends to another one vanishes; it hears it still."""
        ip("-n", self.names[host], "neigh", "replace", self.addresses[to], "lladdr", NOWHERE, "dev", "eth0", "nud", "permanent")

    def unmute(self, host, to):
        ip("-n", self.names[host], "neigh", "del", self.addresses[to], "dev", "eth0")

    def shape(self, host, form):
        """What the host is sent comes late, or not at all. Whether the kernel can do so."""
        command = ["tc", "qdisc", "replace", "dev", self.links[host], "root", *form]
        return subprocess.run(command, capture_output=True, check=False).returncode == 0

    def unshape(self, host):
        subprocess.run(["tc", "qdisc", "del", "dev", self.links[host], "root"], capture_output=True, check=True)

    def remove(self):
        """Takes everything away that was made."""
        for name in self.names:
            subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)
        subprocess.run(["ip", "link", "del", self.bridge], capture_output=True, check=False)
