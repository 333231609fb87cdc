"""The main job through the official Python client, in each of its modes: list, page, query, write, act, fail."""

import json
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Any

import httpx2
import pytest
from mcp import Client, MCPError
from mcp.client.streamable_http import streamable_http_client

from tests.cases import whole
from tests.e2e.database import Database
from tests.e2e.python_client import Person, call, every, text_of
from tests.e2e.servers import Server, manage

# The newest revision is what the first of them comes to as well.
MODES = ["auto", "legacy", *whole(["2026-07-28"])]
Connect = Callable[..., AbstractAsyncContextManager[Client]]


@pytest.fixture(params=MODES)
def mode(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(scope="module")
def people(example: Server) -> dict[str, Person]:
    """Those who sign in: each does so when first needed, and keeps the token."""
    return {name: Person(example, name) for name in ("admin", "warehouse", "auditor")}


@pytest.fixture
def connect(people: dict[str, Person], mode: str) -> Connect:
    """Connect as a user, the admin by default."""
    return lambda username="admin": people[username].connect(mode)


# Lists


async def test_tools_are_listed(connect: Connect) -> None:
    async with connect() as client:
        tools = {tool.name: tool for tool in await every(client.list_tools, "tools")}
    generic = {"list_models", "describe_model", "query_records", "get_record", "aggregate_records"}
    writing = {"create_record", "update_record", "delete_record", "run_action"}
    own = {"mark_shipped_shop_order", "refund_shop_order", "adjust_price_shop_product", "revenue_by_month"}
    assert tools.keys() >= generic | writing | own
    assert len(tools) <= 40
    for name, tool in tools.items():
        assert tool.description
        assert tool.annotations is not None
        hints = (tool.annotations.read_only_hint, tool.annotations.destructive_hint, tool.annotations.open_world_hint)
        assert None not in hints, name


async def test_resources_templates_and_prompts_are_listed(connect: Connect) -> None:
    async with connect() as client:
        uris = {str(resource.uri) for resource in await every(client.list_resources, "resources")}
        templates = await every(client.list_resource_templates, "resource_templates")
        prompts = await every(client.list_prompts, "prompts")
    assert {"django://shop/order", "django://places/city", "shop://policy/returns"} <= uris
    assert "django://{app_label}/{model_name}/{pk}" in {template.uri_template for template in templates}
    assert [prompt.name for prompt in prompts] == ["triage_order"]


async def test_models_are_listed_and_described(connect: Connect) -> None:
    async with connect() as client:
        models = await call(client, "list_models")
        described = await call(client, "describe_model", model="shop.order")
    labels = {row[0] for row in models["rows"]}
    assert {"shop.order", "shop.product", "places.city"} <= labels
    assert not any(label.startswith(("auth.", "oauth2_provider.", "sessions.")) for label in labels)
    assert "status" in json.dumps(described)


# Pages


async def test_a_query_leads_to_the_last_row(connect: Connect, database: Database) -> None:
    keys: list[Any] = []
    async with connect() as client:
        arguments = {"model": "places.city", "fields": ["name"], "limit": 200}
        page = await call(client, "query_records", **arguments)
        keys += [row[0] for row in page["rows"]]
        while "next_cursor" in page:
            page = await call(client, "query_records", **arguments, cursor=page["next_cursor"])
            keys += [row[0] for row in page["rows"]]
    stored = [key for (key,) in database.rows("SELECT geonameid FROM places_city")]
    assert len(keys) == len(stored)
    assert set(keys) == set(stored)


async def test_resources_lead_to_the_last_row(connect: Connect, database: Database) -> None:
    keys: list[str] = []
    uri: str | None = "django://places/country"
    async with connect() as client:
        while uri is not None:
            page = json.loads(text_of((await client.read_resource(uri)).contents[0]))
            keys += [row[0] for row in page["rows"]]
            uri = page.get("next")
    stored = [key for (key,) in database.rows("SELECT iso FROM places_country")]
    assert len(keys) == len(stored)
    assert set(keys) == set(stored)


# Reading


async def test_filters_search_order_and_fields_are_kept(connect: Connect, database: Database) -> None:
    async with connect() as client:
        page = await call(
            client,
            "query_records",
            model="shop.order",
            filters={"status__in": ["cancelled", "pending"], "total__gte": "100"},
            ordering=["-total"],
            fields=["number", "status", "total"],
            limit=200,
            count=True,
        )
    stored = database.rows(
        "SELECT id, number, status, printf('%.2f', total) FROM shop_order"
        " WHERE status IN ('cancelled', 'pending') AND total >= 100 ORDER BY total DESC, id DESC"
    )
    assert page["count"] == page["returned"] == len(stored) > 0
    assert page["columns"] == ["id", "number", "status", "total"]
    assert [tuple(row) for row in page["rows"]] == stored


async def test_relations_are_shown_with_their_labels(connect: Connect, database: Database) -> None:
    number, customer, name = database.rows(
        "SELECT o.number, c.id, c.name FROM shop_order o JOIN shop_customer c ON c.id = o.customer_id ORDER BY o.id"
    )[0]
    async with connect() as client:
        page = await call(client, "query_records", model="shop.order", filters={"number": number}, fields=["customer"])
    assert page["rows"][0][1] == [customer, name]


async def test_aggregates_are_those_of_the_database(connect: Connect, database: Database) -> None:
    async with connect() as client:
        grouped = await call(
            client,
            "aggregate_records",
            model="shop.order",
            aggregates=["count", "max:total"],
            group_by=["status"],
        )
    stored = database.rows("SELECT status, count(*), max(total) FROM shop_order GROUP BY status")
    shown = {row[0]: (row[1], float(row[2])) for row in grouped["rows"]}
    assert shown == {status: (count, pytest.approx(float(biggest))) for status, count, biggest in stored}


async def test_revenue_by_country_and_month_of_the_top_five_is_one_call(connect: Connect, database: Database) -> None:
    async with connect() as client:
        found = await call(
            client,
            "aggregate_records",
            model="shop.order",
            aggregates=["sum:total", "count"],
            group_by=["customer__city__country", "created:month"],
            top=5,
        )
    joined = "shop_order o JOIN shop_customer u ON u.id = o.customer_id JOIN places_city c ON c.geonameid = u.city_id"
    stored = database.rows(f"SELECT c.country_id, sum(total) FROM {joined} GROUP BY 1 ORDER BY 2 DESC LIMIT 5")
    revenue: dict[str, float] = {}
    for country, _, total, _ in found["rows"]:
        revenue[country[0]] = revenue.get(country[0], 0) + float(total)
    assert list(revenue) == [country for country, _ in stored]
    assert list(revenue.values()) == [pytest.approx(float(total)) for _, total in stored]
    months = [row[1] for row in found["rows"] if row[0][0] == stored[0][0]]
    assert months == sorted(months)
    counted = sum(row[3] for row in found["rows"]) + found["rest"]["count"]
    assert counted == database.value("SELECT count(*) FROM shop_order")


async def test_a_record_is_read_as_tool_and_as_resource(connect: Connect, database: Database) -> None:
    pk, number = database.rows("SELECT id, number FROM shop_order ORDER BY id")[0]
    async with connect() as client:
        record = await call(client, "get_record", model="shop.order", pk=pk)
        resource = json.loads(text_of((await client.read_resource(record["uri"])).contents[0]))
    assert record["fields"]["number"] == number
    # The resource is the row alone: other rows that change do not change it.
    more = {name: record.pop(name) for name in ("version", "inlines")}
    assert more["inlines"]["lines"]
    assert resource == record


async def test_a_file_is_read_as_a_resource(connect: Connect, database: Database) -> None:
    pk = database.value("SELECT id FROM shop_document WHERE file != '' ORDER BY id")
    async with connect() as client:
        contents = (await client.read_resource(f"django://shop/document/{pk}/file")).contents[0]
    assert contents.mime_type
    assert getattr(contents, "text", "") or getattr(contents, "blob", "")


async def test_functions_of_the_project_answer(connect: Connect, database: Database) -> None:
    number, pk = database.rows("SELECT number, id FROM shop_order ORDER BY id")[0]
    year = int(database.value("SELECT strftime('%Y', max(created)) FROM shop_order"))
    async with connect() as client:
        months = (await call(client, "revenue_by_month", year=year))["result"]
        policy = text_of((await client.read_resource("shop://policy/returns")).contents[0])
        prompt = await client.get_prompt("triage_order", {"order": str(pk)})
    earned = (
        "SELECT count(*) FROM shop_order WHERE strftime('%Y', created) = ?"
        " AND status IN ('paid', 'shipped', 'delivered')"
    )
    assert sum(month["orders"] for month in months) == database.value(earned, str(year))
    assert "30 days" in policy
    assert number in text_of(prompt.messages[0].content)


# Writing


async def test_a_row_is_made_changed_and_deleted(connect: Connect, database: Database, mode: str) -> None:
    slug = f"python-{mode}"
    async with connect() as client:
        made = await call(client, "create_record", model="shop.category", values={"name": slug, "slug": slug})
        row = {"model": "shop.category", "pk": made["pk"]}
        assert database.value("SELECT name FROM shop_category WHERE id = ?", made["pk"]) == slug
        await call(client, "update_record", **row, values={"name": "Changed"})
        assert database.value("SELECT name FROM shop_category WHERE id = ?", made["pk"]) == "Changed"
        preview = await call(client, "delete_record", **row)
        assert preview["confirmation_required"]
        assert database.value("SELECT count(*) FROM shop_category WHERE id = ?", made["pk"]) == 1
        await call(client, "delete_record", **row, confirm_token=preview["confirm_token"])
        again = await client.call_tool("delete_record", {**row, "confirm_token": preview["confirm_token"]})
    assert again.is_error
    assert database.value("SELECT count(*) FROM shop_category WHERE id = ?", made["pk"]) == 0
    history = database.rows(
        "SELECT l.action_flag, u.username FROM django_admin_log l JOIN auth_user u ON u.id = l.user_id"
        " JOIN django_content_type t ON t.id = l.content_type_id"
        " WHERE t.model = 'category' AND l.object_id = ? ORDER BY l.id",
        str(made["pk"]),
    )
    assert history == [(1, "admin"), (2, "admin"), (3, "admin")]


async def test_what_the_form_refuses_is_named_by_field(connect: Connect, database: Database) -> None:
    before = database.value("SELECT count(*) FROM shop_category")
    async with connect() as client:
        values = {"name": "Refused", "slug": "no slug"}
        refused = await client.call_tool("create_record", {"model": "shop.category", "values": values})
    assert refused.is_error
    assert "slug" in text_of(refused.content[0])
    assert database.value("SELECT count(*) FROM shop_category") == before


async def test_what_others_depend_on_is_not_deleted(connect: Connect, database: Database) -> None:
    customer = database.value("SELECT customer_id FROM shop_order ORDER BY id")
    async with connect() as client:
        refused = await client.call_tool("delete_record", {"model": "shop.customer", "pk": customer})
    assert refused.is_error
    assert database.value("SELECT count(*) FROM shop_customer WHERE id = ?", customer) == 1


# Actions


async def test_an_action_of_the_admin_runs(connect: Connect, database: Database) -> None:
    paid = database.value("SELECT id FROM shop_order WHERE status = 'paid' ORDER BY id")
    async with connect() as client:
        done = await call(client, "mark_shipped_shop_order", pks=[paid])
    assert done["messages"]
    assert "1 order was marked as shipped." in json.dumps(done["messages"])
    assert database.value("SELECT status FROM shop_order WHERE id = ?", paid) == "shipped"


async def test_an_action_runs_by_its_name_as_well(connect: Connect, database: Database) -> None:
    pending = database.value("SELECT id FROM shop_order WHERE status = 'pending' ORDER BY id")
    async with connect() as client:
        action = {"model": "shop.order", "action": "cancel_orders", "pks": [pending]}
        preview = await call(client, "run_action", **action)
        assert database.value("SELECT status FROM shop_order WHERE id = ?", pending) == "pending"
        await call(client, "run_action", **action, confirm_token=preview["confirm_token"])
    assert database.value("SELECT status FROM shop_order WHERE id = ?", pending) == "cancelled"


async def test_an_action_with_a_page_asks_first(connect: Connect, database: Database) -> None:
    order = database.value("SELECT id FROM shop_order WHERE status = 'delivered' AND total > 10 ORDER BY id")
    refunds = "SELECT amount FROM shop_paymentaudit WHERE order_id = ? AND event = 'refunded'"
    async with connect() as client:
        asked = await call(client, "refund_shop_order", pks=[order])
        assert asked["confirmation_required"]
        assert {"reason", "amount"} <= asked["form"]["properties"].keys()
        assert database.rows(refunds, order) == []
        answer = {"pks": [order], "confirm_token": asked["confirm_token"], "form": {"reason": "late", "amount": "9.50"}}
        done = await call(client, "refund_shop_order", **answer)
        again = await client.call_tool("refund_shop_order", answer)
    assert "1 order was refunded." in json.dumps(done["messages"])
    assert again.is_error
    assert database.rows(refunds, order) == [(9.5,)]


async def test_a_file_that_an_action_makes_comes_back(connect: Connect, database: Database) -> None:
    orders = database.rows("SELECT id, number FROM shop_order ORDER BY id LIMIT 3")
    async with connect() as client:
        result = await client.call_tool("export_csv_shop_order", {"pks": [pk for pk, _ in orders]})
    assert [block.type for block in result.content] == ["text"]
    found = json.loads(text_of(result.content[0]))["file"]
    assert found["mime_type"] == "text/csv"
    assert {line.split(",")[0] for line in found["text"].splitlines()[1:]} == {number for _, number in orders}


async def test_progress_of_a_slow_action_arrives(connect: Connect, database: Database) -> None:
    orders = [pk for (pk,) in database.rows("SELECT id FROM shop_order ORDER BY id LIMIT 100")]
    told: list[tuple[float, float | None]] = []

    async def tell(progress: float, total: float | None, message: str | None) -> None:
        told.append((progress, total))

    async with connect() as client:
        arguments = {"pks": orders}
        result = await client.call_tool("recalculate_totals_shop_order", arguments, progress_callback=tell)
    assert not result.is_error
    assert told[0] == (10, 100)
    assert told == sorted(set(told))
    assert told[-1] == (100, 100)


# Errors


async def test_a_model_is_told_what_it_can_mend(connect: Connect) -> None:
    async with connect() as client:
        for name, arguments, hint in (
            ("query_records", {"model": "shop.ordr"}, "shop.order"),
            ("query_records", {"model": "shop.order", "filters": {"sttus": "paid"}}, "status"),
            ("get_record", {"model": "shop.order", "pk": 999999999}, ""),
            ("query_records", {"model": "shop.order", "cursor": "nonsense"}, "cursor"),
            ("query_records", {"model": "shop.order", "no_such": 1}, "no_such"),
        ):
            result = await client.call_tool(name, arguments)
            assert result.is_error
            text = text_of(result.content[0])
            assert hint in text
            assert len(text) < 1500
            assert "Traceback" not in text


async def test_a_client_is_told_what_it_got_wrong(connect: Connect, mode: str) -> None:
    missing_resource = -32002 if mode == "legacy" else -32602
    async with connect() as client:
        for attempt, code in (
            (lambda: client.call_tool("no_such_tool", {}), -32602),
            (lambda: client.get_prompt("no_such_prompt"), -32602),
            (lambda: client.read_resource("django://shop/order/999999999"), missing_resource),
            (lambda: client.read_resource("django://auth/user/1"), missing_resource),
            (lambda: client.list_tools(cursor="nonsense"), -32602),
        ):
            with pytest.raises(MCPError) as caught:
                await attempt()
            assert caught.value.code == code


# Who sees what


async def test_warehouse_staff_see_and_change_the_orders_of_their_country(connect: Connect, database: Database) -> None:
    own = {pk for (pk,) in database.rows("SELECT id FROM shop_order WHERE country_id = 'DE'")}
    foreign = database.value("SELECT min(id) FROM shop_order WHERE country_id != 'DE' AND status = 'paid'")
    async with connect("warehouse") as client:
        tools = {tool.name for tool in await every(client.list_tools, "tools")}
        page = await call(client, "query_records", model="shop.order", limit=200, fields=["number"])
        counted = await call(client, "aggregate_records", model="shop.order", aggregates=["count"])
        shipped = await client.call_tool("mark_shipped_shop_order", {"pks": [foreign]})
        read = await client.call_tool("get_record", {"model": "shop.order", "pk": foreign})
        with pytest.raises(MCPError):
            await client.read_resource(f"django://shop/order/{foreign}")
    assert {row[0] for row in page["rows"]} == own
    assert counted["rows"][-1][-1] == len(own)
    assert "mark_shipped_shop_order" in tools
    assert "refund_shop_order" not in tools
    assert shipped.is_error
    assert read.is_error
    assert database.value("SELECT status FROM shop_order WHERE id = ?", foreign) == "paid"


async def test_an_auditor_sees_everything_and_changes_nothing(connect: Connect, database: Database) -> None:
    pk = database.value("SELECT min(id) FROM shop_order")
    async with connect("auditor") as client:
        tools = {tool.name for tool in await every(client.list_tools, "tools")}
        page = await call(client, "query_records", model="shop.order", limit=1, count=True)
        written = await _attempt(client, "update_record", {"model": "shop.order", "pk": pk, "values": {"note": "x"}})
        acted = await _attempt(client, "mark_shipped_shop_order", {"pks": [pk]})
    assert page["count"] == database.value("SELECT count(*) FROM shop_order")
    assert not tools & {"create_record", "update_record", "delete_record", "mark_shipped_shop_order"}
    assert "export_csv_shop_order" in tools
    assert written == acted == "refused"
    assert database.value("SELECT note FROM shop_order WHERE id = ?", pk) != "x"


@pytest.fixture(scope="module")
def token_of_nobody(example: Server) -> str:
    return manage(example, "mcp_token", "nobody").split()[-1]


async def test_who_is_not_staff_finds_nothing(example: Server, token_of_nobody: str, mode: str) -> None:
    headers = {"Authorization": f"Bearer {token_of_nobody}"}
    async with (
        httpx2.AsyncClient(headers=headers) as http,
        Client(streamable_http_client(example.url, http_client=http), mode=mode) as client,
    ):
        uris = {str(resource.uri) for resource in await every(client.list_resources, "resources")}
        tools = {tool.name for tool in await every(client.list_tools, "tools")}
        queried = await _attempt(client, "query_records", {"model": "shop.order"})
    assert uris == {"shop://policy/returns"}
    assert tools == set()
    assert queried == "refused"


async def _attempt(client: Client, name: str, arguments: dict[str, Any]) -> str:
    """Whether a call was done or refused, in whichever of the two ways."""
    try:
        result = await client.call_tool(name, arguments)
    except MCPError:
        return "refused"
    return "refused" if result.is_error else "done"
