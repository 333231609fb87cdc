"""The data side through the official Python client, on SQLite in the modern era and on PostgreSQL in the older one.

What a call answers is compared with what the ORM says in a process of its own.
"""

import base64
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from itertools import groupby
from typing import Any, Literal

import httpx2
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.types import BlobResourceContents, ElicitResult

from tests.cases import whole
from tests.e2e.orm import Orm, new_postgres_database, orm_of
from tests.e2e.python_client import TIMEOUT, call, every, text_of
from tests.e2e.servers import Server, manage, prepare_example, run_example

# A third of the 34,000 cities would be enough: counting stops at 10,000.
POPULATION = 30_000
# Makes the newest of the orders as old as the tests.
REFRESH = (
    'Order.objects.update(created=F("created") + (timezone.now() - Order.objects.aggregate(x=Max("created"))["x"]))'
)
ERAS = {"sqlite": "2026-07-28", "postgresql": "legacy"}
Connect = Callable[..., AbstractAsyncContextManager[Client]]


@pytest.fixture(scope="module", params=["postgresql", *whole(["sqlite"])])
def vendor(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(scope="module")
def example(request: pytest.FixtureRequest, vendor: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """The example project with more than 10,000 cities and orders up to today."""
    prepared, directory = tmp_path_factory.mktemp("prepared"), tmp_path_factory.mktemp("served")
    serve = partial(run_example, server="uvicorn", application="example_project.asgi:application")
    if vendor == "sqlite":
        prepare_example(prepared, population=POPULATION)
        with serve(prepared, directory) as server:
            yield server
        return
    with new_postgres_database(request.getfixturevalue("postgres")) as url:
        prepare_example(prepared, url, population=POPULATION)
        with serve(prepared, directory, url=url) as server:
            yield server


@pytest.fixture(scope="module")
def orm(example: Server) -> Iterator[Orm]:
    """What the ORM says of the server's data, which end today."""
    with orm_of(example) as evaluate:
        assert evaluate(REFRESH)
        yield evaluate


@pytest.fixture(scope="module")
def tokens(example: Server) -> dict[str, str]:
    return {name: manage(example, "mcp_token", name).split()[-1] for name in ("admin", "auditor", "nobody")}


@pytest.fixture
def connect(example: Server, tokens: dict[str, str], vendor: str) -> Connect:
    """Connect as a user, the admin by default, in the era that goes with the database."""

    @asynccontextmanager
    async def connected(
        username: str = "admin", *, transport: httpx2.AsyncBaseTransport | None = None, **options: Any
    ) -> AsyncIterator[Client]:
        headers = {"Authorization": f"Bearer {tokens[username]}"}
        async with (
            httpx2.AsyncClient(headers=headers, timeout=TIMEOUT, transport=transport) as http,
            Client(streamable_http_client(example.url, http_client=http), mode=ERAS[vendor], **options) as client,
        ):
            yield client

    return connected


class Person:
    """Somebody whom the client asks: says yes or no, and remembers the questions."""

    def __init__(self, action: Literal["accept", "decline"] = "accept") -> None:
        self.action: Literal["accept", "decline"] = action
        self.asked: list[str] = []

    async def answer(self, context: Any, params: Any) -> ElicitResult:
        self.asked.append(params.message)
        return ElicitResult(action=self.action, content={"_confirm": "yes"} if self.action == "accept" else None)


async def refused(client: Client, name: str, **arguments: Any) -> str:
    """The text of a tool's result that must be an error."""
    result = await client.call_tool(name, arguments)
    assert result.is_error, result.content
    return text_of(result.content[0])


async def walked(client: Client, **arguments: Any) -> list[list[Any]]:
    """All rows of a query, page after page."""
    page = await call(client, "query_records", **arguments)
    rows = list(page["rows"])
    while "next_cursor" in page:
        page = await call(client, "query_records", **arguments, cursor=page["next_cursor"])
        rows += page["rows"]
    return rows


async def new_order(client: Client, orm: Orm, number: str, **values: Any) -> dict[str, Any]:
    """Make an order of two lines."""
    customer, products = orm("[Order.objects.first().customer_id, list(Product.objects.values_list('pk')[:2])]")
    lines = [{"product": pk, "quantity": 2 + place, "unit_price": "10.50"} for place, [pk] in enumerate(products)]
    return await call(
        client,
        "create_record",
        model="shop.order",
        values={"number": number, "customer": customer, "lines": lines, **values},
    )


# Queries


async def test_filters_are_expressions(connect: Connect, orm: Orm) -> None:
    filters = {
        "created": "last 30 days",
        "or": [{"total__gte": "500"}, {"status": ["paid", "pending"], "not": {"country": "DE"}}],
    }
    async with connect() as client:
        rows = await walked(client, model="shop.order", filters=filters, fields=["created"], limit=5)
    stored = orm(
        """list(Order.objects.filter(
            Q(total__gte=500) | Q(status__in=["paid", "pending"]) & ~Q(country="DE"),
            created__date__gte=timezone.localdate() - timedelta(days=30),
        ).values_list("pk", flat=True))""",
    )
    assert [row[0] for row in rows] == stored
    assert stored


async def test_the_filters_of_the_admin_have_their_names(connect: Connect, orm: Orm) -> None:
    async with connect() as client:
        page = await call(client, "query_records", model="shop.order", filters={"size": "large"}, limit=1, count=True)
        wrong = await refused(client, "query_records", model="shop.order", filters={"size": "huge"})
    assert page["count"] == orm("Order.objects.filter(total__gte=1000).count()") > 0
    assert wrong == "The filter 'size' has no choice 'huge'. Valid: small, medium, large."


async def test_revenue_by_country_and_month_of_a_year_of_the_top_five_is_one_call(connect: Connect, orm: Orm) -> None:
    async with connect() as client:
        found = await call(
            client,
            "aggregate_records",
            model="shop.order",
            aggregates=["sum:total"],
            group_by=["customer__city__country", "created:month"],
            filters={"created__gte": "today-365d", "status": ["paid", "shipped", "delivered"]},
            top=5,
        )
    code = """list(Order.objects.filter(
        created__date__gte=timezone.localdate() - timedelta(days=365), status__in=Order.EARNED
    ).order_by().values_list("customer__city__country", TruncMonth("created")).annotate(Sum("total")))"""
    revenue: dict[str, dict[str, float]] = {}
    for country, month, total in orm(code):
        revenue.setdefault(country, {})[month[:7]] = float(total)
    best = sorted(revenue, key=lambda country: -sum(revenue[country].values()))[:5]
    shown = {
        country: {month: pytest.approx(float(total)) for _, month, total in rows}
        for country, rows in groupby(found["rows"], key=lambda row: row[0][0])
    }
    assert list(shown) == best
    assert all(revenue[country] == shown[country] for country in best)
    whole = sum(sum(months.values()) for months in revenue.values())
    told = sum(float(total) for *_, total in found["rows"]) + float(found["rest"]["sum_total"])
    assert told == pytest.approx(whole)


async def test_rows_without_a_value_come_last_and_the_last_page_is_reached(connect: Connect, orm: Orm) -> None:
    arguments = {"model": "shop.shipment", "ordering": ["-delivered_at:nulls_last", "carrier"]}
    async with connect() as client:
        rows = await walked(client, **arguments, fields=["delivered_at"], limit=7)
    code = """list(Shipment.objects.order_by(
        F("delivered_at").desc(nulls_last=True), "carrier", "pk"
    ).values_list("pk", flat=True))"""
    assert [row[0] for row in rows] == orm(code)
    assert (rows[0][1] is None, rows[-1][1] is None) == (False, True)


async def test_a_count_is_exact_or_honest(connect: Connect, orm: Orm) -> None:
    async with connect() as client:
        many = await call(client, "query_records", model="places.city", limit=1, count=True)
        few = await call(client, "query_records", model="places.city", filters={"country": "NL"}, limit=1, count=True)
    assert orm("City.objects.count()") > 10_000
    assert many["count"] == "more than 10000"
    assert few["count"] == orm("City.objects.filter(country='NL').count()") > 0


async def test_models_are_described_in_few_words_or_in_full(connect: Connect) -> None:
    async with connect() as client:
        short = await call(client, "describe_model", model="shop.order,shop.shipment")
        full = await call(client, "describe_model", model="shop.order", detail=True)
        wrong = await refused(client, "describe_model", model="shop.order,shop.shpment")
    order, shipment = short["models"]
    assert "customer* shop.customer, " in order["fields"]
    assert order["inlines"].startswith("lines(product* shop.product, quantity integer, unit_price* decimal, ")
    assert (order["filters"], "mark_shipped" in order["actions"]) == ("size small|medium|large", True)
    assert "carrier* dhl|ups|fedex|post" in shipment["fields"]
    assert full["input_schema"]["required"] == ["number", "customer", "status"]
    assert len(str(full)) > 2 * len(str(order))
    assert wrong.startswith("Name 2 of 2: No such model. Did you mean shop.shipment?")


# Writing


async def test_an_order_is_made_with_its_lines_and_changed_in_its_newest_version_only(
    connect: Connect, orm: Orm, vendor: str
) -> None:
    async with connect() as client:
        made = await new_order(client, orm, f"V-{vendor}")
        row = {"model": "shop.order", "pk": made["pk"]}
        read = await call(client, "get_record", **row)
        line = read["inlines"]["lines"][0]
        values = {"note": "Two more", "lines": [{"pk": line["pk"], "quantity": 4}]}
        changed = await call(client, "update_record", **row, values=values, version=read["version"])
        stale = await refused(client, "update_record", **row, values={"note": "Lost"}, version=read["version"])
        told = (await call(client, "get_record", **row, history=True))["history"]
    assert read["version"] == made["version"] != changed["version"]
    assert (read["fields"]["total"], changed["fields"]["total"]) == ("52.50", "73.50")
    assert "has changed since" in stale
    assert "get_record" in stale
    assert orm(f"Order.objects.values_list('note', 'total').get(pk={made['pk']})") == ["Two more", "73.50"]
    assert [entry["action"] for entry in told] == ["changed", "added"]
    assert {entry["user"] for entry in told} == {"admin"}
    assert "update_record" in told[0]["message"]


async def test_what_is_wrong_with_a_line_is_told_by_its_place(connect: Connect, orm: Orm) -> None:
    before = orm("Order.objects.count()")
    async with connect() as client:
        with pytest.raises(AssertionError, match=r"lines\[1\]\.quantity"):
            await new_order(client, orm, "W-1", lines=[{"quantity": 1}, {"quantity": 0}])
    assert orm("Order.objects.count()") == before


async def test_a_client_that_can_ask_asks_before_many_rows_are_changed(connect: Connect, orm: Orm) -> None:
    update = {"model": "shop.order", "filters": {"status": "shipped"}, "values": {"note": "Ask the carrier"}}
    written = "Order.objects.filter(note='Ask the carrier').count()"
    unwilling, willing = Person("decline"), Person()
    async with connect(elicitation_callback=unwilling.answer) as client:
        refusal = await refused(client, "update_record", **update)
        assert orm(written) == 0
    async with connect(elicitation_callback=willing.answer) as client:
        done = await call(client, "update_record", **update)
    number = orm("Order.objects.filter(status='shipped').count()")
    assert done["rows"] == done["changed_rows"] == orm(written) == number > 1
    assert unwilling.asked == willing.asked
    assert willing.asked[0].startswith(f"This changes {number} rows of shop.order: note = “Ask the carrier”.")
    assert "declined" in refusal


async def test_a_client_that_cannot_ask_is_shown_the_rows_first(connect: Connect, orm: Orm) -> None:
    update = {"model": "shop.order", "filters": {"status": "cancelled"}, "values": {"note": "Closed"}}
    written = "Order.objects.filter(note='Closed').count()"
    async with connect() as client:
        preview = await call(client, "update_record", **update)
        assert orm(written) == 0
        token = preview["confirm_token"]
        other = await refused(client, "update_record", **{**update, "values": {"note": "Open"}}, confirm_token=token)
        done = await call(client, "update_record", **update, confirm_token=token)
        again = await refused(client, "update_record", **update, confirm_token=token)
    assert preview["rows"] == done["rows"] == orm(written) > 1
    assert "Nothing was changed" in other
    assert "Nothing was changed" in again


async def test_an_action_runs_on_the_rows_of_a_query_that_were_shown(connect: Connect, orm: Orm, vendor: str) -> None:
    picked = {"status": "pending", "number__startswith": f"A-{vendor}"}
    action = {"model": "shop.order", "action": "cancel_orders", "filters": picked}
    async with connect() as client:
        keys = [(await new_order(client, orm, f"A-{vendor}-{number}"))["pk"] for number in range(2)]
        preview = await call(client, "run_action", **action)
        keys.append((await new_order(client, orm, f"A-{vendor}-2"))["pk"])
        changed = await client.call_tool("run_action", {**action, "confirm_token": preview["confirm_token"]})
        token = changed.structured_content["confirm_token"]
        done = await call(client, "run_action", **action, confirm_token=token)
    assert (preview["rows"], preview["objects"]) == (2, [f"A-{vendor}-0", f"A-{vendor}-1"])
    assert changed.is_error
    assert done["messages"] == [{"level": "success", "text": "3 orders were cancelled."}]
    assert set(orm(f"list(Order.objects.filter(pk__in={keys}).values_list('status', flat=True))")) == {"cancelled"}


class Flaky(httpx2.AsyncHTTPTransport):
    """A network that loses the answer to a call of a tool."""

    lost = 0

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        response = await super().handle_async_request(request)
        if b"create_record" in request.content:
            await response.aread()
            await response.aclose()
            self.lost += 1
            raise httpx2.ReadError("The connection was dropped.", request=request)
        return response


async def test_a_call_whose_answer_was_lost_is_repeated_with_its_key(connect: Connect, orm: Orm, vendor: str) -> None:
    flaky, slug = Flaky(), f"once-{vendor}"
    create = {"model": "shop.category", "values": {"name": slug, "slug": slug}, "idempotency_key": slug}
    stored = f"list(Category.objects.filter(slug={slug!r}).values_list('pk', flat=True))"
    with pytest.raises(BaseException):  # noqa: B017, PT011
        async with connect(transport=flaky) as client:
            await client.call_tool("create_record", create)
    [pk] = orm(stored)
    async with connect() as client:
        repeated = await call(client, "create_record", **create)
        other = await refused(client, "create_record", **{**create, "values": {"name": "Other", "slug": "other"}})
    assert flaky.lost == 1
    assert repeated["pk"] == pk
    assert orm(stored) == [pk]
    assert "other arguments" in other


async def test_what_goes_with_a_row_is_shown_before_it_is_deleted(connect: Connect, orm: Orm, vendor: str) -> None:
    parcel = {"carrier": "dhl", "tracking_number": f"D-{vendor}"}
    async with connect() as client:
        made = await new_order(client, orm, f"D-{vendor}", shipments=[parcel])
        row = {"model": "shop.order", "pk": made["pk"]}
        preview = await call(client, "delete_record", **row)
        left = f"[model.objects.filter(order={made['pk']}).count() for model in (OrderLine, Shipment)]"
        assert orm(left) == [2, 1]
        done = await call(client, "delete_record", **row, confirm_token=preview["confirm_token"])
        gone = await refused(client, "get_record", **row)
    assert preview["deletes"] == done["deletes"] == {"orders": 1, "order lines": 2, "shipments": 1}
    assert orm(left) == [0, 0]
    assert gone.startswith("No such record.")


# Files


async def test_a_file_is_stored_and_read_back(connect: Connect, orm: Orm) -> None:
    body = bytes(range(256))
    file = {"name": "e2e.bin", "base64": base64.b64encode(body).decode()}
    async with connect() as client:
        made = await call(client, "create_record", model="shop.document", values={"title": "Bytes", "file": file})
        row = {"model": "shop.document", "pk": made["pk"]}
        uri = (await call(client, "get_record", **row))["fields"]["file"]
        [contents] = (await client.read_resource(uri)).contents
        values = {"file": {"name": "e2e.txt", "text": "Grüße"}}
        await call(client, "update_record", **row, values=values)
        [text] = (await client.read_resource(uri)).contents
        wrong = await refused(client, "update_record", **row, values={"file": "e2e.txt"})
    assert isinstance(contents, BlobResourceContents)
    assert base64.b64decode(contents.blob) == body
    assert text_of(text) == "Grüße"
    assert orm(f"Document.objects.get(pk={made['pk']}).file.read().decode()") == "Grüße"
    assert "base64" in wrong


# The ViewSet


async def test_a_viewset_is_listed_paged_and_written(connect: Connect, orm: Orm) -> None:
    product, customer = orm("Review.objects.values_list('product', 'customer').first()")
    review = {"product": product, "customer": customer, "rating": 5, "title": "As said"}
    seen: list[int] = []
    async with connect() as client:
        made = await call(client, "create_reviews", **review)
        arguments: dict[str, Any] | None = {"page_size": 30}
        while arguments is not None:
            page = await call(client, "list_reviews", **arguments)
            seen += [row["id"] for row in page["results"]]
            arguments = {**arguments, **page["next"]} if page.get("next") else None
        wrong = await refused(client, "partial_update_reviews", pk=made["id"], rating=9)
        await call(client, "partial_update_reviews", pk=made["id"], rating=4)
        assert orm(f"Review.objects.get(pk={made['id']}).rating") == 4
        assert seen == orm("list(Review.objects.values_list('pk', flat=True))")
        preview = await call(client, "destroy_reviews", pk=made["id"])
        await call(client, "destroy_reviews", pk=made["id"], confirm_token=preview["confirm_token"])
    assert seen[0] == made["id"]
    assert "rating" in wrong
    assert not orm(f"Review.objects.filter(pk={made['id']}).exists()")


async def test_the_permissions_of_a_viewset_decide_who_is_offered_what(connect: Connect) -> None:
    offered: dict[str, set[str]] = {}
    for username in ("auditor", "nobody"):
        async with connect(username) as client:
            tools = await every(client.list_tools, "tools")
            offered[username] = {tool.name for tool in tools if tool.name.endswith("_reviews")}
    assert offered == {"auditor": {"list_reviews", "retrieve_reviews"}, "nobody": set()}
