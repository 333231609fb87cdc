"""The programs of a run: each with its log, ended with all that it has started, and counted when it ends by itself."""

import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

STOP_SECONDS = 45
TICKS = os.sysconf("SC_CLK_TCK")
# Of /proc/<pid>/stat, counted after the name in parentheses.
PARENT, USER_TIME, SYSTEM_TIME = 1, 11, 12


class Program:
    """A program that runs until it is stopped, started as often as needed.

    ``kept`` ones are started again when they end, as an init system does.
    """

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        log: Path,
        *,
        environment: Mapping[str, str] | None = None,
        user: str | None = None,
        directory: Path | None = None,
        kept: bool = False,
    ) -> None:
        self.name, self.command, self.log, self.kept = name, list(command), log, kept
        self.environment, self.user, self.directory = environment, user, directory
        self.process: subprocess.Popen[bytes] | None = None
        # How often it ended without having been told to.
        self.ends = 0
        # Processor time of runs that are over.
        self.spent = 0.0

    def start(self) -> None:
        """Start it."""
        with self.log.open("ab") as output:
            self.process = subprocess.Popen(
                self.command,
                env=self.environment,
                user=self.user,
                group=self.user,
                extra_groups=None if self.user is None else [],
                cwd=self.directory,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        """The process id, 0 while it does not run."""
        return 0 if self.process is None else self.process.pid

    def is_running(self) -> bool:
        """Return whether it runs."""
        return self.process is not None and self.process.poll() is None

    def look_after(self) -> bool:
        """Start it again if it has ended by itself; return whether it had."""
        if self.process is None or self.process.poll() is None:
            return False
        self.ends += 1
        if self.kept:
            self.end_group()
            self.start()
        return True

    def stop(self, name: signal.Signals = signal.SIGTERM) -> float:
        """Tell it to end, and return how many seconds it took; it is killed after a time."""
        process, began = self.process, time.monotonic()
        if process is None:
            return 0
        self.process = None
        if process.poll() is None:
            self.spent += sum(map(cpu_seconds, family(process.pid)))
            process.send_signal(name)
            try:
                process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                self.ends += 1
        kill_group(process.pid)
        process.wait()
        return time.monotonic() - began

    def kill(self) -> None:
        """Kill it, with all that it has started."""
        if self.process is not None:
            kill_group(self.process.pid)
            self.process.wait()

    def end_group(self) -> None:
        """End what a program that has ended has left behind."""
        if self.process is not None:
            kill_group(self.process.pid)

    def cpu_seconds(self) -> float:
        """Return the processor time that it and its children have used."""
        return self.spent + (sum(map(cpu_seconds, family(self.pid))) if self.is_running() else 0)

    def resident_mib(self) -> float:
        """Return the memory that it and its children occupy."""
        return sum(map(resident_mib, family(self.pid))) if self.is_running() else 0


def kill_group(pid: int) -> None:
    """Kill the group of processes that a process leads."""
    try:
        os.killpg(pid, signal.SIGKILL)
    except ProcessLookupError:
        return


def stat_of(pid: int) -> list[str]:
    """Return what the system says of a process, nothing once it has ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []


def children(pid: int) -> list[int]:
    """Return the child processes of a process, the oldest first."""
    found = []
    for entry in os.listdir("/proc"):
        if entry.isdigit() and (fields := stat_of(int(entry))) and int(fields[PARENT]) == pid:
            found.append(int(entry))
    return sorted(found)


def family(pid: int) -> list[int]:
    """Return a process and those that it has started."""
    return [pid, *(member for child in children(pid) for member in family(child))]


def cpu_seconds(pid: int) -> float:
    """Return the processor time that a process has used."""
    fields = stat_of(pid)
    return (int(fields[USER_TIME]) + int(fields[SYSTEM_TIME])) / TICKS if fields else 0


def resident_mib(pid: int) -> float:
    """Return the memory that a process occupies."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0
    return sum(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmRSS:"))


def wait_until(is_so: Callable[[], bool], what: str, seconds: float = 90) -> float:
    """Wait until something is so, and return how long it took.

    Raises:
        RuntimeError: it is not after so many seconds.
    """
    began = time.monotonic()
    while not is_so():
        if time.monotonic() - began > seconds:
            raise RuntimeError(f"{what}: not within {seconds} s")
        time.sleep(0.1)
    return time.monotonic() - began
