"""What is known of client programs."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from asgiref.sync import sync_to_async

from mcp_django.protocol.client_requests import KNOWN, Limits
from mcp_django.testing import MCPClient, ToolCall
from tests.factories import make_author, make_book, make_superuser
from tests.session_client import SessionClient
from tests.testapp.models import Profile


def test_a_client_that_is_not_known_loses_nothing() -> None:
    assert Limits.of("") == Limits.of("Codex-mcp-client") == Limits(None, True)


def test_what_a_known_client_loses_is_in_the_table() -> None:
    for name, limits in KNOWN.items():
        assert Limits.of(name) is limits
        assert limits.result_chars is None or limits.result_chars >= 2_000


# Characters beyond which each client cuts, or hands its model a file.
CUT_BEYOND = {"codex-mcp-client": 11_000, "cline-cli": 8_000, "Cline": 8_000, "github-copilot-developer": 20_480}
LIMIT = CUT_BEYOND["codex-mcp-client"]


def codex() -> MCPClient:
    return MCPClient(make_superuser("codex"), name="codex-mcp-client")


def size(call: ToolCall) -> int:
    return len(json.dumps(call.structured, ensure_ascii=False, separators=(",", ":")))


def shelve(count: int = 100) -> None:
    author = make_author("Ada")
    for number in range(count):
        make_book(title=f"Book {number} {'x' * 200}", author=author, isbn=str(number))


@pytest.mark.django_db
@pytest.mark.parametrize("name", CUT_BEYOND)
def test_no_page_is_longer_than_a_client_can_take_and_no_row_is_lost(name: str) -> None:
    shelve()
    client, titles = MCPClient(make_superuser("codex"), name=name), []
    arguments: dict[str, Any] = {"model": "testapp.book", "limit": 100, "ordering": ["id"]}
    while True:
        found = client.call("query_records", **arguments)
        assert size(found) <= CUT_BEYOND[name]
        titles += [row[1].split()[1] for row in found.structured["rows"]]
        if "next_cursor" not in found.structured:
            break
        arguments["cursor"] = found.structured["next_cursor"]
    assert titles == [str(number) for number in range(100)]
    whole = MCPClient(make_superuser("other")).call("query_records", **{**arguments, "cursor": ""})
    assert whole.structured["returned"] == 100
    assert size(whole) > CUT_BEYOND[name]


async def test_a_session_knows_its_client_by_name(token: str) -> None:
    await sync_to_async(shelve)()
    arguments = {"name": "query_records", "arguments": {"model": "testapp.book", "limit": 100}}
    lengths = []
    for name in ("codex-mcp-client", "another"):
        client = SessionClient(token, version="2025-06-18", name=name)
        await client.initialize()
        lengths.append(len((await client.result("tools/call", arguments))["content"][0]["text"]))
    assert lengths[0] <= LIMIT < lengths[1]


@pytest.mark.django_db
def test_long_texts_and_files_are_cut_for_a_client_that_would_lose_their_middle() -> None:
    author = make_author("Ada")
    profile = Profile.objects.create(author=author, biography="é" * 30_000)
    book = make_book(title="Dune", author=author, data={"text": "x" * 30_000})
    client = codex()
    found = client.call("get_record", model="testapp.book", pk=book.pk)
    assert size(found) <= LIMIT
    assert "cut for length" in found.structured["hint"]
    assert size(client.call("get_record", model="testapp.author", pk=profile.author_id)) <= LIMIT
    shelve()
    export = client.call("export_testapp_book", all=True)
    assert "text" not in export.structured["file"]
    assert size(export) <= LIMIT
    labels = ",".join(row[0] for row in client.call("list_models").structured["rows"])
    assert size(client.call("describe_model", model=labels, detail=True)) <= 20_000


def test_the_table_of_clients_is_that_of_the_docs() -> None:
    text = (Path(__file__).parents[3] / "docs" / "querying.md").read_text()
    rows = re.findall(r"^\| .+ \| `(.+)` \| ([0-9,]+): ", text, re.MULTILINE)
    assert {name: int(chars.replace(",", "")) for name, chars in rows} == {
        name: limits.result_chars for name, limits in KNOWN.items()
    }
