"""Several workers, one PostgreSQL, one Redis: what one of them begins another one goes on with, also after a kill."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.e2e.servers import HOST, ROOT, command, environment, free_port
from tests.e2e.workers.client import MODERN, Client, Stream

PREPARE = """
import django
django.setup()
from django.core.management import call_command
call_command("migrate", run_syncdb=True, verbosity=0)
call_command("load_places", min_population=2_000_000)
call_command("load_shop", orders=20)
call_command("create_accounts")
"""
PATIENCE = 30
# Seconds until who comes back hears of a call whose worker was killed, and who waits of one whose worker stops.
TOLD_WITHIN = 12
STOPS_WITHIN = 5
ORDER = "django://shop/order/1"
UPDATED = "notifications/resources/updated"


@dataclass
class Cluster:
    """What the workers have in common."""

    env: dict[str, str]
    directory: Path

    def shell(self, code: str) -> str:
        """What a shell of the project prints."""
        run = [sys.executable, str(ROOT / "manage.py"), "shell", "-v", "0", "-c", code]
        done = subprocess.run(run, env=self.env, cwd=ROOT, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def token(self, user: str) -> str:
        run = [sys.executable, str(ROOT / "manage.py"), "mcp_token", user]
        done = subprocess.run(run, env=self.env, cwd=ROOT, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    async def shell_beside(self, code: str) -> str:
        return await asyncio.to_thread(self.shell, code)


class Worker:
    """One worker process."""

    def __init__(self, cluster: Cluster, name: str) -> None:
        self.port = free_port()
        self.url = f"http://{HOST}:{self.port}/mcp"
        self.log = cluster.directory / f"{name}-{self.port}.log"
        with self.log.open("wb") as output:
            self.process = subprocess.Popen(
                command("uvicorn", "example_project.asgi:application", self.port),
                env=cluster.env,
                cwd=ROOT,
                stdout=output,
                stderr=subprocess.STDOUT,
            )

    def wait(self) -> "Worker":
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            assert self.process.poll() is None, self.log.read_text()
            try:
                httpx2.post(self.url, json={}, timeout=60)
            except httpx2.TransportError:
                time.sleep(0.1)
            else:
                return self
        raise AssertionError(self.log.read_text())

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(PATIENCE)

    def stop(self) -> None:
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(PATIENCE)
            except subprocess.TimeoutExpired:
                self.kill()
        assert "Traceback" not in self.log.read_text(), self.log.read_text()


@pytest.fixture(scope="module")
def cluster(postgres: str, redis: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    import psycopg
    from psycopg import sql

    name, directory = f"mcp_django_{uuid.uuid4().hex}", tmp_path_factory.mktemp("workers")
    with psycopg.connect(postgres, autocommit=True) as connection:
        connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
        env = environment(
            "tests.e2e.workers.settings",
            EXAMPLE_DATABASE=f"{postgres.rsplit('/', 1)[0]}/{name}",
            EXAMPLE_MEDIA=str(directory / "media"),
            REDIS_URL=redis,
            WORKERS_PREFIX=f"workers-{uuid.uuid4().hex}",
            MCP_BASE_URL=f"http://{HOST}:1",
        )
        made = subprocess.run([sys.executable, "-c", PREPARE], env=env, cwd=ROOT, capture_output=True, text=True)
        assert made.returncode == 0, made.stderr
        yield Cluster(env, directory)
        connection.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name)))


@pytest.fixture(scope="module")
def workers(cluster: Cluster) -> Iterator[tuple[Worker, Worker]]:
    """Two workers that live as long as the module."""
    both = Worker(cluster, "first"), Worker(cluster, "second")
    try:
        yield both[0].wait(), both[1].wait()
    finally:
        for worker in both:
            worker.stop()


@pytest.fixture
def doomed(cluster: Cluster) -> Iterator[Worker]:
    """A worker of the test's own, to be killed."""
    worker = Worker(cluster, "doomed")
    try:
        yield worker.wait()
    finally:
        worker.kill()


@pytest.fixture(scope="module")
def token(cluster: Cluster) -> str:
    return cluster.token("admin")


@pytest.fixture
async def http() -> AsyncIterator[httpx2.AsyncClient]:
    async with httpx2.AsyncClient() as client:
        yield client


@pytest.fixture
async def client(http: httpx2.AsyncClient, token: str) -> Client:
    return Client(http, token)


@pytest.fixture
async def modern(http: httpx2.AsyncClient, token: str) -> Client:
    return Client(http, token, version=MODERN)


async def listening(stack: AsyncExitStack, client: Client, url: str, **notifications: Any) -> Stream:
    """An acknowledged stream of the modern era."""
    stream = await stack.enter_async_context(
        client.stream(url, "subscriptions/listen", {"notifications": notifications})
    )
    acknowledged = await stream.message()
    assert acknowledged["params"]["notifications"] == notifications
    return stream


async def updated(stream: Stream) -> Any:
    """The URI of the next update."""
    async with asyncio.timeout(PATIENCE):
        while (message := await stream.message())["method"] != UPDATED:
            pass
    return message["params"]["uri"]


async def test_97_a_session_that_one_worker_began_goes_on_at_the_other(client: Client, workers: Any) -> None:
    first, second = workers
    await client.initialize(first.url)
    await client.result(second.url, "logging/setLevel", {"level": "info"})
    pids = {str(await client.call(worker.url, "which_worker")) for worker in workers}
    assert len(pids) == 2
    async with client.stream(first.url, "tools/call", {"name": "talk", "arguments": {}}) as stream:
        logged, answer = await stream.rest()
    assert (logged["params"]["data"], answer["result"]["content"][0]["text"]) == ("hello", "talked")
    response = await client.http.delete(second.url, headers=client.headers())
    assert response.status_code == 204
    assert (await client.post(first.url, client.message("ping"))).status_code == 404


async def test_a_question_that_one_worker_asks_is_answered_through_the_other(
    client: Client, workers: Any, tmp_path: Path
) -> None:
    first, second = workers
    await client.initialize(first.url)
    arguments = {"place": str(tmp_path / "greeted")}
    async with client.stream(first.url, "tools/call", {"name": "greet", "arguments": arguments}) as stream:
        question = await stream.message()
        assert question["method"] == "elicitation/create"
        [name] = question["params"]["requestedSchema"]["properties"]
        await client.answer(second.url, question["id"], {"action": "accept", "content": {name: "Ann"}})
        async with asyncio.timeout(PATIENCE):
            [answer] = await stream.rest()
    assert answer["result"]["content"][0]["text"] == "Hello Ann"
    [line] = (tmp_path / "greeted").read_text().splitlines()
    assert line == f"Ann by {await client.call(second.url, 'which_worker')}"


async def test_111_changes_made_anywhere_reach_the_streams_of_a_worker(
    client: Client, modern: Client, workers: Any, cluster: Cluster
) -> None:
    first, second = workers
    await client.initialize(first.url)
    async with AsyncExitStack() as stack:
        stream = await listening(stack, modern, second.url, resourceSubscriptions=[ORDER])
        changes = await stack.enter_async_context(client.listen(second.url))
        assert await client.result(first.url, "resources/subscribe", {"uri": ORDER}) == {}

        async def both_hear() -> None:
            assert [await updated(stream), await updated(changes)] == [ORDER, ORDER]

        await cluster.shell_beside(
            "from example_project.shop.models import Order; order = Order.objects.get(pk=1); order.save()"
        )
        await both_hear()
        order = {"model": "shop.order", "pk": 1, "values": {"note": "changed by a tool"}}
        assert "note" in json.dumps(await client.call(first.url, "update_record", **order))
        await both_hear()
        await asyncio.to_thread(save_in_admin, cluster, first)
        await both_hear()


def save_in_admin(cluster: Cluster, worker: Worker) -> None:
    """Post the change form of an order in a worker's admin, as a browser does."""
    from html.parser import HTMLParser

    class Fields(HTMLParser):
        def __init__(self) -> None:
            super().__init__()
            self.found: dict[str, str] = {}
            self.select = ""

        def handle_starttag(self, tag: str, attrs: Any) -> None:
            given = dict(attrs)
            if tag == "input" and given.get("name") and given.get("type") not in ("submit", "checkbox", "file"):
                self.found[given["name"]] = given.get("value") or ""
            elif tag == "textarea":
                self.found[given["name"]] = ""
            elif tag == "select":
                self.select = given.get("name", "")
            elif tag == "option" and "selected" in given and self.select:
                self.found[self.select] = given.get("value") or ""

    def fields(response: httpx2.Response) -> dict[str, str]:
        parser = Fields()
        parser.feed(response.text)
        return parser.found

    origin = worker.url.removesuffix("/mcp")
    with httpx2.Client(base_url=origin, follow_redirects=True, timeout=30) as browser:
        login = fields(browser.get("/admin/login/"))
        account = {"username": "admin", "password": "admin", "next": "/admin/"}
        browser.post("/admin/login/", data={**login, **account}, headers={"Referer": origin})
        form = browser.get("/admin/shop/order/1/change/")
        assert form.status_code == 200
        saved = browser.post(
            "/admin/shop/order/1/change/", data=fields(form) | {"_save": "Save"}, headers={"Referer": origin}
        )
        assert "was changed successfully" in saved.text, saved.text[:5000]


async def test_203_after_a_kill_the_other_worker_has_the_stream_and_says_that_the_call_was_interrupted(
    client: Client, workers: Any, doomed: Worker, tmp_path: Path
) -> None:
    await client.initialize(doomed.url)
    params = {
        "name": "wait_for",
        "arguments": {"place": str(tmp_path / "never")},
        "_meta": {"progressToken": "p"},
    }
    async with client.stream(doomed.url, "tools/call", params) as stream:
        first = await stream.message()
        last_id = stream.last_id
        # What is written down before it is sent is there for who comes back.
        later = await stream.message()
        doomed.kill()
    async with asyncio.timeout(TOLD_WITHIN), client.listen(workers[0].url, last_id) as stream:
        replayed = await stream.rest()
    assert first["params"]["progress"] < later["params"]["progress"]
    assert replayed[0] == later
    assert "interrupted" in replayed[-1]["error"]["message"]


async def test_204_a_worker_that_stops_says_that_the_calls_it_cannot_finish_are_interrupted(
    client: Client, workers: Any, doomed: Worker, tmp_path: Path
) -> None:
    """To who is connected, and at another worker to who lost the connection before."""
    await client.initialize(doomed.url)
    params = [
        {"name": "wait_for", "arguments": {"place": str(tmp_path / name)}, "_meta": {"progressToken": name}}
        for name in ("connected", "lost")
    ]
    async with client.stream(doomed.url, "tools/call", params[0]) as connected:
        await connected.message()
        async with client.stream(doomed.url, "tools/call", params[1]) as lost:
            await lost.message()
            last_id = lost.last_id
        os.kill(doomed.process.pid, signal.SIGTERM)
        async with asyncio.timeout(STOPS_WITHIN), client.listen(workers[0].url, last_id) as resumed:
            ends = await asyncio.gather(connected.rest(), resumed.rest())
    assert ["interrupted" in end[-1]["error"]["message"] for end in ends] == [True, True]
    assert await asyncio.to_thread(doomed.process.wait, PATIENCE) is not None
    assert "Traceback" not in doomed.log.read_text()


async def test_203_a_question_outlives_the_worker_that_asked_it(
    client: Client, workers: Any, doomed: Worker, tmp_path: Path
) -> None:
    first, second = workers
    await client.initialize(doomed.url)
    arguments = {"place": str(tmp_path / "greeted")}
    async with client.stream(doomed.url, "tools/call", {"name": "greet", "arguments": arguments}) as stream:
        question = await stream.message()
        last_id = stream.last_id
        doomed.kill()
    async with client.listen(first.url, last_id) as stream:
        [name] = question["params"]["requestedSchema"]["properties"]
        await client.answer(second.url, question["id"], {"action": "accept", "content": {name: "Ann"}})
        async with asyncio.timeout(PATIENCE):
            [answer] = await stream.rest()
    assert answer["result"]["content"][0]["text"] == "Hello Ann"
    assert len((tmp_path / "greeted").read_text().splitlines()) == 1


async def test_203_after_a_kill_session_and_subscriptions_go_on_at_another_worker(
    client: Client, modern: Client, workers: Any, doomed: Worker, cluster: Cluster
) -> None:
    first, second = workers
    await client.initialize(doomed.url)
    await client.result(doomed.url, "resources/subscribe", {"uri": ORDER})
    async with AsyncExitStack() as stack:
        await listening(stack, modern, doomed.url, resourceSubscriptions=[ORDER])
        changes = await stack.enter_async_context(client.listen(doomed.url))
        last_id = await asyncio.wait_for(changes.primed(), PATIENCE)
        doomed.kill()
    save = "from example_project.shop.models import Order; order = Order.objects.get(pk=1); order.save()"
    await cluster.shell_beside(save)
    async with AsyncExitStack() as stack:
        changes = await stack.enter_async_context(client.listen(first.url, last_id))
        stream = await listening(stack, modern, second.url, resourceSubscriptions=[ORDER])
        # What changed while nobody was connected is told at once, what changes now as it does.
        assert await updated(changes) == ORDER
        await cluster.shell_beside(save)
        assert [await updated(changes), await updated(stream)] == [ORDER, ORDER]


async def test_204_sigterm_ends_two_hundred_streams_in_order(modern: Client, doomed: Worker) -> None:
    limits = httpx2.Limits(max_connections=250)
    async with httpx2.AsyncClient(limits=limits) as http, AsyncExitStack() as stack:
        client = Client(http, modern.token, version=MODERN)
        streams = [await listening(stack, client, doomed.url, toolsListChanged=True) for _ in range(200)]
        os.kill(doomed.process.pid, signal.SIGTERM)
        async with asyncio.timeout(PATIENCE):
            ends = await asyncio.gather(*(stream.rest() for stream in streams))
    assert {(len(end), end[-1]["result"]["resultType"]) for end in ends} == {(1, "complete")}
    assert await asyncio.to_thread(doomed.process.wait, PATIENCE) is not None
    assert "Traceback" not in doomed.log.read_text()


@pytest.mark.parametrize("loss", ["token", "user", "permission"])
async def test_102_a_stream_ends_when_its_authority_does(
    http: httpx2.AsyncClient, workers: Any, cluster: Cluster, loss: str
) -> None:
    name = f"loses_{loss}"
    made = (
        "from django.contrib.auth.models import Permission, User;"
        f"user = User.objects.create_user({name!r}, is_staff=True);"
        "user.user_permissions.add(Permission.objects.get(codename='view_order'))"
    )
    await cluster.shell_beside(made)
    client = Client(http, await asyncio.to_thread(cluster.token, name), version=MODERN)
    users = f"from django.contrib.auth.models import User; users = User.objects.filter(username={name!r});"
    lose = {
        "token": f"{users} users.get().oauth2_provider_accesstoken.all().delete()",
        "user": f"{users} users.update(is_active=False)",
        "permission": f"{users} users.get().user_permissions.clear()",
    }[loss]
    async with AsyncExitStack() as stack:
        stream = await listening(stack, client, workers[0].url, resourceSubscriptions=[ORDER])
        await cluster.shell_beside(lose)
        async with asyncio.timeout(PATIENCE):
            *_, end = await stream.rest()
    assert end["result"]["resultType"] == "complete"
