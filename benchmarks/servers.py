"""The contenders' processes: each on a port of its own, on one core, and ended by its own process object."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

STOP_SECONDS = 10
# Of /proc/<pid>/stat, counted after the name in parentheses: user and system time.
USER_TIME, SYSTEM_TIME = 11, 12


@dataclass(frozen=True)
class Contender:
    """What serves: an application of :mod:`benchmarks.serve`, and whether default middleware is in front of it."""

    name: str
    title: str
    application: str
    middleware: bool = False
    # Whether a client of the handshake era may subscribe to a resource.
    subscribes: bool = True
    # More than one are started as `uvicorn --workers` starts them, with the socket that it makes, on any core.
    workers: int = 1

    @property
    def speaks_mcp(self) -> bool:
        """Whether it is an MCP server, or else a plain JSON view."""
        return not self.name.startswith("bare")


CONTENDERS = (
    Contender("fast", "mcp_django, fast road", "fast"),
    Contender("fast_two", "mcp_django, fast road, two workers", "fast", workers=2),
    Contender("plain", "mcp_django, plain road", "django"),
    Contender("plain_mw", "mcp_django, plain road, default middleware", "django", middleware=True),
    Contender("sdk", "official SDK, no token", "sdk"),
    Contender("sdk_token", "official SDK, same token and permission", "sdk_token"),
    Contender("bare", "bare view", "django"),
    Contender("bare_mw", "bare view, default middleware", "django", middleware=True),
)
# Those whose streams are compared; the SDK's server answers with JSON alone where calls are measured.
STREAM_CONTENDERS = (
    CONTENDERS[0],
    Contender("sdk", "official SDK, no token", "sdk_streams", subscribes=False),
)


class Server:
    """A running contender."""

    def __init__(self, contender: Contender, process: "subprocess.Popen[bytes]", port: int) -> None:
        self.contender, self.process, self.port = contender, process, port

    def cpu_seconds(self) -> float | None:
        """Return the processor time used so far, where the system tells it of one process."""
        if self.contender.workers > 1:
            return None
        try:
            fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            return None
        return (int(fields[USER_TIME]) + int(fields[SYSTEM_TIME])) / os.sysconf("SC_CLK_TCK")


@contextmanager
def running(contender: Contender, database: str, *, cpu: int | None = None, counting: bool = False) -> Iterator[Server]:
    """Run a contender.

    Raises:
        RuntimeError: it ended instead of serving; its own words are on standard error.
    """
    command = [sys.executable, "-m", "benchmarks.serve", contender.application]
    if counting:
        command += ["--count-queries"]
    elif contender.workers > 1:
        command += ["--workers", str(contender.workers)]
    elif cpu is not None:
        command += ["--cpu", str(cpu)]
    environment = os.environ | {
        "DJANGO_SETTINGS_MODULE": "benchmarks.project.settings",
        "BENCH_DATABASE": database,
        "BENCH_MIDDLEWARE": "default" if contender.middleware else "none",
    }
    process = subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        port = process.stdout.readline()
        if not port:
            raise RuntimeError(f"{contender.title} did not start")
        yield Server(contender, process, int(port))
    finally:
        stop(process)


def stop(process: "subprocess.Popen[bytes]") -> None:
    """End a contender that :func:`running` started."""
    process.terminate()
    try:
        process.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            pipe.close()


def cores() -> tuple[int | None, int | None]:
    """Return the core for the servers and the one for the load, where there are two that can be chosen."""
    if not hasattr(os, "sched_getaffinity"):
        return None, None
    available = sorted(os.sched_getaffinity(0))
    return (available[0], available[1]) if len(available) > 1 else (None, None)


def load_average() -> float:
    """Return the load average of the last minute: other programs' work shows in the numbers."""
    return os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0
