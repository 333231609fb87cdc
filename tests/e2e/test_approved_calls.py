"""Calls that wait for another person, through the official Python client of both eras, on two workers."""

import asyncio
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.e2e.orm import Orm, orm_of
from tests.e2e.python_client import TIMEOUT, call, text_of
from tests.e2e.servers import Server, manage, run_example
from tests.e2e.test_confirmed_by_a_person import ERAS, TOKEN, connected

# That these calls wait, and are made once, is seen by test_approved_by_another.py with more clients.
pytestmark = pytest.mark.whole
RULE = """
from django.contrib.auth import get_user_model
from mcp_django.models import ApprovalRule

get_user_model().objects.create_superuser("boss", "", "boss")
ApprovalRule.objects.create(name="Reviews", labels=["shop.review"], permission="shop.delete_review")
"""


@pytest.fixture(scope="module")
def server(prepared: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    directory = tmp_path_factory.mktemp("approved")
    with run_example(prepared, directory, "uvicorn-workers", "example_project.asgi:application") as found:
        manage(found, "shell", "-c", RULE)
        yield found


@pytest.fixture(scope="module")
def orm(server: Server) -> Iterator[Orm]:
    with orm_of(server) as evaluate:
        yield evaluate


@pytest.fixture(scope="module")
def token(server: Server) -> str:
    return manage(server, "mcp_token", "admin").split()[-1]


def press(username: str, url: str, **answer: str) -> httpx2.Response:
    """Sign in to the admin on the way to the page of a request, press a button if one is named, and return what the
    page shows."""
    with httpx2.Client(timeout=TIMEOUT, follow_redirects=True) as browser:
        page = browser.get(url)
        assert "/login/" in str(page.url)
        form = {"username": username, "password": username, "csrfmiddlewaretoken": TOKEN.findall(page.text)[0]}
        page = browser.post(str(page.url), data=form, headers={"Referer": str(page.url)})
        assert str(page.url) == url
        if not answer:
            return page
        sent = {"request": url.rpartition("=")[2], "csrfmiddlewaretoken": TOKEN.findall(page.text)[0], **answer}
        return browser.post(url, data=sent, headers={"Referer": url})


def heading(page: httpx2.Response) -> str:
    return re.findall(r"<h1>(Request [^<]*)</h1>", page.text)[0]


@pytest.mark.parametrize("era", ERAS)
async def test_a_call_waits_for_another_person_and_is_made_once(server: Server, token: str, orm: Orm, era: str) -> None:
    review = orm("Review.objects.order_by('pk')[0].pk")
    deletion = {"model": "shop.review", "pk": review}
    async with connected(server, token, era) as client:
        waiting = await call(client, "delete_record", **deletion)
        assert waiting["state"] == "waiting"
        joined = await call(client, "delete_record", **deletion)
        assert joined["change"] == waiting["change"]
        # The one who asks, with their password or their token, decides nothing.
        own = await asyncio.to_thread(press, "admin", waiting["url"])
        assert "somebody else decides" in own.text
        assert 'name="yes"' not in own.text
        with httpx2.Client(headers={"Authorization": f"Bearer {token}"}, timeout=TIMEOUT) as bearer:
            for send in (bearer.get, bearer.post):
                assert send(waiting["url"]).status_code in (302, 403)
        assert orm(f"Review.objects.filter(pk={review}).count()") == 1
        pages = await asyncio.gather(
            *(asyncio.to_thread(press, "boss", waiting["url"], yes="1") for _ in range(4)),
        )
        assert {page.status_code for page in pages} == {200}
        assert f"Request {waiting['change']}: approved and done" in map(heading, pages)
        assert orm(f"Review.objects.filter(pk={review}).count()") == 0
        done = await client.call_tool("delete_record", deletion)
        assert not done.is_error, text_of(done.content[0])


@pytest.mark.parametrize("era", ERAS)
async def test_the_client_is_told_why_not(server: Server, token: str, orm: Orm, era: str) -> None:
    review = orm(f"Review.objects.order_by('-pk')[{ERAS.index(era)}].pk")
    deletion: dict[str, Any] = {"model": "shop.review", "pk": review}
    async with connected(server, token, era) as client:
        waiting = await call(client, "delete_record", **deletion)
        page = await asyncio.to_thread(press, "boss", waiting["url"], no="1", word="Reviews stay.")
        assert heading(page).endswith("declined")
        refused = await client.call_tool("delete_record", deletion)
    assert refused.is_error
    assert "Reviews stay." in text_of(refused.content[0])
    assert orm(f"Review.objects.filter(pk={review}).count()") == 1
