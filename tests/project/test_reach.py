"""Which SQL fits one call: the classifier of `python -m evals reach`, on statements over the tables of the example."""

import json
from pathlib import Path

import pytest

from evals.forms import FORMS, REACHES
from evals.reach import main, report, verdict, verdicts

pytestmark = pytest.mark.one_django

UNIQUE = {
    "shop_order": {"id", "number"},
    "shop_customer": {"id", "email"},
    "shop_orderline": {"id"},
    "shop_product": {"id", "sku"},
    "shop_review": {"id"},
    "shop_shipment": {"id"},
    "shop_category": {"id", "slug"},
    "shop_staffprofile": {"id", "~user_id"},
    "auth_user": {"id", "username"},
    "places_country": {"iso", "name"},
    "places_city": {"geonameid"},
}
JOINED = "FROM shop_order o JOIN shop_customer c ON o.customer_id = c.id"
LINES = "FROM shop_orderline l JOIN shop_order o ON l.order_id = o.id"
LISTS = f"{JOINED} JOIN shop_review r ON r.customer_id = c.id"
OF_CUSTOMER = "FROM shop_order o WHERE o.customer_id = c.id"
ONE = {
    "SELECT number FROM shop_order WHERE status = 'paid' AND total BETWEEN 1 AND 9": "condition",
    "SELECT number FROM shop_order WHERE number LIKE 'SO-%' AND note IS NOT NULL": "like null",
    f"SELECT c.name {JOINED} WHERE o.total > 100 ORDER BY o.total DESC LIMIT 3": "join order-and-limit",
    f"SELECT COUNT(o.id), AVG(o.total) {JOINED} WHERE c.joined > '2024-01-01'": "aggregate join",
    f"SELECT c.name, SUM(o.total) {JOINED} GROUP BY c.name HAVING COUNT(*) > 2 ORDER BY SUM(o.total) DESC LIMIT 1": (
        "group-by having order-by-aggregate"
    ),
    f"SELECT CAST(SUM(CASE WHEN o.status = 'paid' THEN 1 ELSE 0 END) AS REAL) * 100 / COUNT(*) {JOINED}": (
        "conditional-aggregate ratio"
    ),
    "SELECT SUM(IIF(status = 'paid', 1, 0)) - SUM(IIF(status = 'pending', 1, 0)) FROM shop_order": "difference",
    "SELECT SUM(status = 'paid') FROM shop_order": "conditional-aggregate",
    f"SELECT SUM(l.quantity * l.unit_price) {LINES}": "aggregate-of-arithmetic",
    "SELECT id, quantity * unit_price FROM shop_orderline": "arithmetic",
    "SELECT id FROM shop_orderline ORDER BY quantity * unit_price DESC LIMIT 1": "order-by-arithmetic",
    f"SELECT DISTINCT c.name {LISTS} WHERE o.total > 5 AND r.rating = 1": "distinct join-of-lists",
    f"SELECT COUNT(DISTINCT c.id) {LISTS} WHERE o.total > 5 AND r.rating = 1": "count-distinct join-of-lists",
    "SELECT name FROM shop_customer WHERE id IN (SELECT customer_id FROM shop_order WHERE total > 9)": "semi-join",
    "SELECT name FROM shop_customer WHERE id NOT IN (SELECT customer_id FROM shop_order)": "anti-join",
    "SELECT c.name FROM shop_customer c WHERE NOT EXISTS (SELECT 1 FROM shop_order o WHERE o.customer_id = c.id)": (
        "anti-join"
    ),
    "SELECT c.name FROM shop_customer c LEFT JOIN shop_order o ON o.customer_id = c.id WHERE o.id IS NULL": "anti-join",
    "SELECT c.name, COUNT(o.id) FROM shop_customer c LEFT JOIN shop_order o ON o.customer_id = c.id GROUP BY c.name": (
        "aggregate-of-list outer-join"
    ),
    "SELECT email FROM shop_customer WHERE id IN "
    "(SELECT customer_id FROM shop_order GROUP BY customer_id HAVING COUNT(*) > 2)": "count-in-condition",
    "SELECT number FROM shop_order WHERE country_id = (SELECT iso FROM places_country WHERE name = 'France')": (
        "key-from-subquery"
    ),
    # A list as one value, in columns, in the order, and in a condition.
    f"SELECT c.name, (SELECT COUNT(*) {OF_CUSTOMER}) FROM shop_customer c": "value-of-list",
    f"SELECT c.name FROM shop_customer c ORDER BY (SELECT SUM(o.total) {OF_CUSTOMER}) DESC": "order-by-value-of-list",
    f"SELECT c.name FROM shop_customer c WHERE 2000 < (SELECT SUM(o.total) {OF_CUSTOMER})": (
        "condition-on-value-of-list"
    ),
    f"SELECT c.name, (SELECT o.status {OF_CUSTOMER} ORDER BY o.created DESC LIMIT 1) FROM shop_customer c": (
        "last-of-list"
    ),
    "SELECT title FROM shop_review WHERE rating = (SELECT MAX(rating) FROM shop_review)": "equals-largest",
    "SELECT number FROM shop_order WHERE total > (SELECT AVG(total) FROM shop_order)": "compared-with-aggregate",
    # The largest of all, and not of those that are shown.
    "SELECT title FROM shop_review WHERE rating = (SELECT MAX(rating) FROM shop_review) AND title LIKE 'A%'": (
        "compared-with-aggregate"
    ),
    "SELECT COUNT(*) FROM shop_order WHERE STRFTIME('%Y', created) = '2025'": "date-part",
    "SELECT COUNT(*) FROM shop_customer WHERE SUBSTR(joined, 1, 7) = '2025-01'": "date-part",
    "SELECT STRFTIME('%Y', created), COUNT(*) FROM shop_order GROUP BY STRFTIME('%Y', created)": "group-by-date",
    "SELECT AVG(JULIANDAY(delivered_at) - JULIANDAY(shipped_at)) FROM shop_shipment": "date-difference",
    "SELECT id FROM shop_shipment WHERE delivered_at > promised_at": "column-against-column",
    "SELECT id FROM shop_orderline WHERE quantity * unit_price > 5": "arithmetic-in-condition",
    "SELECT COUNT(*) FROM shop_customer WHERE STRFTIME('%Y', 'now') - STRFTIME('%Y', joined) > 2": "age",
    "SELECT COUNT(*) FROM (SELECT customer_id FROM shop_order GROUP BY customer_id HAVING COUNT(*) > 2)": (
        "number-of-groups"
    ),
    "SELECT AVG(n) FROM (SELECT customer_id, COUNT(*) AS n FROM shop_order GROUP BY customer_id)": (
        "aggregate-of-aggregates"
    ),
    "SELECT MAX(n) FROM (SELECT customer_id, COUNT(*) AS n FROM shop_order GROUP BY customer_id)": "largest-aggregate",
    "WITH paid AS (SELECT * FROM shop_order WHERE status = 'paid') SELECT COUNT(*) FROM paid": (
        "common-table-expression"
    ),
    "SELECT (SELECT COUNT(*) FROM shop_order WHERE total > 9) - (SELECT COUNT(*) FROM shop_order)": "same-scalars",
    "SELECT id FROM shop_order WHERE total > 9 UNION SELECT id FROM shop_order WHERE status = 'paid'": "union",
    "SELECT id FROM shop_order WHERE total > 9 EXCEPT SELECT id FROM shop_order WHERE status = 'paid'": "set-operation",
    "SELECT a.name, b.name FROM shop_category a JOIN shop_category b ON a.parent_id = b.id": "self-join",
    "SELECT u.username, s.country_id FROM shop_staffprofile s JOIN auth_user u ON s.user_id = u.id": "join",
    f"SELECT name FROM (SELECT c.name, RANK() OVER (PARTITION BY c.city_id ORDER BY o.total) AS place {JOINED}) "
    "WHERE place < 3": "top-per-group",
}
ARITHMETIC = {
    "SELECT (SUM(IIF(status = 'paid', 1, 0)) - SUM(IIF(status = 'refunded', 1, 0))) * 1.0 / COUNT(*) FROM shop_order": (
        "arithmetic-of-aggregates"
    ),
    "SELECT COUNT(DISTINCT customer_id) * 100 / COUNT(*) FROM shop_order": "arithmetic-of-aggregates",
    "SELECT IIF(total > 5, 'large', 'small') FROM shop_order": "case",
    "SELECT name || email FROM shop_customer": "text-function",
    "SELECT number FROM shop_order ORDER BY total LIMIT 1 OFFSET 3": "offset",
    "SELECT number, RANK() OVER (ORDER BY total) FROM shop_order": "rank",
    "SELECT ROUND(AVG(total), 2) FROM shop_order": "cast",
}
TWO = {
    "SELECT name FROM shop_product WHERE price > (SELECT AVG(total) FROM shop_order)": (
        "compared-with-an-aggregate-of-others"
    ),
    f"SELECT o.id {JOINED} WHERE o.total > (SELECT AVG(total) FROM shop_order)": "compared-with-an-aggregate-of-others",
    "SELECT COUNT(*) FROM shop_review WHERE customer_id = "
    "(SELECT customer_id FROM shop_order ORDER BY total DESC LIMIT 1)": "subquery-with-limit",
    "SELECT COUNT(*) FROM (SELECT status FROM shop_order ORDER BY total LIMIT 9) WHERE status = 'paid'": (
        "aggregate-of-first-rows"
    ),
    "SELECT (SELECT COUNT(*) FROM shop_order) * 1.0 / (SELECT COUNT(*) FROM shop_review)": "several-scalars",
    "SELECT id FROM shop_customer WHERE name IN (SELECT title FROM shop_review)": "values-from-subquery",
    # Values of lists are those of whole lists.
    f"SELECT c.name FROM shop_customer c WHERE 2 < (SELECT SUM(o.total) {OF_CUSTOMER} AND o.status = 'paid')": (
        "compared-with-an-aggregate-of-others"
    ),
}
NONE = {
    f"SELECT COUNT(*) {LISTS}": "pairs",
    f"SELECT o.number, r.title {LISTS}": "pairs",
    "SELECT a.id FROM shop_product a JOIN shop_product b ON a.price = b.price": "join-by-value",
    # The user has no foreign key, but is pointed at.
    "SELECT u.username, s.country_id FROM auth_user u LEFT JOIN shop_staffprofile s ON s.user_id = u.id": (
        "columns of an outer join to several rows"
    ),
    f"SELECT COUNT(*) {JOINED} WHERE STRFTIME('%Y', o.created) - STRFTIME('%Y', c.joined) > 2": "years-between",
    "SELECT sku FROM shop_product WHERE LENGTH(name) > 10": "text-function-in-condition",
    "SELECT AVG(CAST(SUBSTR(number, 4) AS INTEGER)) FROM shop_order": "number-in-text",
    "SELECT SUM(total) OVER (ORDER BY id) FROM shop_order": "running-total",
    "SELECT name FROM shop_product WHERE name > 'Desk'": "the order of texts",
    "SELECT name FROM shop_product WHERE name LIKE 'D_sk'": "patterns with single characters",
    "SELECT name FROM shop_product WHERE ABS(price) > 3": "text-function-in-condition",
    "SELECT FROM WHERE": "what the parser does not read",
}


@pytest.mark.parametrize(("sql", "forms"), ONE.items())
def test_one_call(sql: str, forms: str) -> None:
    found = verdict("1", sql, UNIQUE)
    assert (found.reach, found.reasons) == ("one call", ())
    assert set(forms.split()) <= found.forms


@pytest.mark.parametrize(("sql", "form"), ARITHMETIC.items())
def test_one_call_and_arithmetic(sql: str, form: str) -> None:
    found = verdict("1", sql, UNIQUE)
    assert (found.reach, found.reasons) == ("one call and arithmetic", (form,))


@pytest.mark.parametrize(("sql", "form"), TWO.items())
def test_two_calls(sql: str, form: str) -> None:
    found = verdict("1", sql, UNIQUE)
    assert (found.reach, found.calls, found.reasons) == ("2 calls", 2, (form,))


@pytest.mark.parametrize(("sql", "reason"), NONE.items())
def test_no_call(sql: str, reason: str) -> None:
    found = verdict("1", sql, UNIQUE)
    assert found.reach == "none"
    assert reason in found.reasons


def test_two_subqueries_are_three_calls() -> None:
    smallest = "(SELECT MIN(total) FROM shop_order WHERE status = 'paid')"
    sql = f"SELECT name FROM shop_product WHERE price > {smallest} AND price < (SELECT AVG(total) FROM shop_order)"
    assert verdict("1", sql, UNIQUE).reach == "3 calls"


@pytest.mark.parametrize("name", FORMS)
def test_the_examples_of_the_table_are_what_it_says(name: str) -> None:
    form = FORMS[name]
    found = verdict(name, form.sql, UNIQUE)
    assert name in found.forms
    assert found.reach == {"two calls": "2 calls"}.get(form.reach, form.reach)


def test_a_file_is_read_and_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sql = "SELECT c.name FROM shop_order o JOIN shop_customer c ON o.customer_id = c.nr WHERE o.total > 5"
    queries, keys, lines = tmp_path / "queries.json", tmp_path / "keys.json", tmp_path / "queries.sql"
    queries.write_text(
        json.dumps([{"question_id": 7, "db_id": "shop", "SQL": sql}, {"SQL": f"{sql} LIMIT 1 OFFSET 2"}])
    )
    keys.write_text(json.dumps({"shop": {"Shop_Customer": ["NR"]}}))
    lines.write_text(f"{sql}\n\n{next(iter(NONE))}\n")
    assert [item.reach for item in verdicts(queries, keys)] == ["one call", "none"]
    assert [item.id for item in verdicts(lines)] == ["1", "3"]
    assert report(verdicts(queries, keys)).startswith("2 statements\n\n    1 one call\n")
    main(str(queries), str(keys))
    assert "1 none: join-by-value: 2" in capsys.readouterr().out


def test_each_reach_of_the_table_is_known() -> None:
    assert {form.reach for form in FORMS.values()} == set(REACHES)
