import json

import pytest
from django.contrib import admin
from django.contrib.admin.models import ADDITION, CHANGE, DELETION, LogEntry
from django.contrib.auth.models import AnonymousUser

from mcp_django import site
from mcp_django.context import Client
from mcp_django.tools.history import author, log_action, log_addition, log_change, log_deletion
from tests.factories import make_author, make_book, make_superuser
from tests.testapp.models import Author
from tests.writing import history_page, request_of

pytestmark = pytest.mark.django_db


@pytest.fixture
def root():
    return request_of(make_superuser())


@pytest.mark.parametrize(
    ("name", "client_id", "shown"),
    [
        ("Claude", "c-1", "Claude (c-1), tool"),
        ("Claude", "", "Claude, tool"),
        ("", "c-1", "c-1, tool"),
        ("", "", "tool"),
        ("a\r\n\u202eb\u200b\x00", "", "ab, tool"),
        ("x" * 500, "y" * 500, f"{'x' * 80} ({'y' * 80}), tool"),
    ],
)
def test_who_wrote_is_the_client_and_the_tool(name, client_id, shown):
    assert author(request_of(None, client=Client(name), client_id=client_id), "tool") == shown


def test_entries_have_the_admins_structure(root):
    exposure, row = site.exposures[Author], make_author("Ada")
    log_addition(root, exposure, row, [{"added": {}}], "create_record")
    log_change(root, exposure, row, [{"changed": {"fields": ["Name"]}}], "update_record")
    log_change(root, exposure, row, [], "update_record")
    log_change(root, exposure, row, "Changed by hand.", "update_record")
    log_deletion(root, exposure, row, "delete_record")
    entries = LogEntry.objects.order_by("pk")
    assert [(entry.action_flag, entry.get_change_message()) for entry in entries] == [
        (ADDITION, "Added. Added via MCP “Claude (client-1), create_record”."),
        (CHANGE, "Changed Name. Changed via MCP: Claude (client-1), update_record."),
        (CHANGE, "Changed via MCP: Claude (client-1), update_record."),
        (CHANGE, "Changed by hand. (via MCP: Claude (client-1), update_record)"),
        (DELETION, "Deleted via MCP “Claude (client-1), delete_record”."),
    ]
    assert json.loads(entries[1].change_message)[0] == {"changed": {"fields": ["Name"]}}


def test_the_history_page_shows_them(root, client):
    row = make_author("Ada")
    log_action(root, [row], "refund")
    assert "Changed via MCP: Claude (client-1), refund." in history_page(client, root.user, row)


def test_many_rows_cost_one_query(root, django_assert_num_queries):
    rows = [make_book(f"Book {number}") for number in range(20)]
    log_action(root, rows[:1], "publish")
    with django_assert_num_queries(1):
        log_action(root, rows, "publish")
    assert LogEntry.objects.count() == 21


def test_a_model_admin_that_logs_in_its_own_way_is_left_alone(root, monkeypatch):
    exposure, row = site.exposures[Author], make_author()
    logged = []
    monkeypatch.setattr(admin.site.get_model_admin(Author), "log_deletions", lambda request, objs: logged.extend(objs))
    log_deletion(root, exposure, row, "delete_record")
    assert logged == [row]
    assert not LogEntry.objects.exists()


def test_there_is_no_history_without_a_user_or_without_the_admin(root, settings):
    row = make_author()
    log_action(request_of(AnonymousUser()), [row], "refund")
    settings.INSTALLED_APPS = [name for name in settings.INSTALLED_APPS if name != "django.contrib.admin"]
    log_action(root, [row], "refund")
    log_addition(root, site.exposures[Author], row, [], "create_record")
    log_change(root, site.exposures[Author], row, [], "update_record")
    log_deletion(root, site.exposures[Author], row, "delete_record")
    assert not LogEntry.objects.exists()
