"""The two hosts with all that they run, and what can be done to them."""

import json
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import threading
import time
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from types import TracebackType
from typing import Any

import httpx2

from . import services
from .network import CENTER, Host, Network
from .processes import Program, children, wait_until

ROOT = Path(__file__).resolve().parents[2]
SETTINGS = "benchmarks.two_hosts.project.settings"
MIGRATIONS = "mcp_django/migrations"
WEB_WORKERS = 2
# Seconds between two looks at what has ended.
LOOK_EVERY = 0.5
URL = f"http://{CENTER}:{services.PROXY_PORT}"


def git(*arguments: str) -> bytes:
    """Return what git prints of this repository.

    Raises:
        RuntimeError: it fails, for example because this is no repository.
    """
    done = subprocess.run(["git", "-C", str(ROOT), *arguments], capture_output=True)
    if done.returncode:
        raise RuntimeError(f"git {' '.join(arguments)}: {done.stderr.decode()}")
    return done.stdout


def version_before() -> str:
    """Return the commit before the one that added the newest migration: what it serves has an older database."""
    newest = sorted(path.name for path in (ROOT / MIGRATIONS).glob("0*.py"))[-1]
    added = git("log", "--diff-filter=A", "--format=%H", "--", f"{MIGRATIONS}/{newest}").decode().split()
    if not added:
        return git("rev-parse", "HEAD").decode().strip()
    return git("rev-parse", f"{added[-1]}^").decode().strip()


class Machine:
    """A host with its web workers and its worker of tasks."""

    def __init__(self, host: Host, directory: Path, environment: dict[str, str]) -> None:
        self.host = host
        serve = [sys.executable, "-m", "uvicorn", "benchmarks.two_hosts.project.asgi:application"]
        serve += ["--host", host.address, "--port", str(services.WEB_PORT), "--workers", str(WEB_WORKERS)]
        serve += ["--loop", "uvloop", "--http", "httptools", "--log-level", "warning"]
        serve += ["--timeout-graceful-shutdown", "30"]
        work = [sys.executable, "-m", "django", "db_worker", "--interval", "0.5"]
        self.web = Program(
            f"web {host.name}",
            host.inside(*serve),
            directory / f"web-{host.name}.log",
            environment=environment,
            kept=True,
        )
        self.tasks = Program(
            f"tasks {host.name}",
            host.inside(*work),
            directory / f"tasks-{host.name}.log",
            environment=environment,
            kept=True,
        )

    def start(self, version: Path) -> None:
        """Start both from the code in this folder."""
        for program in (self.web, self.tasks):
            assert program.environment is not None
            program.directory = version
            program.environment = {**program.environment, "PYTHONPATH": str(version)}
            program.start()

    def wait(self) -> None:
        """Wait until all web workers answer."""
        wait_until(lambda: services.answers(self.host.address, services.WEB_PORT), self.web.name)
        wait_until(lambda: len(self.web_workers()) == WEB_WORKERS, self.web.name)
        # Each of them imports the project before it takes connections: a few requests reach both.
        for _ in range(4 * WEB_WORKERS):
            wait_until(self.is_ready, self.web.name)

    def is_ready(self) -> bool:
        """Return whether a request is answered."""
        try:
            httpx2.get(f"http://{self.host.address}:{services.WEB_PORT}/", timeout=30, trust_env=False)
        except httpx2.TransportError:
            return False
        return True

    def web_workers(self) -> list[int]:
        """Return the processes that answer: multiprocessing starts one of its own before them."""
        return [pid for pid in children(self.web.pid) if b"spawn_main" in command_of(pid)]

    def stop(self) -> float:
        """Stop both, and return how many seconds the web workers took."""
        took = self.web.stop()
        self.tasks.stop()
        return took


def command_of(pid: int) -> bytes:
    """Return the command line of a process."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


class Cluster:
    """Everything that runs, while the block does. `say` is told what goes on."""

    def __init__(self, people: int, rows: int, before: str, say: Callable[[str], None]) -> None:
        self.number, self.rows, self.say = people, rows, say
        self.before = before
        self.directory = Path(tempfile.mkdtemp(prefix="two-hosts-"))
        self.directory.chmod(0o755)
        self.network = Network()
        self.databases = services.PostgreSQL(self.directory / "databases")
        self.databases.directory.mkdir()
        self.pooler = services.pooler(self.directory / "databases")
        self.redis = services.redis(self.directory)
        self.proxy = services.Proxy(self.directory, [host.address for host in self.network.hosts])
        self.environment = {
            **os.environ,
            "DJANGO_SETTINGS_MODULE": SETTINGS,
            "TWO_HOSTS_DIRECTORY": str(self.directory),
            "PYTHONUNBUFFERED": "1",
        }
        self.machines = [Machine(host, self.directory, self.environment) for host in self.network.hosts]
        self.people: list[dict[str, Any]] = []
        # What ended by itself, and when.
        self.ended: list[tuple[float, str]] = []
        self.is_over = threading.Event()
        self.lock = threading.RLock()
        self.keeper = threading.Thread(target=self.keep, daemon=True)

    def programs(self) -> list[Program]:
        """Return all programs, what others need first."""
        shared = [self.databases.primary, self.databases.replica, self.redis, self.pooler]
        return [
            *shared,
            *(one for machine in self.machines for one in (machine.web, machine.tasks)),
            self.proxy.program,
        ]

    def __enter__(self) -> "Cluster":
        try:
            self.make()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *error: type[BaseException] | BaseException | TracebackType | None) -> None:
        self.close()

    def make(self) -> None:
        """Make and start everything, with the version before."""
        self.say("Making two network hosts, PostgreSQL with a replica, PgBouncer, Redis and nginx ...")
        self.network.__enter__()
        self.now = self.version("now")
        self.old = self.version("before", self.before)
        self.databases.make()
        self.pooler.start()
        self.redis.start()
        wait_until(lambda: services.answers(CENTER, services.POOLER_PORT), "PgBouncer")
        wait_until(lambda: services.answers(CENTER, services.REDIS_PORT), "Redis")
        arguments = ["-m", "benchmarks.two_hosts.project.prepare", str(self.number), str(self.rows)]
        self.people = json.loads(self.python(self.old, *arguments))
        self.say(f"Starting both hosts with {self.before[:8]} ...")
        for machine in self.machines:
            machine.start(self.old)
        for machine in self.machines:
            machine.wait()
        self.proxy.program.start()
        wait_until(lambda: services.answers(CENTER, services.PROXY_PORT), "nginx")
        self.keeper.start()

    def close(self) -> None:
        """End everything and remove what it has left, whatever was there of it."""
        self.is_over.set()
        if self.keeper.is_alive():
            self.keeper.join()
        for machine in self.machines:
            machine.host.join() if machine.web.pid else None
        for program in reversed(self.programs()):
            program.stop(signal.SIGINT if program.user else signal.SIGTERM)
        self.network.remove()
        shutil.rmtree(self.directory, ignore_errors=True)

    def version(self, name: str, commit: str = "") -> Path:
        """Return a folder with the package as it is, or was at a commit, and this project."""
        folder = self.directory / name
        ignored = shutil.ignore_patterns("__pycache__")
        if commit:
            folder.mkdir()
            with tarfile.open(fileobj=BytesIO(git("archive", commit, "mcp_django"))) as archive:
                archive.extractall(folder, filter="data")
        else:
            shutil.copytree(ROOT / "mcp_django", folder / "mcp_django", ignore=ignored)
        shutil.copytree(ROOT / "benchmarks", folder / "benchmarks", ignore=ignored)
        return folder

    def python(self, version: Path, *arguments: str) -> str:
        """Return what a Python program of the project prints, run from the code in a folder.

        Raises:
            RuntimeError: it fails.
        """
        environment = {**self.environment, "PYTHONPATH": str(version)}
        command = [sys.executable, *arguments]
        done = subprocess.run(command, env=environment, cwd=version, capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(f"{' '.join(arguments)}: {done.stderr}")
        return done.stdout

    def keep(self) -> None:
        """Start again what ends and is kept, and remember all that ends by itself."""
        while not self.is_over.wait(LOOK_EVERY):
            with self.lock:
                for program in self.programs():
                    if program.process is not None and program.look_after():
                        self.ended.append((time.monotonic(), program.name))
                        if not program.kept:
                            program.process = None

    # What is done to it

    def deploy(self, machine: Machine, version: Path) -> float:
        """Take a host out, start it from another version, and put it back; return how long its stop took."""
        self.proxy.take_out(machine.host.address)
        # What is on its way to it is answered.
        time.sleep(1)
        with self.lock:
            took = machine.stop()
            machine.start(version)
        machine.wait()
        self.proxy.take_out()
        return took

    def migrate(self, version: Path) -> None:
        """Bring the tables to the state of a version."""
        self.python(version, "-m", "django", "migrate", "--run-syncdb", "--verbosity", "0")

    def kill_web_worker(self, machine: Machine) -> None:
        """Kill one web worker without notice; its server starts another one."""
        os.kill(machine.web_workers()[0], signal.SIGKILL)

    def kill_tasks(self, machine: Machine) -> None:
        """Kill the worker of tasks without notice."""
        os.kill(machine.tasks.pid, signal.SIGKILL)

    def restart(self, program: Program, away: float, name: signal.Signals = signal.SIGTERM) -> None:
        """Let one of the services be away for some seconds."""
        with self.lock:
            program.stop(name)
        time.sleep(away)
        with self.lock:
            program.start()

    def tracebacks(self) -> dict[str, int]:
        """Return how many tracebacks each program has logged."""
        found = {program.name: program.log for program in self.programs() if program.log.exists()}
        return {
            name: count for name, log in found.items() if (count := log.read_text(errors="replace").count("Traceback"))
        }
