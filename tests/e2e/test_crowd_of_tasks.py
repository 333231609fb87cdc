"""Many tasks of two web workers, run by two other processes, of which one has a clock that is two hours ahead."""

import asyncio
import itertools
import json
import os
import signal
import sys
import time
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx2
import pytest
from redis import Redis

from tests.cases import SOME
from tests.conftest import unavailable
from tests.e2e.forks import Fork, run_to_end
from tests.e2e.servers import HOST, command, environment, free_port, run
from tests.e2e.workers.client import MODERN, Client
from tests.servers import MYSQL, POSTGRESQL, Server

pytestmark = pytest.mark.one_django

TASKS = 40 if SOME else 1_000
# Each has as many tasks as one may have at a time.
OF_EACH = 20
PATIENCE = 300
AHEAD = "2"
# Milliseconds of the lease of a worker that is lost.
LEASE = 1_500
# What tasks of lost workers write down.
numbers = itertools.count(-1, -1)


@dataclass
class Crowd:
    """A database, a queue, and two web workers."""

    environment: dict[str, str]
    tokens: list[str]
    urls: list[str]
    redis: Redis
    directory: Path

    @contextmanager
    def worker(self, name: str, **more: str) -> Iterator[Fork]:
        """Let a process run tasks until the block ends."""
        log = self.directory / f"{name}.log"
        env = {**self.environment, "CROWD_WORKER": name, **more}
        with log.open("wb") as output, open(os.devnull) as nothing:
            process = Fork([sys.executable, "-m", "tests.e2e.crowd.worker", name], env, nothing, output, output)
            try:
                yield process
            finally:
                process.kill()
                process.wait(PATIENCE)
        assert "Traceback" not in log.read_text(), log.read_text()

    def rows(self, code: str) -> Any:
        """What code that prints JSON gives in the project."""
        setup = "import json, django; django.setup(); from tests.e2e.crowd.models import Entry\n"
        setup += "from mcp_django.models import Task\n"
        done = run_to_end(["-c", f"{setup}print(json.dumps([*{code}]))"], self.environment)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)


@contextmanager
def database_of(server: Server) -> Iterator[str]:
    """An empty database of the test's own, by its URL."""
    if (error := server.why_not()) is not None:
        unavailable(server.name, server.url, error)
    name = f"mcp_django_{uuid.uuid4().hex}"
    options = " WITH (FORCE)" if server is POSTGRESQL else ""
    connection = server.connect()
    if server is POSTGRESQL:
        connection.autocommit = True
    cursor = connection.cursor()
    cursor.execute(f"CREATE DATABASE {name}")
    try:
        yield urlsplit(server.url)._replace(path=f"/{name}").geturl()
    finally:
        cursor.execute(f"DROP DATABASE {name}{options}")
        connection.close()


@pytest.fixture(
    scope="module",
    params=[POSTGRESQL, pytest.param(MYSQL, marks=pytest.mark.whole)],
    ids=lambda server: server.name,
)
def crowd(request: Any, redis: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Crowd]:
    directory = tmp_path_factory.mktemp("crowd")
    with ExitStack() as stack:
        env = environment(
            "tests.e2e.crowd.settings",
            EXAMPLE_DATABASE=stack.enter_context(database_of(request.param)),
            EXAMPLE_MEDIA=str(directory / "media"),
            REDIS_URL=redis,
            WORKERS_PREFIX=f"crowd-{uuid.uuid4().hex}",
            MCP_BASE_URL=f"http://{HOST}:1",
        )
        made = run_to_end(["-m", "tests.e2e.crowd.prepare", str(TASKS // OF_EACH)], env)
        assert made.returncode == 0, made.stderr
        urls = []
        for number in range(2):
            port = free_port()
            program = command("uvicorn", "example_project.asgi:application", port)
            origin = stack.enter_context(run(program, port, env, directory / f"web{number}.log"))
            urls.append(f"{origin}/mcp")
        broker = stack.enter_context(Redis.from_url(redis))
        yield Crowd(env, json.loads(made.stdout), urls, broker, directory)
        for key in broker.scan_iter(f"{env['WORKERS_PREFIX']}*"):
            broker.delete(key)


class Person:
    """A client of one person, who asks each web worker in turn."""

    def __init__(self, http: httpx2.AsyncClient, crowd: Crowd, number: int) -> None:
        self.client = Client(http, crowd.tokens[number], version=MODERN)
        self.urls = crowd.urls
        self.turn = number

    async def ask(self, method: str, params: dict[str, Any]) -> Any:
        self.turn += 1
        name = params.get("name") or params.get("taskId")
        extensions = {"extensions": {"io.modelcontextprotocol/tasks": {}}}
        meta = {"io.modelcontextprotocol/clientCapabilities": extensions}
        message = self.client.message(method, {**params, "_meta": meta})
        headers = self.client.headers(Mcp_Method=method, Mcp_Name=name)
        response = await self.client.http.post(self.urls[self.turn % 2], json=message, headers=headers)
        assert "result" in response.json(), response.text
        return response.json()["result"]

    async def begin(self, tool: str, **arguments: Any) -> str:
        made = await self.ask("tools/call", {"name": tool, "arguments": arguments})
        assert made["resultType"] == "task", made
        task_id: str = made["taskId"]
        return task_id

    async def status(self, task_id: str) -> str:
        found = await self.ask("tasks/get", {"taskId": task_id})
        return str(found["status"])

    async def end(self, task_id: str, within: float = PATIENCE) -> Any:
        """How a task ends."""
        async with asyncio.timeout(within):
            while (found := await self.ask("tasks/get", {"taskId": task_id}))["status"] == "working":
                await asyncio.sleep(found["pollIntervalMs"] / 1000)
        return found


async def everything(crowd: Crowd) -> list[int]:
    """Let each person have tasks made, and wait for all of them; return the numbers of their results."""

    async def all_of(number: int) -> list[int]:
        person = Person(http, crowd, number)
        own = range(number * OF_EACH, (number + 1) * OF_EACH)
        tasks = [await person.begin("write" if one % 2 else "write_at_once", number=one) for one in own]
        ends = [await person.end(task_id) for task_id in tasks]
        assert {end["status"] for end in ends} == {"completed"}, ends
        return [int(end["result"]["content"][0]["text"]) for end in ends]

    # The server closes a connection that was idle for five seconds, perhaps while a request is on its way.
    limits = httpx2.Limits(max_connections=16, keepalive_expiry=2)
    async with httpx2.AsyncClient(timeout=PATIENCE, limits=limits) as http:
        found = await asyncio.gather(*map(all_of, range(len(crowd.tokens))))
    return [number for numbers in found for number in numbers]


def test_of_a_crowd_of_tasks_none_is_lost_and_none_is_run_twice(crowd: Crowd) -> None:
    with crowd.worker("ahead", CROWD_CLOCK=AHEAD), crowd.worker("right"):
        began = time.monotonic()
        results = asyncio.run(everything(crowd))
        seconds = time.monotonic() - began
    assert results == [*range(TASKS)]
    entries = crowd.rows("Entry.objects.filter(number__gte=0).values_list('number', 'worker')")
    assert [number for number, _ in entries] == results
    assert {worker for _, worker in entries} == {"ahead", "right"}
    tasks = "Task.objects.filter(tool__startswith='write')"
    assert crowd.rows(f"{tasks}.values_list('state', 'attempt', 'lapses').distinct()") == [["completed", 1, 0]]
    counted = crowd.redis.hvals(f"{crowd.environment['WORKERS_PREFIX']}-queries")
    each = sum(map(int, counted)) / TASKS
    print(f"{TASKS} tasks in {seconds:.1f} s, {TASKS / seconds:.1f} a second; {each:.1f} queries of a worker for each")


@pytest.mark.whole
@pytest.mark.parametrize("name", ["SIGKILL", "SIGSTOP"])
@pytest.mark.parametrize("tool", ["wait_at_once", "wait"])
def test_work_whose_process_is_lost_in_the_middle_is_done_once_or_may_have_been_done(
    tool: str, name: str, crowd: Crowd, tmp_path: Path
) -> None:
    number = next(numbers)

    async def lose() -> tuple[str, Any]:
        async with httpx2.AsyncClient(timeout=PATIENCE) as http:
            person = Person(http, crowd, 0)
            task_id = await person.begin(tool, number=number, place=str(tmp_path))
            with crowd.worker("lost", CROWD_LEASE=str(LEASE)) as lost:
                while not (tmp_path / f"{number} at lost").exists():
                    await person.status(task_id)
                    await asyncio.sleep(0.2)
                os.kill(lost.pid, signal.Signals[name])
                (tmp_path / "go on").touch()
                with crowd.worker("other"):
                    await asyncio.sleep(LEASE / 1000 + 0.2)
                    first = await person.status(task_id)
                    found = await person.end(task_id)
                    if name == "SIGSTOP":
                        os.kill(lost.pid, signal.SIGCONT)
                    await asyncio.sleep(1)
                    assert await person.status(task_id) == found["status"]
        return first, found

    first, found = asyncio.run(lose())
    entries = crowd.rows(f"Entry.objects.filter(number={number}).values_list('worker', flat=True)")
    if tool == "wait_at_once":
        assert (first, found["status"], entries) == ("working", "completed", ["other"])
    else:
        assert (first, found["status"], entries) == ("failed", "failed", ["lost"])
        assert "may have been done" in found["error"]["message"]
