"""The official TypeScript clients, of both generations, against the example project.

A Node program per client does the whole walk and tells what it saw; the tests compare that with the database.
"""

import json
import subprocess
import uuid
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.e2e.database import Database
from tests.e2e.servers import Server

SERVER = "daphne"
PROGRAMS = Path(__file__).parent / "node"
TIMEOUT = 120
BEST_COUNTRIES = "SELECT country_id FROM shop_order GROUP BY 1 ORDER BY sum(total) DESC, 1 LIMIT 5"
MODERN, LEGACY = "2026-07-28", "2025-11-25"


class Walk(NamedTuple):
    """What a client was asked to do, and what it told."""

    program: str
    version: str
    given: dict[str, Any]
    told: dict[str, Any]


CLIENTS = [("client2.mjs", "legacy", LEGACY), ("client2.mjs", "auto", MODERN), ("sdk1.mjs", "", LEGACY)]


@pytest.fixture(scope="module", params=CLIENTS, ids=["client2-legacy", "client2-auto", "sdk1"])
def walk(request: pytest.FixtureRequest, node: str, example: Server, database: Database) -> Walk:
    program, mode, version = request.param
    given = {
        "url": example.url,
        "order": database.value("SELECT max(id) FROM shop_order"),
        "orders": [pk for (pk,) in database.rows("SELECT id FROM shop_order ORDER BY id LIMIT 35")],
        "paid": database.value("SELECT min(id) FROM shop_order WHERE status = 'paid'"),
        "customer": database.value("SELECT min(id) FROM shop_customer"),
        "product": str(uuid.UUID(database.value("SELECT min(id) FROM shop_product"))),
        "refundable": database.value("SELECT min(id) FROM shop_order WHERE status = 'delivered' AND total > 1"),
    }
    command = [node, str(PROGRAMS / program), json.dumps(given), mode]
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT)
    assert done.returncode == 0, done.stderr
    return Walk(program, version, given, json.loads(done.stdout))


def test_it_gets_a_token_from_nothing(walk: Walk) -> None:
    assert walk.told["registered"]
    assert walk.told["signIns"] == 1
    assert set(walk.told["scope"].split()) == {"mcp:read", "mcp:write"}


def test_it_speaks_the_revision_it_should(walk: Walk) -> None:
    assert walk.told["version"] == walk.version


def test_a_refused_token_is_refreshed_without_the_person(walk: Walk) -> None:
    assert walk.told["refreshed"] == {"changed": True, "signIns": 1}


def test_a_missing_scope_is_asked_for_when_it_is_needed(walk: Walk, database: Database) -> None:
    stepped = walk.told["steppedUp"]
    assert stepped["before"] == "mcp:read"
    assert set(stepped["after"].split()) == {"mcp:read", "mcp:write"}
    assert stepped["refusal"] is not None
    assert stepped["signIns"] == 2
    assert database.value("SELECT count(*) FROM shop_category WHERE slug = ?", stepped["slug"]) == 1


def test_every_list_is_there(walk: Walk) -> None:
    lists = walk.told["lists"]
    assert {"list_models", "query_records", "mark_shipped_shop_order", "revenue_by_month"} <= set(lists["tools"])
    assert {"django://shop/order", "shop://policy/returns"} <= set(lists["resources"])
    assert any(template.startswith("django://{app_label}/{model_name}/{pk}") for template in lists["templates"])
    assert lists["prompts"] == ["triage_order"]


def test_pages_lead_to_the_last_row(walk: Walk, database: Database) -> None:
    for keys, table, pk in (("cities", "places_city", "geonameid"), ("countries", "places_country", "iso")):
        stored = {key for (key,) in database.rows(f"SELECT {pk} FROM {table}")}
        assert len(walk.told[keys]) == len(stored)
        assert set(walk.told[keys]) == stored


def test_a_query_finds_what_the_database_holds(walk: Walk, database: Database) -> None:
    page = walk.told["query"]
    numbers = {row[page["columns"].index("number")] for row in page["rows"]}
    assert len(numbers) == page["count"] > 0
    stored = {number for (number,) in database.rows("SELECT number FROM shop_order WHERE status = 'cancelled'")}
    assert numbers == stored


def test_one_record_is_shown(walk: Walk, database: Database) -> None:
    number = database.value("SELECT number FROM shop_order WHERE id = ?", walk.given["order"])
    assert number in json.dumps(walk.told["record"])
    assert number in walk.told["prompt"]["messages"][0]["content"]["text"]


def test_a_row_is_made_changed_and_deleted(walk: Walk, database: Database) -> None:
    written = walk.told["written"]
    assert written["preview"]["confirm_token"]
    assert database.value("SELECT count(*) FROM shop_category WHERE id = ?", written["pk"]) == 0
    history = "SELECT action_flag FROM django_admin_log WHERE object_id = ? AND object_repr LIKE ? ORDER BY id"
    assert [flag for (flag,) in database.rows(history, str(written["pk"]), "made-by-%")] == [1, 2, 3]


def test_actions_run(walk: Walk, database: Database) -> None:
    state = "SELECT status FROM shop_order WHERE id = ?"
    assert database.value(state, walk.given["paid"]) == "shipped"
    assert "1 order was marked as shipped." in json.dumps(walk.told["acted"]["shipped"])
    assert walk.told["acted"]["asked"]["confirm_token"]
    assert database.value(state, walk.given["refundable"]) == "refunded"


def test_progress_arrives(walk: Walk) -> None:
    told = walk.told["acted"]["progress"]
    steps = [message["progress"] for message in told]
    assert steps[0] == 10
    assert steps == sorted(set(steps))
    assert {message["total"] for message in told} == {35}


# The data side


def test_an_expression_and_an_aggregate_are_those_of_the_database(walk: Walk, database: Database) -> None:
    told = walk.told["data"]
    # Its own order was made after that.
    stored = database.rows(
        "SELECT id FROM shop_order WHERE created >= '2025-01-01' AND id != ?"
        " AND (total >= 1000 OR status IN ('paid', 'pending') AND country_id != 'DE')",
        told["made"]["pk"],
    )
    assert sorted(told["found"]) == sorted(pk for (pk,) in stored)
    assert stored
    countries = [country for (country,) in database.rows(BEST_COUNTRIES)]
    assert list(dict.fromkeys(row[0][0] for row in told["top"]["rows"])) == countries
    counted = sum(row[3] for row in told["top"]["rows"]) + told["top"]["rest"]["count"]
    assert counted == database.value("SELECT count(*) FROM shop_order WHERE id < ?", told["made"]["pk"])


def test_two_models_are_described_in_few_words(walk: Walk) -> None:
    order, shipment = walk.told["data"]["described"]["models"]
    assert order["inlines"].startswith("lines(product* shop.product, quantity integer, ")
    assert "carrier* dhl|ups|fedex|post" in shipment["fields"]


def test_an_order_is_made_once_and_changed_in_its_newest_version_only(walk: Walk, database: Database) -> None:
    told = walk.told["data"]
    assert told["repeated"] == told["made"]
    assert told["made"]["inlines"]["lines"][0]["subtotal"] == told["made"]["fields"]["total"] == "21.00"
    number = told["made"]["fields"]["number"]
    assert database.value("SELECT count(*) FROM shop_order WHERE number = ?", number) == 1
    assert told["version"] != told["made"]["version"]
    assert told["stale"]["isError"]
    assert "get_record" in told["stale"]["text"]
    assert [entry["action"] for entry in told["history"]] == ["changed", "added"]


def test_many_rows_are_shown_and_confirmed_before_they_are_changed(walk: Walk, database: Database) -> None:
    told = walk.told["data"]
    number = told["made"]["fields"]["number"]
    assert told["preview"]["objects"] == told["shown"]["objects"] == [number]
    assert (told["bulk"]["updated"], told["bulk"]["rows"]) == (True, 1)
    assert told["shipped"]["messages"] == [{"level": "success", "text": "1 order was marked as shipped."}]
    assert told["deletion"]["deletes"] == {"orders": 1, "order lines": 1}
    stored = database.rows("SELECT note, status FROM shop_order WHERE number = ?", number)
    assert stored == [("Twice", "shipped")]


def test_a_viewset_is_read_to_its_last_page(walk: Walk, database: Database) -> None:
    stored = [pk for (pk,) in database.rows("SELECT id FROM shop_review ORDER BY created DESC, id DESC")]
    assert walk.told["data"]["reviews"] == stored


def test_errors_say_what_is_wrong(walk: Walk) -> None:
    failed = walk.told["failed"]
    assert failed["mended"]["isError"]
    assert "shop.nothing" in failed["mended"]["text"] or "list_models" in failed["mended"]["text"]
    assert failed["tool"]["code"] == -32602
    # The second generation gives the error of all revisions the code of the newest one.
    assert failed["resource"]["code"] == (-32002 if walk.program == "sdk1.mjs" else -32602)
    assert failed["prompt"]["code"] == -32602
