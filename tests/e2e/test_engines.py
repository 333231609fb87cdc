"""What runs tasks: each engine by the recipe of the documentation, with a worker of its own and its real broker."""

import base64
import json
import os
import pickle
import shlex
import sqlite3
import subprocess
import sys
import time
import uuid
import zlib
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import Any

import kombu
import psycopg
import pytest
from redis import Redis

from tests.conftest import TIMEOUT, unavailable
from tests.documentation import DOCS, Block, blocks_of, section
from tests.e2e.forks import Dialogue, Fork
from tests.readme_project.builder import Project, made

PAGE = DOCS / "tasks.md"
RABBITMQ_URL = os.environ.get("TEST_RABBITMQ_URL", "amqp://guest:guest@127.0.0.1:5672//")
# What the recipes name.
REDIS, RABBITMQ = "redis://127.0.0.1:6379/0", "amqp://guest:guest@127.0.0.1:5672//"
PATIENCE = 60
# What only the call knows.
WORD = "zanzibar"
TOOL = """

import os


@mcp.tool(task=True, permissions=["shop.view_order"], destructive=False)
def spell(request, word: str) -> str:
    \"\"\"Spell a word, and say who does.\"\"\"
    return f"{os.getpid()} {' '.join(word)}"
"""
# The database of an engine that needs PostgreSQL.
DATABASE = """
from example_project.databases import database_from

DATABASES = {{"default": database_from({url!r})}}
"""


def blocks(heading: str) -> list[Block]:
    text = section(PAGE, heading)
    return [block for block in blocks_of(PAGE) if f"```{block.language}\n{block.text}```" in text]


def settings_of(heading: str) -> str:
    """What a recipe adds to the settings."""
    (text,) = (block.text for block in blocks(heading) if block.file == "project/settings.py")
    return text


def commands_of(heading: str) -> list[list[str]]:
    """What a recipe has run, without what is installed; the last one is the worker."""
    lines = [line for block in blocks(heading) if block.language == "console" for line in block.text.splitlines()]
    commands = [shlex.split(line.removeprefix("$ ")) for line in lines]
    return [arguments for _, *arguments in commands if arguments[:2] != ["-m", "pip"]]


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """The README's project, with a tool whose calls go on as tasks, and the modules of the recipes."""
    project = made(tmp_path_factory.mktemp("engines"))
    tools = project.path / "shop" / "mcp.py"
    tools.write_text(tools.read_text() + TOOL)
    for block in blocks_of(PAGE):
        if block.file in ("project/celery.py", "shop/tasks.py"):
            (project.path / block.file).write_text(block.text)
    return project


@pytest.fixture
def rabbitmq() -> Iterator[kombu.Connection]:
    """A connection to RabbitMQ."""
    with kombu.Connection(RABBITMQ_URL, connect_timeout=TIMEOUT) as connection:
        try:
            connection.ensure_connection(max_retries=1, interval_start=0, timeout=TIMEOUT)
        except (OSError, kombu.exceptions.OperationalError) as error:
            unavailable("RabbitMQ", RABBITMQ_URL, error)
        yield connection


@dataclass(frozen=True)
class Running:
    """A project whose settings name an engine, with a client of it."""

    project: Project
    settings: str
    client: Dialogue

    @property
    def environment(self) -> dict[str, str]:
        return {**self.project.environment, "DJANGO_SETTINGS_MODULE": self.settings}

    def call(self) -> dict[str, Any]:
        """Call the tool, and return the task that the call becomes."""
        result = self.client.ask({"method": "tools/call", "name": "spell", "arguments": {"word": WORD}})
        assert result["resultType"] == "task", result
        return dict(result)

    def result(self, task_id: str) -> str:
        """Ask for the task until it is over, and return the text of its result."""
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            task = self.client.ask({"method": "tasks/get", "taskId": task_id})
            if task["status"] != "working":
                assert task["status"] == "completed", task
                return str(task["result"]["content"][0]["text"])
            time.sleep(0.1)
        raise AssertionError("the task is not over")

    def run(self, command: list[str]) -> None:
        done = self.project.run(*command, DJANGO_SETTINGS_MODULE=self.settings)
        assert done.returncode == 0, done.stderr

    @contextmanager
    def worker(self, command: list[str]) -> Iterator[Fork]:
        log = self.project.path / f"{self.settings}.log"
        with log.open("wb") as output, open(os.devnull) as nothing:
            arguments = [sys.executable, *command]
            process = Fork(arguments, self.environment, nothing, output, output, directory=self.project.path)
            try:
                yield process
            except AssertionError as error:
                raise AssertionError(log.read_text()) from error
            finally:
                process.terminate()
                try:
                    process.wait(PATIENCE)
                except subprocess.TimeoutExpired:
                    process.kill()
                    process.wait(PATIENCE)


@contextmanager
def running(project: Project, settings: str, prepare: bool = False) -> Iterator[Running]:
    """Run a client in a project with these settings beside its own; with `prepare`, its database is empty."""
    name = f"settings_{uuid.uuid4().hex[:8]}"
    (project.path / "project" / f"{name}.py").write_text(f"from project.settings import *\n\n{settings}")
    module = f"project.{name}"
    if prepare:
        project.script("prepare", DJANGO_SUPERUSER_PASSWORD="ada", DJANGO_SETTINGS_MODULE=module)
    environment = {**project.environment, "DJANGO_SETTINGS_MODULE": module}
    client = Dialogue([sys.executable, "-m", "tests.readme_project.task_client"], environment, project.path)
    try:
        yield Running(project, module, client)
    finally:
        client.close()


def forget(broker: Any, queue: str) -> None:
    """Delete from Redis what is named after a queue; the rest ends by itself."""
    broker.delete(*broker.scan_iter(f"*{queue}*"))


def is_run_by_worker(site: Running, command: list[str], message: Callable[[], tuple[Any, str]]) -> None:
    """Call the tool, look at the message in the broker, and have the worker run the task.

    `message` returns the arguments that are in the broker, and all that is there of the task as text.
    """
    task = site.call()
    arguments, text = message()
    assert arguments == task["taskId"]
    assert WORD not in text
    assert "spell" not in text
    with site.worker(command) as worker:
        pid, _, word = site.result(task["taskId"]).partition(" ")
        assert word == " ".join(WORD)
        assert int(pid) != task["pid"]
        assert worker.poll() is None


def test_threads_of_the_process_run_a_task_without_any_setting(project: Project) -> None:
    with running(project, "") as site:
        task = site.call()
        assert site.result(task["taskId"]) == f"{task['pid']} {' '.join(WORD)}"


def test_a_worker_of_the_database_runs_a_task(project: Project) -> None:
    heading = "Django's tasks, in the database"
    *others, worker = commands_of(heading)
    with running(project, settings_of(heading)) as site:
        for command in others:
            site.run(command)

        def message() -> tuple[Any, str]:
            with closing(sqlite3.connect(project.path / "db.sqlite3")) as connection:
                connection.row_factory = sqlite3.Row
                [row] = connection.execute("SELECT * FROM django_tasks_database_dbtaskresult")
            given = json.loads(row["args_kwargs"])
            assert given["kwargs"] == {}
            [argument] = given["args"]
            return argument, str([*row])

        # The project is in DEBUG, where the worker would start another one whenever a file changes.
        is_run_by_worker(site, [*worker, "--no-reload"], message)


@pytest.mark.whole
def test_a_worker_of_rq_runs_a_task(project: Project, redis: str) -> None:
    heading = "Django's tasks, in Redis"
    queue = f"tests-{uuid.uuid4().hex}"
    # Others may work on the queue of that name.
    own = f'RQ_QUEUES[{queue!r}] = RQ_QUEUES["default"]\nTASKS["default"]["QUEUES"] = [{queue!r}]\n'
    settings = settings_of(heading).replace(REDIS, redis) + own
    [worker] = commands_of(heading)
    with closing(Redis.from_url(redis)) as broker, running(project, settings) as site:

        def message() -> tuple[Any, str]:
            [job] = broker.lrange(f"rq:queue:{queue}", 0, -1)
            found = broker.hgetall(f"rq:job:{job.decode()}")
            _, _, args, kwargs = pickle.loads(zlib.decompress(found.pop(b"data")))
            assert kwargs == {}
            [argument] = args
            return argument, str(found)

        is_run_by_worker(site, [*worker[:-1], queue], message)
        broker.srem("rq:queues", f"rq:queue:{queue}")
        forget(broker, queue)


def test_a_worker_of_celery_runs_a_task(project: Project, rabbitmq: kombu.Connection) -> None:
    queue = kombu.Queue(f"tests-{uuid.uuid4().hex}", channel=rabbitmq)
    own = f'CELERY_TASK_DEFAULT_QUEUE = "{queue.name}"\n'
    settings = settings_of("Celery").replace(RABBITMQ, RABBITMQ_URL) + own
    [worker] = commands_of("Celery")
    with running(project, settings) as site:

        def message() -> tuple[Any, str]:
            found = queue.get()
            assert found is not None
            found.requeue()
            [argument], kwargs, _ = found.payload
            assert kwargs == {}
            return argument, f"{found.payload} {found.headers} {found.properties}"

        try:
            is_run_by_worker(site, worker, message)
        finally:
            queue.delete()


@pytest.mark.whole
def test_a_worker_of_celery_runs_a_task_from_redis(project: Project, redis: str) -> None:
    queue = f"tests-{uuid.uuid4().hex}"
    own = f'CELERY_TASK_DEFAULT_QUEUE = "{queue}"\n'
    settings = settings_of("Celery").replace(RABBITMQ, redis) + own
    [worker] = commands_of("Celery")
    with closing(Redis.from_url(redis)) as broker, running(project, settings) as site:

        def message() -> tuple[Any, str]:
            [found] = map(json.loads, broker.lrange(queue, 0, -1))
            body = base64.b64decode(found.pop("body")).decode()
            [argument], kwargs, _ = json.loads(body)
            assert kwargs == {}
            return argument, f"{body} {found}"

        is_run_by_worker(site, worker, message)
        forget(broker, queue)


@pytest.mark.whole
def test_a_worker_of_procrastinate_runs_a_task(project: Project, postgres_database: str) -> None:
    settings = settings_of("procrastinate") + DATABASE.format(url=postgres_database)
    *_, worker = commands_of("procrastinate")
    with running(project, settings, prepare=True) as site:

        def message() -> tuple[Any, str]:
            with psycopg.connect(postgres_database) as connection:
                [row] = connection.execute("SELECT args, procrastinate_jobs::text FROM procrastinate_jobs").fetchall()
            assert row[0].keys() == {"task_id"}
            return row[0]["task_id"], row[1]

        is_run_by_worker(site, worker, message)


@pytest.mark.whole
@pytest.mark.parametrize("heading", ["Django's tasks, in Redis", "Celery"])
def test_a_call_is_answered_although_the_broker_is_down(heading: str, project: Project) -> None:
    settings = settings_of(heading).replace(":6379", ":1").replace(":5672", ":1")
    assert settings != settings_of(heading)
    with running(project, settings) as site:
        started = time.monotonic()
        task = site.call()
        assert task["status"] == "working"
        assert time.monotonic() - started < 20
