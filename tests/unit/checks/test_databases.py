from typing import Any

import pytest
from django.core import checks
from django.db import connection
from django.db.migrations.recorder import MigrationRecorder
from django.test import override_settings

from mcp_django import MCPSite
from mcp_django.apps import check
from mcp_django.checks.databases import check_engines, check_migrations, check_uuids
from tests.configured import configured
from tests.testapp.models import Book, Shelf

pytestmark = [pytest.mark.postgresql, pytest.mark.django_db]


def found(**options: object) -> list[str]:
    every = checks.run_checks(tags=[checks.Tags.database], databases=["default"], **options)
    return [str(message.id) for message in every if str(message.id).startswith("mcp_django.")]


@pytest.mark.parametrize(("zone", "expected"), [("Europe/Berlin", ["mcp_django.W166"]), ("UTC", [])])
def test_missing_tables_of_time_zones_are_found(
    zone: str, expected: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with override_settings(TIME_ZONE=zone):
        assert found() == []
        monkeypatch.setattr(connection.features, "has_zoneinfo_database", False)
        assert found() == expected
        with configured(PAGE_SIZE=-1):
            assert found() == []


@pytest.fixture
def own_site(monkeypatch: pytest.MonkeyPatch) -> None:
    site = MCPSite()
    site.register(Book, fields=["title", "uuid"])
    site.register(Shelf, fields=["id"])
    monkeypatch.setattr("mcp_django.checks.databases.all_sites", lambda: [site])


@pytest.mark.usefixtures("own_site")
@pytest.mark.skipif(connection.vendor != "mysql", reason="other databases have no such columns")
def test_columns_of_uuids_that_are_text_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    if not connection.features.has_native_uuid_field:
        pytest.skip("MySQL has no such columns")
    assert [*check_uuids("default")] == []
    described = connection.introspection.get_table_description

    def old(cursor: object, table: str) -> list[object]:
        columns = described(cursor, table)
        return [item._replace(data_type="char") if item.data_type == "uuid" else item for item in columns]

    monkeypatch.setattr(connection.introspection, "get_table_description", old)
    [message] = [item for item in check_uuids("default") if item.obj is Book]
    assert message.id == "mcp_django.W167"
    assert "testapp.Book.uuid is a char in the database" in message.msg
    monkeypatch.setattr(connection.introspection, "table_names", lambda **options: [])
    assert [*check_uuids("default")] == []


@pytest.mark.usefixtures("own_site")
def test_tables_without_transactions_are_found(monkeypatch: pytest.MonkeyPatch, shelves_cannot_undo: None) -> None:
    [message] = check_engines("default")
    assert (message.id, message.obj) == ("mcp_django.W168", Shelf)
    assert message.msg.endswith("has the engine MyISAM: a write to it cannot be undone if it fails halfway.")
    assert message.hint == "ALTER TABLE testapp_shelf ENGINE = InnoDB"
    monkeypatch.setattr(connection.introspection, "table_names", lambda: [])
    assert [*check_engines("default")] == []


@pytest.mark.usefixtures("own_site")
def test_tables_with_transactions_are_not_named() -> None:
    assert [*check_engines("default")] == []


def test_migrations_that_were_not_applied_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    assert [*check_migrations("default")] == []
    applied = MigrationRecorder(connection).migration_qs.filter(app="mcp_django")
    applied.filter(name__gte="0003").delete()
    [message] = check_migrations("default")
    assert message.id == "mcp_django.W171"
    assert message.msg.startswith("Not migrated: mcp_django 0003_change")
    assert message.hint == "Run manage.py migrate."
    assert found() == ["mcp_django.W171"]
    # They are in no other database, and about to be applied by this command.
    assert [*check_migrations("other")] == []
    monkeypatch.setattr("sys.argv", ["manage.py", "migrate"])
    assert found() == []


def test_a_plain_check_does_not_ask_the_database_for_migrations(django_assert_num_queries: Any) -> None:
    MigrationRecorder(connection).migration_qs.filter(app="mcp_django").delete()
    with django_assert_num_queries(0):
        assert "mcp_django.W171" not in [message.id for message in check()]
