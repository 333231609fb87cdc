"""Two admins with two endpoints, one of them over a database of its own: in the project with the packages."""

import pytest
from django.apps import apps

if not apps.is_installed("tests.packages_project.shelf"):
    pytest.skip("needs the settings of the packages project", allow_module_level=True)

from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import Permission, User
from django.db import connections

from mcp_django.testing import MCPClient, MCPError
from tests.packages_project.archive.models import Box, BoxSize, Label, Paper
from tests.packages_project.shelf.models import Note, Parcel

pytestmark = pytest.mark.django_db(databases=["default", "archive"])

PATH = "/archive-mcp"


@pytest.fixture
def root():
    return User.objects.create_superuser("root", "root@example.com", "root")


@pytest.fixture
def client(root):
    return MCPClient(root, path=PATH)


@pytest.fixture
def boxes(root):
    """Two boxes with papers and one that the manager hides; keys differ from those of the other database."""
    for number in range(7):
        Parcel.objects.create(name=f"Parcel {number}")
    shared = {"owner": root, "parcel": Parcel.objects.first(), "note": Note.objects.create(title="A note")}
    found = [Box.objects.create(name=f"Box {number}", **shared) for number in range(2)]
    Box.objects.create(name="Gone", deleted=True)
    for number in range(3):
        Paper.objects.create(box=found[0], title=f"Paper {number}").tags.add(Label.objects.create(name=f"L{number}"))
    return found


@pytest.fixture
def view(boxes):
    with connections["archive"].cursor() as cursor:
        cursor.execute(
            "CREATE VIEW archive_boxsize AS SELECT box_id, COUNT(*) AS papers FROM archive_paper GROUP BY box_id"
        )


def ok(result):
    assert not result.is_error, result.text
    return result.structured


def rows_of(client, model, **arguments):
    return ok(client.call("query_records", model=model, **arguments))["rows"]


def user_with(*codenames, **values):
    user = User.objects.create_user("someone", password="someone", **values)
    user.user_permissions.set(Permission.objects.filter(codename__in=codenames))
    return user


# Reads


def test_rows_are_read_from_the_database_of_their_table(client, root, boxes):
    parcel, note = [Parcel.objects.first().pk, "Parcel 0"], [Note.objects.first().pk, "A note"]
    found = rows_of(client, "archive.box", ordering=["id"])
    assert [row[1:] for row in found] == [
        ["Box 0", [root.pk, None], parcel, note, 3],
        ["Box 1", [root.pk, None], parcel, note, 0],
    ]


def test_labels_of_the_other_database_are_read_there(client, boxes):
    parcel, note = Parcel.objects.first(), Note.objects.first()
    shown = ok(client.call("get_record", model="archive.box", pk=boxes[0].pk))["fields"]
    assert (shown["parcel"], shown["note"]) == ([parcel.pk, "Parcel 0"], [note.pk, "A note"])
    found = rows_of(client, "archive.box", fields=["note"], ordering=["id"])
    assert found[0][-1] == [note.pk, "A note"]
    found = rows_of(client, "archive.paper", ordering=["id"], fields=["title", "box", "tags"])
    assert found[0][1:] == ["Paper 0", [boxes[0].pk, "Box 0"], [[Label.objects.first().pk, "L0"]]]


def test_row_127_rows_that_the_manager_hides_are_not_there(client, boxes):
    hidden = Box.all_rows.get(deleted=True)
    assert client.call("get_record", model="archive.box", pk=hidden.pk).is_error
    assert "Gone" not in client.call("query_records", model="archive.box").text
    Paper.objects.create(box=hidden, title="Secret")
    assert "Gone" not in client.call("query_records", model="archive.paper", fields=["title", "box"]).text


@pytest.mark.parametrize("arguments", [{"search": "Box"}, {"filters": {"name__startswith": "Box"}}, {"count": True}])
def test_filters_and_search_run_there_too(client, boxes, arguments):
    assert len(rows_of(client, "archive.box", **arguments)) == 2


def test_groups_are_counted_there(client, boxes):
    found = client.call("aggregate_records", model="archive.paper", aggregates=["count"], group_by=["box"])
    assert ok(found)["rows"][0][-1] == 3


@pytest.mark.usefixtures("view")
def test_row_126_a_view_of_the_database_is_read_like_a_table(client, boxes):
    found = rows_of(client, "archive.boxsize", filters={"papers__gt": 1}, ordering=["-papers"])
    assert found == [[[boxes[0].pk, "Box 0"], 3]]
    assert BoxSize.objects.get().papers == 3


# Writes


def test_rows_are_written_to_the_database_of_their_table(client, boxes):
    values = {"name": "New", "parcel": Parcel.objects.first().pk}
    made = ok(client.call("create_record", model="archive.box", values=values))
    assert Box.objects.using("archive").get(pk=made["pk"]).name == "New"
    ok(client.call("update_record", model="archive.box", pk=made["pk"], values={"name": "Newer"}))
    assert Box.objects.get(pk=made["pk"]).name == "Newer"
    assert LogEntry.objects.filter(object_id=str(made["pk"])).count() == 2


def test_a_failure_undoes_what_was_written_to_either_database(client, boxes, monkeypatch):
    def fail(*args, **kwargs):
        raise RuntimeError("the history is full")

    monkeypatch.setattr(LogEntry.objects, "log_actions", fail)
    told = client.call("update_record", model="archive.box", pk=boxes[0].pk, values={"name": "Changed"})
    assert told.is_error
    assert Box.objects.get(pk=boxes[0].pk).name == "Box 0"


def test_a_row_is_deleted_with_what_depends_on_it(client, boxes):
    pk = boxes[0].pk
    token = ok(client.call("delete_record", model="archive.box", pk=pk))["confirm_token"]
    ok(client.call("delete_record", model="archive.box", pk=pk, confirm_token=token))
    assert not Box.objects.filter(pk=pk).exists()
    assert not Paper.objects.exists()
    assert Parcel.objects.count() == 7


# Two admins


def test_one_model_has_the_rules_of_each_admin_on_its_own_endpoint(root, client, boxes):
    default = MCPClient(root)
    assert len(rows_of(default, "shelf.parcel")) == 7
    assert [row[-1] for row in rows_of(client, "shelf.parcel")] == ["Parcel 0"]
    first = Parcel.objects.first().pk
    ok(default.call("update_record", model="shelf.parcel", pk=first, values={"name": "Parcel 10"}))
    assert client.call("update_record", model="shelf.parcel", pk=first, values={"name": "x"}).is_error
    other = Parcel.objects.get(name="Parcel 1").pk
    assert client.call("get_record", model="shelf.parcel", pk=other).is_error


def test_row_125_models_of_one_admin_are_not_there_on_the_other_endpoint(root, client, boxes):
    default = MCPClient(root)
    assert default.call("query_records", model="archive.box").is_error
    assert client.call("query_records", model="shelf.novel").is_error
    assert "archive." not in default.call("list_models").text


def test_row_139_each_admin_says_who_comes_in(boxes):
    guest = user_with("view_box")
    assert len(rows_of(MCPClient(guest, path=PATH), "archive.box")) == 2
    assert MCPClient(guest).tools() == []
    clerk = User.objects.create_user("clerk", password="clerk", is_staff=True)
    clerk.user_permissions.set(Permission.objects.filter(codename="view_parcel"))
    assert MCPClient(clerk, path=PATH).tools() == []


def test_a_token_for_one_endpoint_is_none_for_the_other(root, client):
    client.path = "/mcp"
    with pytest.raises(MCPError, match="401"):
        client.tools()
