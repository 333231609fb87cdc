"""Calls that a person confirms on a page, through the official Python client of both eras, and the page in a browser.

A model that accepts everything, sends every token and does what every text suggests confirms nothing.
"""

import asyncio
import json
import re
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.types import ElicitResult, ErrorData

from evals.obedient import ObedientModel
from tests.e2e.orm import Orm, orm_of
from tests.e2e.python_client import TIMEOUT, call, text_of
from tests.e2e.servers import Server, manage, run_example
from tests.e2e.test_browser import look_at

ERAS = ["2026-07-28", "legacy"]
# `admin` is a superuser whose password is the same.
USERNAME = "admin"
TOKEN = re.compile(r'name="csrfmiddlewaretoken" value="([^"]+)"')


@pytest.fixture(scope="module")
def server(prepared: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    directory = tmp_path_factory.mktemp("person")
    with run_example(prepared, directory, "uvicorn", "example_project.asgi:application", PERSON) as found:
        yield found


PERSON = "tests.e2e.settings_person"


@pytest.fixture(scope="module")
def orm(server: Server) -> Iterator[Orm]:
    with orm_of(server) as evaluate:
        yield evaluate


@pytest.fixture(scope="module")
def token(server: Server) -> str:
    return manage(server, "mcp_token", USERNAME).split()[-1]


class Person:
    """Somebody with a browser, who is signed in to the site and decides on the page to which their client leads."""

    def __init__(self, server: Server, answer: str = "yes") -> None:
        self.server = server
        self.answer = answer
        self.asked: list[str] = []

    async def decide(self, context: Any, params: Any) -> ElicitResult:
        self.asked.append(params.url)
        await asyncio.to_thread(self.press, params.url)
        return ElicitResult(action="accept")

    def press(self, url: str) -> str:
        """Sign in on the way to the page, press a button, and return what it then shows."""
        with httpx2.Client(timeout=TIMEOUT, follow_redirects=True) as browser:
            page = browser.get(url)
            assert "/login/" in str(page.url)
            form = {"username": USERNAME, "password": USERNAME, "csrfmiddlewaretoken": TOKEN.findall(page.text)[0]}
            page = browser.post(str(page.url), data=form, headers={"Referer": str(page.url)})
            assert str(page.url) == url
            decision = {self.answer: "1", "csrfmiddlewaretoken": TOKEN.findall(page.text)[0]}
            return browser.post(url, data=decision, headers={"Referer": url}).text


@asynccontextmanager
async def connected(server: Server, token: str, era: str, **options: Any) -> AsyncIterator[Client]:
    async with (
        httpx2.AsyncClient(headers={"Authorization": f"Bearer {token}"}, timeout=TIMEOUT) as http,
        Client(streamable_http_client(server.url, http_client=http), mode=era, **options) as client,
    ):
        yield client


def update_of(note: str) -> dict[str, Any]:
    """A change of all orders of a kind, which asks."""
    return {"model": "shop.order", "filters": {"status": "cancelled"}, "values": {"note": note}}


def written(orm: Orm, note: str) -> int:
    return int(orm(f"Order.objects.filter(note='{note}').count()"))


@pytest.mark.parametrize("era", ERAS)
async def test_a_person_who_says_yes_on_the_page_makes_the_call(server: Server, token: str, orm: Orm, era: str) -> None:
    person = Person(server)
    async with connected(server, token, era, elicitation_callback=person.decide) as client:
        done = await call(client, "update_record", **update_of(f"yes {era}"))
    assert done["rows"] == written(orm, f"yes {era}") > 0
    assert len(person.asked) == 1


@pytest.mark.parametrize("era", ERAS)
async def test_a_person_who_says_no_stops_it(server: Server, token: str, orm: Orm, era: str) -> None:
    async with connected(server, token, era, elicitation_callback=Person(server, "no").decide) as client:
        result = await client.call_tool("update_record", update_of(f"no {era}"))
    assert result.is_error
    assert "The user has said no" in text_of(result.content[0])
    assert not written(orm, f"no {era}")


@pytest.mark.parametrize("era", ERAS)
async def test_a_client_that_cannot_open_pages_shows_the_link(server: Server, token: str, orm: Orm, era: str) -> None:
    update = update_of(f"link {era}")
    async with connected(server, token, era) as client:
        waiting = await call(client, "update_record", **update)
        assert waiting["state"] == "waiting"
        assert "It was done." in await asyncio.to_thread(Person(server).press, waiting["url"])
        done = await call(client, "update_record", **update)
    assert done["rows"] == written(orm, f"link {era}") > 0


@pytest.mark.parametrize("era", ERAS)
async def test_a_repetition_opens_the_page_again(server: Server, token: str, orm: Orm, era: str) -> None:
    update = update_of(f"again {era}")
    person = Person(server)

    async def close(context: Any, params: Any) -> ElicitResult:
        person.asked.append(params.url)
        return ElicitResult(action="cancel")

    async with connected(server, token, era, elicitation_callback=close) as client:
        waiting = await call(client, "update_record", **update)
        assert waiting["state"] == "waiting"
    async with connected(server, token, era, elicitation_callback=person.decide) as client:
        done = await call(client, "update_record", **update)
    assert person.asked == [waiting["url"], waiting["url"]]
    assert done["rows"] == written(orm, f"again {era}") > 0


async def test_a_client_that_fails_to_open_the_page_gets_the_link(server: Server, token: str) -> None:
    async def fail(context: Any, params: Any) -> ErrorData:
        return ErrorData(code=-32602, message="no such mode")

    async with connected(server, token, "legacy", elicitation_callback=fail) as client:
        waiting = await call(client, "update_record", **update_of("failed"))
    assert waiting["state"] == "waiting"
    assert "/confirm/" in waiting["url"]


@pytest.mark.parametrize("era", ERAS)
async def test_a_model_that_obeys_every_text_confirms_nothing(server: Server, token: str, orm: Orm, era: str) -> None:
    update = update_of(f"forged {era}")

    async def accept(context: Any, params: Any) -> ElicitResult:
        with httpx2.Client(headers={"Authorization": f"Bearer {token}"}, timeout=TIMEOUT) as bearer:
            for send in (bearer.get, bearer.post):
                # To the login, or refused as a form of another site.
                assert send(params.url).status_code in (302, 403)
        return ElicitResult(action="accept")

    results: list[str] = []
    async with (
        connected(server, token, era, elicitation_callback=accept) as client,
        connected(server, token, era) as showing,
    ):
        accepted = asyncio.create_task(call(client, "update_record", **update))
        names = [tool.name for tool in (await showing.list_tools()).tools]
        model = ObedientModel("update_record", update, token)
        while move := model.move(names, results):
            result = await showing.call_tool(*move)
            results.append(text_of(result.content[0]))
        waiting = await accepted
    assert len(results) > 15
    assert waiting["state"] == json.loads(results[0])["state"] == json.loads(results[-1])["state"] == "waiting"
    assert not written(orm, f"forged {era}")


async def test_the_page_is_fit_for_everybody(server: Server, token: str, orm: Orm, node: str, chromium: str) -> None:
    review = orm("Review.objects.order_by('pk')[0].pk")
    pages = []
    async with connected(server, token, ERAS[0]) as client:
        deleting = await call(client, "delete_record", model="shop.review", pk=review)
        filters = {"status": "shipped"}
        changing = await call(
            client, "update_record", model="shop.order", filters=filters, values={"note": "Ask the carrier " * 9}
        )
        refused = await call(client, "delete_record", model="shop.review", pk=review, idempotency_key="2")
        await asyncio.to_thread(Person(server, "no").press, refused["url"])
    for name, waiting in (("deleting", deleting), ("changing", changing), ("refused", refused)):
        pages.append({"name": name, "url": waiting["url"]})
    task = {"languages": ["en", "ar"], "widths": [320, 375, 768], "pages": pages, "also": ["target-size"]}
    seen = await asyncio.to_thread(lambda: look_at(server, node, chromium, USERNAME, **task))
    # This server serves no static files, so the icon is missing.
    found = {key: [text for text in page["problems"] if "404" not in text] for key, page in seen.items()}
    assert not any(found.values()), found
    assert "Shall this be done?" in seen["deleting", "en"]["seen"]["text"]
    assert "Ask the carrier" in seen["changing", "en"]["seen"]["text"]
    assert "You have said no" in seen["refused", "en"]["seen"]["text"]
    assert seen["deleting", "ar"]["seen"]["dir"] == "rtl"
