"""Network hosts of one machine: namespaces with addresses of their own, on a bridge."""

import json
import subprocess
from types import TracebackType

# Of the range that is kept for benchmarks (RFC 2544): no host outside has one of these addresses.
PREFIX = "198.18.38"
CENTER = f"{PREFIX}.1"
BRIDGE = "mcp-bench"
NAMES = ("a", "b")


def run(*command: str) -> str:
    """Run a command of the system and return what it prints.

    Raises:
        RuntimeError: it fails; with its words.
    """
    done = subprocess.run(command, capture_output=True, text=True, timeout=30)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)}: {done.stderr.strip()}")
    return done.stdout


class Host:
    """One host: a namespace, and the cable that joins it to the bridge."""

    def __init__(self, name: str, number: int) -> None:
        self.name = name
        self.address = f"{PREFIX}.{number}"
        self.namespace = f"{BRIDGE}-{name}"
        self.cable = f"mcpb-{name}"

    def inside(self, *command: str) -> list[str]:
        """Return the command that runs this one on the host."""
        return ["ip", "netns", "exec", self.namespace, *command]

    def make(self) -> None:
        """Make the namespace and join it to the bridge."""
        far = f"{self.cable}-in"
        run("ip", "netns", "add", self.namespace)
        run("ip", "link", "add", self.cable, "type", "veth", "peer", "name", far, "netns", self.namespace)
        run("ip", "link", "set", self.cable, "master", BRIDGE, "up")
        run(*self.inside("ip", "address", "add", f"{self.address}/24", "dev", far))
        run(*self.inside("ip", "link", "set", far, "up"))
        run(*self.inside("ip", "link", "set", "lo", "up"))

    def cut_off(self) -> None:
        """Pull the cable: nothing arrives, and nobody is told."""
        run("ip", "link", "set", self.cable, "down")

    def join(self) -> None:
        """Put the cable back."""
        run("ip", "link", "set", self.cable, "up")


class Network:
    """The bridge with its hosts, while the block runs. The services and the clients are on the bridge's own address."""

    def __init__(self) -> None:
        self.hosts = [Host(name, number) for number, name in enumerate(NAMES, 2)]

    def __enter__(self) -> "Network":
        self.remove()
        try:
            run("ip", "link", "add", BRIDGE, "type", "bridge")
            run("ip", "address", "add", f"{CENTER}/24", "dev", BRIDGE)
            run("ip", "link", "set", BRIDGE, "up")
            for host in self.hosts:
                host.make()
        except BaseException:
            self.remove()
            raise
        return self

    def __exit__(self, *error: type[BaseException] | BaseException | TracebackType | None) -> None:
        self.remove()

    def remove(self) -> None:
        """Remove what is there of it, also what a run that was killed has left."""
        known = {entry["name"] for entry in json.loads(run("ip", "-json", "netns", "list") or "[]")}
        for host in self.hosts:
            if host.namespace in known:
                run("ip", "netns", "del", host.namespace)
        links = {entry["ifname"] for entry in json.loads(run("ip", "-json", "link", "show"))}
        for name in (*(host.cable for host in self.hosts), BRIDGE):
            # The cables of a namespace go with it, some time later.
            if name in links:
                subprocess.run(["ip", "link", "del", name], capture_output=True, timeout=30)
