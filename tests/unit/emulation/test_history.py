import json

import pytest
from django.contrib import admin
from django.contrib.admin.models import ADDITION, CHANGE, DELETION, LogEntry
from django.contrib.auth.models import AnonymousUser

from mcp_django import AdminExposure, MCPSite, ModelExposure, site
from mcp_django.context.call_restrictions import Narrowing
from mcp_django.context.request import Client
from mcp_django.emulation.history import Journal, made_by
from mcp_django.tools.get_record import GetRecord
from mcp_django.tools.write_tools import UpdateRecord
from tests.factories import make_author, make_book, make_superuser, make_user
from tests.testapp.models import Author, Book, Profile
from tests.tool_calls import call, history_page, request_of

pytestmark = [pytest.mark.postgresql, pytest.mark.one_server, pytest.mark.django_db]


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
    assert Journal(request_of(None, client=Client(name), client_id=client_id), "tool").author == shown


def test_entries_have_the_admins_structure(root):
    exposure, row = site.exposures[Author], make_author("Ada")
    Journal(root, "create_record").added(exposure, row, [{"added": {}}])
    Journal(root, "update_record").changed(exposure, row, [{"changed": {"fields": ["Name"]}}])
    Journal(root, "update_record").changed(exposure, row, [])
    Journal(root, "update_record").changed(exposure, row, "Changed by hand.")
    Journal(root, "delete_record").deletes(exposure, [row])
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
    Journal(root, "refund").acted([row], [()] * len([row]))
    assert "Changed via MCP: Claude (client-1), refund." in history_page(client, root.user, row)


def test_many_rows_cost_one_query(root, django_assert_num_queries):
    rows = [make_book(f"Book {number}") for number in range(20)]
    Journal(root, "publish").acted(rows[:1], [()] * len(rows[:1]))
    with django_assert_num_queries(1):
        Journal(root, "publish").acted(rows, [()] * len(rows))
    assert LogEntry.objects.count() == 21


def test_a_model_admin_that_logs_in_its_own_way_is_left_alone(root, monkeypatch):
    exposure, row = site.exposures[Author], make_author()
    logged = []
    monkeypatch.setattr(admin.site.get_model_admin(Author), "log_deletions", lambda request, objs: logged.extend(objs))
    Journal(root, "delete_record").deletes(exposure, [row])
    assert logged == [row]
    assert not LogEntry.objects.exists()


def test_there_is_no_history_without_a_user_or_without_the_admin(root, settings):
    row = make_author()
    Journal(request_of(AnonymousUser()), "refund").acted([row], [()] * len([row]))
    settings.INSTALLED_APPS = [name for name in settings.INSTALLED_APPS if name != "django.contrib.admin"]
    Journal(root, "refund").acted([row], [()] * len([row]))
    Journal(root, "create_record").added(site.exposures[Author], row, [])
    Journal(root, "update_record").changed(site.exposures[Author], row, [])
    Journal(root, "delete_record").deletes(site.exposures[Author], [row])
    assert not LogEntry.objects.exists()


# Reading


def history(request, row, **arguments):
    label = row._meta.label_lower
    return call(GetRecord(), request, model=label, pk=row.pk, history=True, **arguments)["history"]


def test_a_record_shows_its_history_as_the_admin_does_the_newest_first(root, client):
    row = make_author("Ada")
    call(UpdateRecord(), root, model="testapp.author", pk=row.pk, values={"email": "ada@example.com"})
    call(UpdateRecord(), root, model="testapp.author", pk=row.pk, values={"name": "Ada L."})
    entries = history(root, row)
    assert [entry["action"] for entry in entries] == ["changed", "changed"]
    assert [entry["user"] for entry in entries] == ["root", "root"]
    assert entries[0]["message"] == "Changed Name. Changed via MCP: Claude (client-1), update_record."
    page = history_page(client, root.user, row)
    assert all(entry["message"] in page for entry in entries)
    newest = LogEntry.objects.order_by("-pk")[0]
    assert entries[0]["time"] == newest.action_time.isoformat().replace("+00:00", "Z")
    assert "history" not in call(GetRecord(), root, model="testapp.author", pk=row.pk)


INLINE_PARTS = [
    {"added": {"name": "profile", "object": "Ada's diary"}},
    {"changed": {"name": "profile", "object": "Ada's diary", "fields": ["Biography", "Website"]}},
    {"deleted": {"name": "scanned page", "object": "1.png"}},
]


@pytest.mark.parametrize(
    ("permissions", "narrowing", "seen"),
    [
        (
            ["testapp.view_author", "testapp.view_profile"],
            None,
            "Added profile “Ada's diary”. Changed Website for profile “Ada's diary”. Deleted scanned page “1.png”.",
        ),
        (["testapp.view_author"], None, "Deleted scanned page “1.png”."),
        (
            ["testapp.view_author", "testapp.view_profile"],
            Narrowing(frozenset({"testapp.author"})),
            "Deleted scanned page “1.png”.",
        ),
    ],
    ids=["inline seen", "no permission", "call narrowed to the parent"],
)
def test_the_history_tells_of_inline_rows_and_fields_that_the_caller_sees(permissions, narrowing, seen):
    own = MCPSite(admin_site=admin.site)
    own.register(Author, AdminExposure)
    own.register(Profile, ModelExposure, fields=["website"])
    user, row = make_user("staff", *permissions), make_author("Ada")
    LogEntry.objects.log_actions(user.pk, [row], CHANGE, change_message=INLINE_PARTS)
    request = request_of(user, own, narrowing=narrowing)
    assert [entry["message"] for entry in history(request, row)] == [seen]


def test_the_history_of_a_row_is_not_that_of_another(root):
    row, other = make_author("Ada"), make_author("Ben")
    book = make_book(pk=row.pk)
    for changed in (other, book):
        Journal(root, "t").changed(site.exposures[type(changed)], changed, [])
    assert history(root, row) == []


def test_a_long_history_and_a_long_message_are_bounded(root, monkeypatch):
    monkeypatch.setattr("mcp_django.emulation.history.MAX_ENTRIES", 2)
    row = make_author("Ada")
    for number in range(3):
        Journal(root, "t").changed(site.exposures[Author], row, f"{number} " + "x" * 900)
    entries = history(root, row)
    assert [entry["message"][0] for entry in entries] == ["2", "1"]
    assert len(entries[0]["message"]) < 600


def test_row_125_who_may_not_see_the_admins_page_sees_no_history(root):
    row = make_author("Ada")
    Journal(root, "t").changed(site.exposures[Author], row, [])
    own = MCPSite("own", admin_site=admin.site)
    own.register(Author, ModelExposure, fields=["id", "name"])
    for user, seen in (
        (make_user("a", "testapp.view_author"), 1),
        (make_user("b", "testapp.change_author"), 1),
        (make_user("c", "testapp.view_author", staff=False), 0),
    ):
        assert len(history(request_of(user, own), row)) == seen


def test_row_127_a_row_that_the_admin_does_not_show_has_no_history(root):
    book = make_book(owner=root.user)
    Journal(root, "t").changed(site.exposures[Book], book, [])
    own = MCPSite("own", admin_site=admin.site)
    own.register(Book, ModelExposure, fields=["id", "title"])
    assert len(history(request_of(root.user, own), book)) == 1
    assert history(request_of(make_user("a", "testapp.view_book"), own), book) == []


def test_a_model_without_an_admin_has_no_history(root):
    own = MCPSite("own", admin_site=admin.AdminSite("empty"))
    own.register(Author, ModelExposure, fields=["id"])
    row = make_author("Ada")
    Journal(root, "t").changed(site.exposures[Author], row, [])
    assert history(request_of(root.user, own), row) == []


@pytest.mark.parametrize(
    ("message", "is_made"),
    [
        ('[{"changed": {"fields": ["Name"]}}, {"via MCP": "0", "client": "Robot", "client_id": "abc"}]', True),
        ('[{"via MCP": "0", "client": "abc", "client_id": ""}]', False),
        ('[{"via MCP": "0", "client": "Robot", "client_id": "xabc"}]', False),
        ('[{"via MCP": "0", "client_id": "abc"}, {"changed": {"fields": ["Name"]}}]', False),
        ('[{"client_id": "abc"}]', False),
        ('[{"added": {"name": "via MCP", "object": "Robot (abc), create_record"}}]', False),
        ("Robot (abc), create_record", False),
        ('{"via MCP": "0", "client_id": "abc"}', False),
        ("[]", False),
        ("", False),
    ],
)
def test_who_made_an_entry_is_read_from_its_last_part(message: str, is_made: bool) -> None:
    assert made_by(message, "abc") is is_made
    assert not made_by(message, "")


def test_what_was_made_is_known_by_the_id_whatever_the_client_calls_itself() -> None:
    row, user = make_author("Ada"), make_superuser()
    for name in ('Robot", "client_id": "other', "Robot (other)", ""):
        request = request_of(user, client=Client(name), client_id="abc")
        Journal(request, "create_record").added(site.exposures[Author], row, [{"added": {}}])
        Journal(request, "delete_record").deletes(site.exposures[Author], [row])
    messages = LogEntry.objects.values_list("change_message", flat=True)
    assert [(made_by(message, "abc"), made_by(message, "other")) for message in messages] == [(True, False)] * 6
