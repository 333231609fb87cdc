"""A whole project below a path, behind a proxy, with middleware that chooses time zone and language."""

import asyncio
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path

import httpx2
import pytest

from tests.cases import whole
from tests.e2e.browser import FormReader
from tests.e2e.downloads import Downloader
from tests.e2e.proxy import run_proxy
from tests.e2e.python_client import Person, call
from tests.e2e.servers import Server, command, environment, free_port, manage, run

PREFIX = "/sub"
ROADS = {
    "fast": "tests.e2e.roads.fast:application",
    "plain": "tests.e2e.roads.plain:application",
    "wsgi": "tests.e2e.roads.wsgi:application",
}
# Road, server, what tells the project its prefix, whether the proxy takes it off, whether it passes on the documents.
SETUPS = [
    ("plain", "uvicorn", "--root-path", True, True),
    ("fast", "daphne", "setting", False, False),
    ("wsgi", "gunicorn", "setting", True, True),
    *whole([("fast", "uvicorn", "--root-path", True, True)]),
]


@dataclass(frozen=True)
class Below(Server):
    """The project as clients see it, below the proxy."""

    road: str = ""
    well_known: bool = True
    elsewhere: tuple[list[str], ...] = ()

    @property
    def url(self) -> str:
        return f"{self.origin}{PREFIX}/mcp"


@pytest.fixture(scope="module", params=SETUPS, ids=lambda setup: "-".join(map(str, setup[:3])))
def below(request: pytest.FixtureRequest, prepared: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Below]:
    road, program, told, strips, well_known = request.param
    directory = tmp_path_factory.mktemp("below")
    shutil.copytree(prepared, directory, dirs_exist_ok=True)
    database, port = directory / "example.sqlite3", free_port()
    # In Tokyo it is another month already.
    with closing(sqlite3.connect(database)) as connection, connection:
        connection.execute("UPDATE shop_order SET created = '2001-01-31 20:00:00' WHERE id IN (1, 2, 3)")
    with ExitStack() as stack:
        origin, elsewhere = stack.enter_context(run_proxy(port, PREFIX, strips=strips, well_known=well_known))
        env = environment(
            "tests.e2e.below.settings",
            EXAMPLE_DATABASE=str(database),
            EXAMPLE_MEDIA=str(directory / "media"),
            MCP_BASE_URL=origin,
            BELOW_FORCED=PREFIX if told == "setting" else "",
        )
        started = command(program, ROADS[road], port)
        started[3:3] = [told, PREFIX] if told != "setting" else []
        stack.enter_context(run(started, port, env, directory / "server.log"))
        yield Below(origin, database, env, road, well_known, (elsewhere,))


@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_the_official_client_signs_in_and_works(below: Below, mode: str) -> None:
    person = Person(below, "admin")
    async with person.connect(mode) as client:
        assert (await call(client, "query_records", model="shop.order", count=True))["count"] == 200
    assert person.sign_ins == 1
    # The root of the host is another site's. Clients look there, and find nothing that would mislead them.
    assert below.elsewhere[0] == [] or not below.well_known


async def test_an_export_is_downloaded_where_its_address_says(below: Below) -> None:
    person = Person(below, "admin")
    async with person.connect("auto") as client:
        told = await call(client, "export_records", model="shop.order", fields=["number"])
    assert told["url"].startswith(f"{below.url}/exports/")
    response = await asyncio.to_thread(Downloader("admin").open, told["url"])
    assert response.content.count(b"\r\n") == 201
    assert response.headers["content-length"] == str(told["bytes"])


async def test_the_documents_name_the_project_and_not_the_host(below: Below) -> None:
    async with httpx2.AsyncClient(timeout=30) as http:
        refused = await http.post(below.url, json={"jsonrpc": "2.0", "id": 1, "method": "ping"})
        where = refused.headers["www-authenticate"].split('resource_metadata="')[1].split('"')[0]
        resource = (await http.get(where)).raise_for_status().json()
        assert resource["resource"] == below.url
        issuer = f"{below.origin}{PREFIX}"
        assert resource["authorization_servers"] == [issuer]
        appended = (await http.get(f"{issuer}/.well-known/openid-configuration")).raise_for_status().json()
        assert appended["issuer"] == issuer
        assert all(value.startswith(f"{issuer}/oauth/") for key, value in appended.items() if key.endswith("_endpoint"))
        if below.well_known:
            for path, expected in (
                (f"oauth-protected-resource{PREFIX}/mcp", resource),
                (f"oauth-authorization-server{PREFIX}", appended),
            ):
                found = await http.get(f"{below.origin}/.well-known/{path}")
                assert found.raise_for_status().json() == expected


async def test_a_token_of_the_command_is_good_where_the_settings_know_the_prefix(below: Below) -> None:
    if not below.environment["BELOW_FORCED"]:
        return
    token = manage(below, "mcp_token", "admin", "--resource", "/mcp").strip()
    headers = {"Authorization": f"Bearer {token}", "Accept": "application/json, text/event-stream"}
    message = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
    async with httpx2.AsyncClient(timeout=30, headers=headers) as http:
        assert (await http.post(below.url, json=message)).json()["result"] == {}


async def test_threads_have_what_middleware_and_server_activated(below: Below) -> None:
    person = Person(below, "admin")
    async with person.connect("auto") as client:
        for _ in range(3):
            in_thread = (await call(client, "surroundings_sync"))["result"]
            on_loop = (await call(client, "surroundings_async"))["result"]
            assert in_thread == on_loop
            zone, language, urlconf, *places = in_thread
            admin, here = f"{PREFIX}/admin/", f"{PREFIX}/mcp"
            assert places == [f"{PREFIX}/", admin, f"{below.origin}{PREFIX}/x", here, "/mcp"]
            if below.road == "fast":
                # Middleware does not see these requests; nothing that another call activated is left either.
                assert (zone, language) == ("America/New_York", "en-us")
            else:
                assert (zone, language, urlconf) == ("Asia/Tokyo", "de", "example_project.urls")


async def test_months_are_those_of_the_admin(below: Below) -> None:
    if below.road == "fast":
        return
    person = Person(below, "admin")
    async with person.connect("auto") as client:
        found = await call(
            client,
            "aggregate_records",
            model="shop.order",
            group_by=["created:month"],
            filters={"created__lt": "2002-01-01"},
        )
    assert [(month[:7], count) for month, count in found["rows"]] == [("2001-02", 3)], found
    with httpx2.Client(base_url=f"{below.origin}{PREFIX}", timeout=30) as browser:
        form = FormReader(browser.get("/admin/login/").text).forms[0]
        sent = dict(form.fields) | {"username": "admin", "password": "admin"}
        browser.post("/admin/login/", data=sent)
        for month, rows in ((1, 0), (2, 3)):
            page = browser.get(f"/admin/shop/order/?created__year=2001&created__month={month}").raise_for_status()
            assert page.text.count('name="_selected_action"') == rows


def test_the_settings_pass_their_checks(below: Below) -> None:
    manage(below, "check", "--fail-level", "WARNING")
