"""Files that leave the chat, through the official clients, and what the browser of a person then gets."""

import asyncio
import csv
import io
import json
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import pytest
from mcp import Client, MCPError
from mcp.client.streamable_http import streamable_http_client

from tests.e2e.database import Database
from tests.e2e.downloads import Downloader
from tests.e2e.python_client import TIMEOUT, call
from tests.e2e.servers import ROOT, Server, manage
from tests.e2e.test_browser import look_at
from tests.e2e.test_console import screenshots

ASKED = {"model": "shop.order", "fields": ["number", "customer", "total"], "ordering": ["created"]}


@pytest.fixture(scope="module")
def tokens(example: Server) -> dict[str, str]:
    return {name: manage(example, "mcp_token", name).split()[-1] for name in ("admin", "auditor")}


@asynccontextmanager
async def connected(server: Server, token: str, era: str) -> AsyncIterator[Client]:
    async with (
        httpx2.AsyncClient(headers={"Authorization": f"Bearer {token}"}, timeout=TIMEOUT) as http,
        Client(streamable_http_client(server.url, http_client=http), mode=era) as client,
    ):
        yield client


def rows_of(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


@pytest.mark.parametrize("era", ["2026-07-28", "legacy"])
async def test_the_python_client_exports_and_reads_and_its_user_downloads(
    example: Server, tokens: dict[str, str], database: Database, era: str
) -> None:
    async with connected(example, tokens["admin"], era) as client:
        told = await call(client, "export_records", **ASKED)
        (contents,) = (await client.read_resource(told["uri"])).contents
    numbers = [number for (number,) in database.rows("SELECT number FROM shop_order ORDER BY created, id")]
    found = await asyncio.to_thread(Downloader("admin").open, told["url"])
    assert [row["number"] for row in rows_of(contents.text)] == numbers
    assert found.content.decode("utf-8-sig") == contents.text
    assert found.headers["content-disposition"] == f'attachment; filename="{told["file"]}"'
    assert int(found.headers["content-length"]) == len(found.content) == told["bytes"]
    assert told["rows"] == len(numbers)


@pytest.mark.parametrize(("program", "mode"), [("client2", "auto"), ("sdk1", "")])
def test_the_typescript_client_exports_and_follows_the_link_of_the_result(
    example: Server, tokens: dict[str, str], node: str, program: str, mode: str
) -> None:
    calls = [{"name": "export_records", "arguments": {**ASKED, "format": format}} for format in ("csv", "xlsx")]
    task = {
        "client": program,
        "mode": mode,
        "url": example.url,
        "token": tokens["admin"],
        "calls": calls,
        "reads": True,
    }
    command = [node, str(ROOT / "tests" / "e2e" / "node" / "calls.mjs"), json.dumps(task)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT, cwd=ROOT / "tests")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    (table,), (book,) = told["contents"]
    assert len(rows_of(table["text"])) == told["results"][0]["structuredContent"]["rows"] > 0
    assert book["blob"].startswith("UEs")


async def test_the_link_of_another_user_opens_nothing_and_neither_does_the_resource(
    example: Server, tokens: dict[str, str]
) -> None:
    async with connected(example, tokens["admin"], "2026-07-28") as client:
        told = await call(client, "export_records", **ASKED)
    found = await asyncio.to_thread(Downloader("auditor").open, told["url"])
    assert found.status_code == 404
    async with connected(example, tokens["auditor"], "2026-07-28") as client:
        with pytest.raises(MCPError):
            await client.read_resource(told["uri"])
    # The admin may do everything, but only by a session.
    bearer = {"Authorization": f"Bearer {tokens['admin']}"}
    refused = await asyncio.to_thread(httpx2.get, told["url"], headers=bearer)
    assert refused.status_code == 302


async def test_what_a_person_sees_is_fit_for_everybody(
    example: Server, tokens: dict[str, str], node: str, chromium: str
) -> None:
    async with connected(example, tokens["admin"], "2026-07-28") as client:
        told = await call(client, "export_records", **ASKED)
    pages: list[dict[str, Any]] = [
        {"name": "sign in", "url": told["url"], "anonymous": True},
        {"name": "gone", "url": told["url"]},
    ]
    task = {"languages": ["en", "ar"], "widths": [375, 1280], "pages": pages, "also": ["target-size"], **screenshots()}
    seen = await asyncio.to_thread(lambda: look_at(example, node, chromium, "auditor", **task))
    # This server serves no static files, so the icon is missing; and the page is that of a missing file.
    found = {key: [text for text in page["problems"] if "404" not in text] for key, page in seen.items()}
    assert not any(found.values()), found
    assert "Log in" in seen["sign in", "en"]["seen"]["text"]
    assert "The file is not here" in seen["gone", "en"]["seen"]["text"]
    assert "You are signed in as auditor" in seen["gone", "en"]["seen"]["text"]
    assert seen["gone", "ar"]["seen"]["dir"] == "rtl"
