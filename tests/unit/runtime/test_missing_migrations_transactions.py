"""Missing migrations in a transaction that the database has already given up."""

import pytest
from django.db import connection
from django.db.migrations.recorder import MigrationRecorder

from mcp_django.models import Switch
from tests.unit.runtime.test_missing_migrations import browser, migrated, pages  # noqa: F401

pytestmark = [pytest.mark.postgresql, pytest.mark.django_db]


@pytest.fixture
def without_switches(transactional_db):
    """The database lacks one table and knows no migration of the app, until the test ends."""
    rows = list(MigrationRecorder(connection).migration_qs.filter(app="mcp_django").values_list("name", flat=True))
    MigrationRecorder(connection).migration_qs.filter(app="mcp_django").delete()
    with connection.schema_editor() as editor:
        editor.delete_model(Switch)
    yield
    with connection.schema_editor() as editor:
        editor.create_model(Switch)
    for name in rows:
        MigrationRecorder(connection).record_applied("mcp_django", name)


@pytest.mark.parametrize("atomic", [False, True])
def test_in_a_transaction_that_has_failed_they_are_named_too(without_switches, atomic, monkeypatch):
    monkeypatch.setitem(connection.settings_dict, "ATOMIC_REQUESTS", atomic)
    # Django cannot check the odd fields of other tests on PostgreSQL.
    monkeypatch.setattr("mcp_django.console.health_checks_page.ProjectChecks.system_checks", lambda checks: [])
    client = browser()
    for path in pages():
        answer = client.get(path)
        assert answer.status_code in (200, 302, 404), path
        assert answer.status_code != 200 or "Not migrated: mcp_django 0001_initial" in answer.text, path
