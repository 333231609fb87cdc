"""The card at the endpoint's URL: for anyone, and only where a setting says so."""

import pytest
from django.test import AsyncClient, Client

CARD = "/mcp/server-card"


@pytest.fixture
def shown(settings):
    settings.MCP_DJANGO = {**settings.MCP_DJANGO, "SERVER": {"card": True}}


@pytest.mark.parametrize("path", [CARD, "/.well-known/mcp/catalog.json", "/.well-known/ai-catalog.json"])
def test_nothing_is_shown_unless_a_setting_says_so(path: str) -> None:
    response = Client().get(path)
    assert response.status_code == 404
    assert response.json() == {"error": "not_found"}


@pytest.mark.usefixtures("shown")
def test_the_catalog_leads_to_the_card_and_the_card_to_the_endpoint() -> None:
    for path, kind in [
        ("/.well-known/mcp/catalog.json", "application/json"),
        ("/.well-known/ai-catalog.json", "application/ai-catalog+json"),
    ]:
        response = Client().get(path)
        assert response["Content-Type"] == kind
        assert response["Access-Control-Allow-Origin"] == "*"
        entry = next(entry for entry in response.json()["entries"] if entry["url"].endswith(CARD))
        assert entry["type"] == "application/mcp-server-card+json"
        assert entry["identifier"] == "urn:air:testserver:mcp:mcp"
    card = Client().get(entry["url"].removeprefix("http://testserver"))
    assert card["Content-Type"] == entry["type"]
    assert [remote["url"] for remote in card.json()["remotes"]] == ["http://testserver/mcp"]


@pytest.mark.usefixtures("shown")
async def test_the_card_is_there_on_the_asynchronous_road_and_with_a_slash() -> None:
    for path in (CARD, f"{CARD}/"):
        response = await AsyncClient().get(path)
        assert response.json()["remotes"][0]["url"] == "http://testserver/mcp"


@pytest.mark.usefixtures("shown")
def test_who_has_the_card_is_told_that_it_is_the_same() -> None:
    first = Client().get(CARD)
    again = Client().get(CARD, headers={"if-none-match": first["ETag"]})
    assert (again.status_code, again.content, again["ETag"]) == (304, b"", first["ETag"])
    assert again["Access-Control-Allow-Origin"] == "*"
    assert Client().get(CARD, headers={"if-none-match": '"another"'}).content == first.content


@pytest.mark.usefixtures("shown")
def test_a_card_is_read_and_nothing_else() -> None:
    for path in (CARD, "/.well-known/mcp/catalog.json"):
        assert Client().post(path).status_code == 405
        preflight = Client().options(path)
        assert (preflight.status_code, preflight["Access-Control-Allow-Origin"]) == (204, "*")


@pytest.mark.usefixtures("shown")
def test_a_card_names_no_model_and_no_tool() -> None:
    text = Client().get(CARD).content.decode()
    assert "book" not in text.lower()
    assert "query_records" not in text
