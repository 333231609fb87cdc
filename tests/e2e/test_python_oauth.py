"""OAuth as the official Python client does it, against the example project."""

import json
from dataclasses import replace

import httpx2
import pytest
from mcp import Client, MCPError
from mcp.client.streamable_http import streamable_http_client

from tests.e2e.database import Database
from tests.e2e.python_client import Person, call, expire
from tests.e2e.servers import Server, manage

MODES = {"auto": "2026-07-28", "legacy": "2025-11-25", "2026-07-28": "2026-07-28"}


@pytest.mark.parametrize("mode", MODES)
async def test_from_nothing_to_a_token(example: Server, database: Database, mode: str) -> None:
    person = Person(example, "admin")
    async with person.connect(mode) as client:
        assert client.protocol_version == MODES[mode]
        assert (await client.list_tools()).tools
    assert person.sign_ins == 1
    assert person.wallet.scopes == {"mcp:read", "mcp:write"}
    assert person.wallet.client is not None
    registered = "SELECT name FROM oauth2_provider_application WHERE client_id = ?"
    assert database.value(registered, person.wallet.client.client_id) == "Python client"


async def test_the_consent_page_names_user_client_resource_and_scopes(example: Server) -> None:
    person = Person(example, "auditor")
    async with person.connect("auto") as client:
        await client.list_tools()
    page = person.browser.pages[-1]
    for shown in ("auditor", "Python client", "127.0.0.1", example.url, "mcp:read", "mcp:write"):
        assert shown in page


async def test_a_client_started_again_signs_in_with_what_it_kept(example: Server) -> None:
    person = Person(example, "admin")
    for _ in range(2):
        async with person.connect("auto") as client:
            assert (await client.list_tools()).tools
    assert person.sign_ins == 1


@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_an_expired_token_is_refreshed_without_the_person(example: Server, mode: str) -> None:
    person = Person(example, "admin")
    provider = person.provider()
    async with person.connect(mode, provider) as client:
        await client.list_tools()
        first = person.wallet.access_token
        expire(provider)
        assert (await client.list_resources()).resources
    assert person.wallet.access_token != first
    assert person.sign_ins == 1


@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_a_missing_scope_is_asked_for_when_it_is_needed(example: Server, database: Database, mode: str) -> None:
    person = Person(example, "admin", scopes={"mcp:read"})
    async with person.connect(mode) as client:
        assert "create_record" not in {tool.name for tool in (await client.list_tools()).tools}
        assert person.wallet.scopes == {"mcp:read"}
        person.browser.scopes = None
        values = {"name": f"Stepped up {mode}", "slug": f"stepped-up-{mode}"}
        await call(client, "create_record", model="shop.category", values=values)
    assert person.wallet.scopes == {"mcp:read", "mcp:write"}
    assert person.sign_ins == 2
    assert database.value("SELECT count(*) FROM shop_category WHERE slug = ?", values["slug"]) == 1


async def test_a_scope_that_is_withheld_stays_missing(example: Server, database: Database) -> None:
    person = Person(example, "admin", scopes={"mcp:read"})
    async with person.connect("auto") as client:
        values = {"name": "Withheld", "slug": "withheld"}
        with pytest.raises(MCPError):
            await client.call_tool("create_record", {"model": "shop.category", "values": values})
    assert database.value("SELECT count(*) FROM shop_category WHERE slug = 'withheld'") == 0


@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_a_client_that_goes_on_by_another_name_of_this_machine_stays_signed_in(
    example: Server, mode: str
) -> None:
    person = Person(replace(example, origin=example.origin.replace("127.0.0.1", "localhost")), "admin")
    async with person.connect(mode) as client:
        assert (await client.list_tools()).tools
    person.server = example
    async with person.connect(mode) as client:
        assert (await client.list_tools()).tools
    assert person.sign_ins == 1


async def test_a_client_with_a_token_of_another_endpoint_is_told_which(example: Server) -> None:
    other = replace(example, environment={**example.environment, "MCP_BASE_URL": "http://127.0.0.1:1"})
    token = manage(other, "mcp_token", "admin").split()[0]
    async with httpx2.AsyncClient(headers={"Authorization": f"Bearer {token}"}) as http:
        with pytest.RaisesGroup(pytest.RaisesExc(MCPError), flatten_subgroups=True) as refused:
            async with Client(streamable_http_client(example.url, http_client=http), mode="auto") as client:
                await client.list_tools()
    told = str(refused.value.exceptions[0].exceptions[0])
    assert told.startswith(f"The token is for http://127.0.0.1:1/mcp; this endpoint is {example.url}.")


async def test_a_token_of_another_server_is_worth_nothing(example: Server) -> None:
    person = Person(example, "admin")
    async with person.connect("auto") as client:
        await client.list_tools()
    assert person.wallet.tokens is not None
    person.wallet.tokens = person.wallet.tokens.model_copy(update={"access_token": "of-another-server"})
    async with person.connect("auto") as client:
        assert (await client.list_tools()).tools
    assert person.sign_ins == 2


@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_a_client_reaches_the_models_that_its_user_chose_after_a_refresh_too(example: Server, mode: str) -> None:
    person = Person(example, "admin")
    person.browser.models = ["shop.category"]
    provider = person.provider()
    async with person.connect(mode, provider) as client:
        await only_categories(client)
        expire(provider)
        await only_categories(client)
    assert person.sign_ins == 1


@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_an_address_narrows_what_a_client_reaches_with_the_same_token(example: Server, mode: str) -> None:
    person = Person(example, "admin")
    async with person.connect(mode) as client:
        assert "shop.order" in json.dumps(await call(client, "list_models"))
    for query in ("?models=shop.category", "?models=shop.category&read_only=1"):
        person.query = query
        async with person.connect(mode) as client:
            await only_categories(client)
            tools = {tool.name for tool in (await client.list_tools()).tools}
            assert ("create_record" in tools) is ("read_only" not in query)
    assert person.sign_ins == 1


async def test_a_client_signs_in_at_an_address_that_narrows(example: Server) -> None:
    person = Person(example, "admin")
    person.query = "?models=shop.category"
    async with person.connect("auto") as client:
        await only_categories(client)
    assert person.sign_ins == 1
    assert "?models" not in person.browser.pages[-1]


async def only_categories(client: Client) -> None:
    assert (await call(client, "query_records", model="shop.category"))["returned"]
    assert "shop.order" not in json.dumps(await call(client, "list_models"))
    for model in ("shop.order", "shop.customer"):
        refused = await client.call_tool("query_records", {"model": model})
        assert refused.is_error
    uris = [str(found.uri) for found in (await client.list_resources()).resources]
    assert not any("shop/order" in uri for uri in uris)
