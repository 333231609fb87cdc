import pytest
from django.db import connection

from mcp_django.differences.statements import Statement, table_name


@pytest.mark.parametrize(
    ("sql", "table"),
    [
        ('INSERT INTO "shop_order" ("id") VALUES (%s) RETURNING "shop_order"."id"', ("shop_order",)),
        ('INSERT OR IGNORE INTO "shop_order" ("id") VALUES (%s)', ("shop_order",)),
        ("INSERT IGNORE INTO `shop_order` (`id`) VALUES (%s)", ("shop_order",)),
        (
            'INSERT INTO "shop_order" ("id") VALUES (%s) ON CONFLICT("id") DO UPDATE SET "id" = 1',
            ("shop_order",),
        ),
        ("REPLACE INTO `shop_order` VALUES (1)", ("shop_order",)),
        ('UPDATE "shop_order" SET "name" = %s WHERE "shop_order"."id" = %s', ("shop_order",)),
        ('DELETE FROM "shop_order" WHERE "shop_order"."id" IN (%s)', ("shop_order",)),
        ("DELETE `shop_order` FROM `shop_order` INNER JOIN `shop_line` ON (`a` = `b`)", ("shop_order",)),
        ('update "Sales"."Shop Order" set x = 1', ("sales", "shop order")),
        ('INSERT INTO "a""b" VALUES (1)', ('a"b',)),
        ('INSERT INTO "a;b" VALUES (1)', ("a;b",)),
        ("delete from shop_order", ("shop_order",)),
        ("/* traced */ DELETE FROM shop_order -- ; COMMIT", ("shop_order",)),
        ("INSERT INTO shop_order VALUES ('it''s; COMMIT')", ("shop_order",)),
    ],
)
def test_the_table_of_a_write_is_read(sql, table):
    assert [(one.table, one.reads, one.ends) for one in Statement.read(sql)] == [(table, False, False)]


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT 1",
        '(SELECT "update" FROM "delete") UNION (SELECT 1)',
        'SELECT * FROM "shop_order" FOR UPDATE OF "shop_order" NOWAIT',
        "SELECT * FROM t FOR NO KEY UPDATE",
        "SELECT REPLACE(a, 'DELETE FROM b', '') FROM t",
        "WITH RECURSIVE tree AS (SELECT 1) SELECT * FROM tree",
        "SAVEPOINT s1",
        "RELEASE SAVEPOINT s1",
        "ROLLBACK TO SAVEPOINT s1",
        "SET CONSTRAINTS ALL IMMEDIATE",
        "PRAGMA foreign_key_check",
    ],
)
def test_a_query_writes_nothing(sql):
    assert [(one.table, one.reads, one.ends) for one in Statement.read(sql)] == [(None, True, False)]


@pytest.mark.parametrize(
    "sql",
    [
        "WITH gone AS (DELETE FROM a RETURNING *) INSERT INTO b SELECT * FROM gone",
        "MERGE INTO a USING b ON a.id = b.id WHEN MATCHED THEN DELETE",
        "UPDATE a INNER JOIN b ON a.id = b.id SET a.x = 1",
        "CREATE TABLE a (id int)",
        "CALL rebuild()",
        "?",
    ],
)
def test_a_statement_that_is_not_understood_is_no_query(sql):
    assert [(one.table, one.reads, one.ends) for one in Statement.read(sql)] == [(None, False, False)]


@pytest.mark.parametrize(
    "sql", ["COMMIT", "begin", "END", "ROLLBACK", "START TRANSACTION", "SET autocommit = 1", "PREPARE TRANSACTION 'x'"]
)
def test_the_end_of_a_transaction_is_seen(sql):
    assert [one.ends for one in Statement.read(sql)] == [True]


def test_each_statement_of_a_text_is_read():
    first, second, third = Statement.read("UPDATE a SET x = ';' WHERE y = 1; DELETE FROM b; COMMIT;")
    assert (first.table, second.table, third.ends) == (("a",), ("b",), True)
    assert "x = " in first.assigned
    assert "y" not in first.assigned


def test_psycopg_takes_bytes_and_objects_that_make_sql():
    class Composed:
        def as_string(self, context):
            return "DELETE FROM a"

    texts = [Statement.text(sql, connection) for sql in ("SELECT 1", b"SELECT 2", Composed())]
    assert texts == ["SELECT 1", "SELECT 2", "DELETE FROM a"]


def test_the_names_of_one_table_are_equal():
    assert table_name('"Sales"."t"') == table_name("sales.t") == table_name("`sales`.[T]")
