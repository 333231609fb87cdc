"""Several workers, one PostgreSQL, one Redis: what one of them begins another one goes on with, also after a kill."""

import asyncio
import itertools
import json
import os
import signal
import subprocess
import time
import uuid
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.e2e.commands import run_command
from tests.e2e.forks import Fork, run_code
from tests.e2e.servers import HOST, command, environment, free_port
from tests.e2e.workers.client import MODERN, Client, Stream
from tests.jwts import claims_of, key_for, signed
from tests.service_account import ASSERTION_TYPE

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
        done = run_command(self.env, "shell", "-v", "0", "-c", code)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def token(self, user: str) -> str:
        done = run_command(self.env, "mcp_token", user)
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
        program = command("uvicorn", "example_project.asgi:application", self.port)
        with self.log.open("wb") as output, open(os.devnull) as nothing:
            self.process = Fork(program, cluster.env, nothing, output, output)

    def wait(self) -> "Worker":
        deadline = time.monotonic() + 180
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
        run_code(PREPARE, env)
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
    async with httpx2.AsyncClient(timeout=PATIENCE) as client:
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


# A grant as a sign-in leaves it; its refresh token is printed.
GRANT = """
import datetime, uuid
from django.contrib.auth.models import User
from django.utils import timezone
from oauth2_provider.models import Application, RefreshToken, set_token_value
from mcp_django.oauth.stored_tokens import store_facts
from mcp_django.oauth.stored_tokens import save_token
from mcp_django.signin import credential_of
user, name = User.objects.get(username="admin"), {name!r}
client = Application.objects.create(
    name=name, client_id=name, client_type="public", authorization_grant_type="authorization-code",
    redirect_uris="http://127.0.0.1/callback",
)
access, raw = save_token(
    user, client, scopes=["mcp:read"], resources=["http://127.0.0.1:1/mcp"],
    expires=timezone.now() + datetime.timedelta(hours=1),
)
family = uuid.uuid4()
store_facts(name, user, credential_of(user), family)
refresh = RefreshToken(
    user=user, application=client, access_token=access, token_family=family, resource=access.resource
)
set_token_value(refresh, "refresh-" + raw)
refresh.save()
print(raw)
"""
REMOVED_WITHIN = 5
REFRESHES = 64


async def test_what_a_user_removes_on_the_page_ends_its_streams_at_every_worker_within_five_seconds(
    http: httpx2.AsyncClient, workers: Any, cluster: Cluster
) -> None:
    token = await cluster.shell_beside(GRANT.format(name="removed"))
    client = Client(http, token, version=MODERN)
    remove = (
        "from django.test import Client; from django.contrib.auth.models import User;"
        "from oauth2_provider.models import AccessToken;"
        "browser = Client(HTTP_HOST='127.0.0.1'); browser.force_login(User.objects.get(username='admin'));"
        "pk = AccessToken.objects.get(application__client_id='removed').pk;"
        "print(browser.post(f'/oauth/authorized_tokens/{pk}/delete/').status_code)"
    )
    async with AsyncExitStack() as stack:
        streams = [await listening(stack, client, one.url, resourceSubscriptions=[ORDER]) for one in workers]
        assert await cluster.shell_beside(remove) == "302"
        async with asyncio.timeout(REMOVED_WITHIN):
            ends = await asyncio.gather(*(stream.rest() for stream in streams))
    assert [end[-1]["result"]["resultType"] for end in ends] == ["complete", "complete"]
    assert (await client.post(workers[0].url, client.message("tools/list"))).status_code == 401
    refreshed = await refresh(http, workers[1], "removed", token)
    assert (refreshed.status_code, refreshed.json()["error"]) == (400, "invalid_grant")


async def refresh(http: httpx2.AsyncClient, worker: Worker, client_id: str, raw: str) -> httpx2.Response:
    sent = {"grant_type": "refresh_token", "client_id": client_id, "refresh_token": f"refresh-{raw}"}
    return await http.post(f"{worker.url.removesuffix('/mcp')}/oauth/token/", data=sent, timeout=60)


async def test_refreshes_of_one_token_at_both_workers_leave_one_family_or_none(workers: Any, cluster: Cluster) -> None:
    raw = await cluster.shell_beside(GRANT.format(name="hurried"))
    async with httpx2.AsyncClient(limits=httpx2.Limits(max_connections=REFRESHES)) as http:
        asked = [refresh(http, workers[number % 2], "hurried", raw) for number in range(REFRESHES)]
        answers = await asyncio.gather(*asked)
        assert {(answer.status_code, answer.json().get("error")) for answer in answers} <= {
            (200, None),
            (400, "invalid_grant"),
        }
        won = [answer.json() for answer in answers if answer.status_code == 200]
        families = (
            "from oauth2_provider.models import RefreshToken;"
            "found = RefreshToken.objects.filter(application__client_id='hurried', revoked=None);"
            "print(found.count(), len(set(found.values_list('token_family', flat=True))))"
        )
        live = await cluster.shell_beside(families)
        assert live == (f"{len(won)} 1" if won else "0 0")
        assert len({tokens["refresh_token"] for tokens in won}) == len(won)
        # Taking one of them back takes all that came of the grant.
        if won:
            revoke = {"token": won[0]["refresh_token"], "client_id": "hurried"}
            await http.post(f"{workers[0].url.removesuffix('/mcp')}/oauth/revoke_token/", data=revoke)
            assert await cluster.shell_beside(families) == "0 0"


async def connections_of(cluster: Cluster) -> int:
    """How many connections to the database there are once nobody asks for anything."""
    count = (
        "from django.db import connection; cursor = connection.cursor();"
        "cursor.execute('SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()');"
        "print(cursor.fetchone()[0])"
    )
    return int(await cluster.shell_beside(count))


async def ask_for_tokens(workers: Any, sent: dict[str, str]) -> list[httpx2.Response]:
    """The answers of both workers to one request that is sent to them many times at once."""
    async with httpx2.AsyncClient(limits=httpx2.Limits(max_connections=RACERS)) as http:
        urls = [f"{workers[number % 2].url.removesuffix('/mcp')}/oauth/token/" for number in range(RACERS)]
        return await asyncio.gather(*(http.post(url, data=sent, timeout=60) for url in urls))


# What a browser and an application leave behind who went as far as to a code.
CODE = """
import json
from django.test.utils import setup_test_environment
setup_test_environment()
from tests.oauth_flow import REDIRECT_URI, Flow
flow = Flow(username="coder")
code = flow.code(resource={resource!r})
print(json.dumps({{"grant_type": "authorization_code", "code": code, "redirect_uri": REDIRECT_URI,
    "code_verifier": flow.verifier, "resource": {resource!r}, "client_id": flow.client_id}}))
"""
RESOURCE = f"http://{HOST}:1/mcp"
RACERS = 32
# Those of the threads of two workers, and the one that counts them.
MOST_CONNECTIONS = 2 * (4 + 8 + 3) + 1


async def test_a_code_that_both_workers_are_sent_at_once_is_redeemed_once_or_never(
    workers: Any, cluster: Cluster
) -> None:
    sent = json.loads(await cluster.shell_beside(CODE.format(resource=RESOURCE)))
    answers = await ask_for_tokens(workers, sent)
    redeemed = [answer.json()["access_token"] for answer in answers if answer.status_code == 200]
    assert len(redeemed) <= 1
    assert {answer.json()["error"] for answer in answers if answer.status_code != 200} == {"invalid_grant"}
    assert await connections_of(cluster) <= MOST_CONNECTIONS
    # Who comes with it later is a thief or was robbed by one: what the code gave is taken back, at both workers.
    (late, *_) = await ask_for_tokens(workers, sent)
    assert late.status_code == 400
    async with httpx2.AsyncClient() as http:
        for token, worker in itertools.product(redeemed, workers):
            client = Client(http, token)
            assert (await client.post(worker.url, client.message("tools/list"))).status_code == 401


ACCOUNT = """
from django.contrib.auth.models import User
from mcp_django.models import ServiceAccount
user = User.objects.get(username="admin")
account = ServiceAccount.objects.create(name={name!r}, user=user, scopes=["mcp:read"], public_key={key!r})
print(account.client_id)
"""


async def assertion_of(cluster: Cluster, name: str) -> tuple[str, dict[str, str]]:
    """A new service account's id, and what its program sends for a token."""
    key = key_for("ES256")
    made = ACCOUNT.format(name=name, key=key.export_to_pem().decode())
    client_id = await cluster.shell_beside(made)
    claims = claims_of(iss=client_id, sub=client_id, aud=RESOURCE.removesuffix("/mcp"))
    return client_id, {
        "grant_type": "client_credentials",
        "client_assertion_type": ASSERTION_TYPE,
        "client_assertion": signed(claims, key),
        "resource": RESOURCE,
    }


async def test_an_assertion_that_both_workers_are_sent_at_once_is_taken_once(workers: Any, cluster: Cluster) -> None:
    _, sent = await assertion_of(cluster, "racing")
    answers = await ask_for_tokens(workers, sent)
    assert sorted(answer.status_code for answer in answers) == [200] + [401] * (RACERS - 1)


# How an administrator ends what a service account may do.
DELETE = """
from django.contrib.auth.models import User
from django.test import Client
from mcp_django.models import ServiceAccount
browser = Client(HTTP_HOST="127.0.0.1")
browser.force_login(User.objects.get(username="admin"))
pk = ServiceAccount.objects.get(client_id={client_id!r}).pk
assert browser.post(f"/admin/mcp_django/serviceaccount/{{pk}}/delete/", {{"post": "yes"}}).status_code == 302
"""
SWITCH_OFF = "from mcp_django.operating.switches import set_switch; set_switch('service', {client_id!r})"


@pytest.mark.parametrize("end", [DELETE, SWITCH_OFF], ids=["deleted", "switched-off"])
async def test_the_streams_of_a_service_account_end_with_it_at_every_worker_within_five_seconds(
    http: httpx2.AsyncClient, workers: Any, cluster: Cluster, end: str
) -> None:
    client_id, sent = await assertion_of(cluster, f"ending {uuid.uuid4().hex}")
    answer = await http.post(f"{workers[0].url.removesuffix('/mcp')}/oauth/token/", data=sent)
    client = Client(http, answer.json()["access_token"], version=MODERN)
    async with AsyncExitStack() as stack:
        streams = [await listening(stack, client, one.url, resourceSubscriptions=[ORDER]) for one in workers]
        await cluster.shell_beside(end.format(client_id=client_id))
        async with asyncio.timeout(REMOVED_WITHIN):
            ends = await asyncio.gather(*(stream.rest() for stream in streams))
    assert [found[-1]["result"]["resultType"] for found in ends] == ["complete", "complete"]


ROLL = """
from mcp_django.transports.http.stream_registry import registry
found = registry.ask_workers(patience=5)
print(found.workers, *(stream.worker.rpartition(":")[2] for stream in found.streams))
registry.disconnect(found.streams[0].id)
"""


async def test_a_third_process_knows_the_streams_of_both_workers_and_ends_one(
    modern: Client, workers: Any, cluster: Cluster
) -> None:
    async with AsyncExitStack() as stack:
        streams = [await listening(stack, modern, one.url, resourceSubscriptions=[ORDER]) for one in workers]
        told = (await cluster.shell_beside(ROLL)).split()
        assert told[0] == "2"
        assert set(told[1:]) == {str(one.process.pid) for one in workers}
        async with asyncio.timeout(PATIENCE):
            *_, end = await streams[[str(one.process.pid) for one in workers].index(told[1])].rest()
    assert end["result"]["resultType"] == "complete"
