"""The admin's history as a model: what the pages of rows tell of their history, and nothing else."""

import json
from datetime import timedelta
from typing import Any

import pytest
from django.contrib import admin
from django.contrib.admin.models import ADDITION, CHANGE, DELETION, LogEntry
from django.contrib.contenttypes.models import ContentType
from django.db import connection
from django.db.models import Model, QuerySet
from django.http import HttpRequest
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from mcp_django import MCPSite, ModelExposure
from mcp_django.context.request import Client, MCPRequest
from mcp_django.emulation.history_model import HistoryRows
from mcp_django.tools.aggregate_records import AggregateRecords
from mcp_django.tools.describe_model import DescribeModel
from mcp_django.tools.get_record import GetRecord
from mcp_django.tools.list_models import ListModels
from mcp_django.tools.query_records import QueryRecords
from mcp_django.tools.write_tools import CreateRecord, DeleteRecord, UpdateRecord
from tests.factories import make_author, make_superuser, make_user
from tests.testapp.models import Author, Section, Tag
from tests.tool_calls import call, refusal, request_of

pytestmark = [pytest.mark.postgresql, pytest.mark.one_server, pytest.mark.django_db]
HISTORY = {"model": "admin.logentry"}
SCOPES = frozenset({"mcp:read", "mcp:write"})
QUERY, TOTALS = QueryRecords(), AggregateRecords()


class AuthorAdmin(admin.ModelAdmin):
    fields = ["name", "email"]
    search_fields = ["name"]


class SomeAuthors(AuthorAdmin):
    def get_queryset(self, request: HttpRequest) -> QuerySet[Author]:
        return super().get_queryset(request).exclude(name="Hidden")


def site_of(author: type[Any] = AuthorAdmin, **options: Any) -> MCPSite:
    admin_site = admin.AdminSite("of its own")
    admin_site.register(Author, author, **options)
    admin_site.register([Section, Tag])
    return MCPSite("history", admin_site=admin_site)


def reader(user: Any, site: MCPSite | None = None, client: str = "Claude") -> MCPRequest:
    return request_of(user, site or site_of(), scopes=SCOPES, client=Client(client, "1"))


def entry(user: Any, row: Model, message: Any, *, flag: int = CHANGE, days: int = 0) -> LogEntry:
    made = LogEntry.objects.create(
        user=user,
        content_type=ContentType.objects.get_for_model(row),
        object_id=str(row.pk),
        object_repr=f"then: {row}",
        action_flag=flag,
        change_message=message if isinstance(message, str) else json.dumps(message),
    )
    LogEntry.objects.filter(pk=made.pk).update(action_time=timezone.now() - timedelta(days=days))
    return made


def changed(*names: str) -> list[Any]:
    return [{"changed": {"fields": list(names)}}]


def by(client: str, client_id: str, tool: str) -> list[Any]:
    """The end of a message, as the app writes it."""
    call = {"via MCP": "0" * 32, "tool": tool, "client": client, "client_id": client_id}
    return [*changed(f"via MCP: {client} ({client_id}), {tool}"), call]


def rows(request: MCPRequest, **arguments: Any) -> list[list[Any]]:
    return call(QUERY, request, **HISTORY, **arguments)["rows"]


@pytest.fixture
def root() -> MCPRequest:
    return reader(make_superuser())


def test_models_find_it(root: MCPRequest) -> None:
    make_author()
    assert "admin.logentry" in str(call(ListModels(), root, query="history"))
    told = call(DescribeModel(), root, **HISTORY)
    assert all(name in str(told) for name in ("time", "user", "action", "object", "changed", "client", "tool"))
    assert "added | changed | deleted" in str(call(DescribeModel(), root, **HISTORY, detail=True))


def test_who_changed_what_when_and_through_what(root: MCPRequest) -> None:
    row = make_author("Ada")
    call(UpdateRecord(), root, model="testapp.author", pk=row.pk, values={"email": "ada@example.com"})
    call(CreateRecord(), reader(root.user, client='Zoë "K", 2 (beta)'), model="testapp.tag", values={"name": "new"})
    entry(root.user, row, changed("Name"))
    shown = call(
        QUERY,
        root,
        **HISTORY,
        fields=["time", "user", "action", "model", "object", "label", "changed", "client", "tool"],
    )
    assert [line[2:] for line in shown["rows"]] == [
        ["root", "changed", "testapp.author", str(row.pk), "Ada", ["Name"], None, None],
        ["root", "added", "testapp.tag", str(Tag.objects.get().pk), "new", [], 'Zoë "K", 2 (beta)', "create_record"],
        ["root", "changed", "testapp.author", str(row.pk), "Ada", ["Email"], "Claude", "update_record"],
    ]
    message = rows(root, fields=["message"], filters={"tool": "update_record"})
    assert message[0][1] == "Changed Email. Changed via MCP: Claude (client-1), update_record."
    assert shown["columns"][0] == "id"
    assert [line[1] for line in rows(root, fields=["user"], filters={"client": 'Zoë "K", 2 (beta)'})] == ["root"]
    assert len(rows(root, filters={"client__icontains": "claude"})) == 1
    assert len(rows(root, filters={"tool__isnull": True})) == 1
    record = call(GetRecord(), root, **HISTORY, pk=str(LogEntry.objects.order_by("pk")[0].pk))
    assert record["fields"]["message"] == message[0][1]
    assert record["permissions"] == {"change": False, "delete": False}


def test_everyday_questions_take_one_call(root: MCPRequest) -> None:
    ada, ben = make_author("Ada"), make_author("Ben")
    anna = make_user("anna")
    entry(anna, ada, changed("Email", "Name"), days=1)
    entry(root.user, ben, changed("Email: a@example.com → b@example.com"), days=2)
    entry(root.user, ben, changed("Name"), days=3)
    entry(anna, ben, changed("Email"), days=60)
    asked = {"filters": {"changed": "email", "time__gte": "today-30d"}, "fields": ["object", "user"]}
    assert [line[1:] for line in rows(root, **asked)] == [[str(ada.pk), "anna"], [str(ben.pk), "root"]]
    of_ben = rows(root, search="Ben", fields=["user", "changed"])
    assert [line[1:] for line in of_ben] == [["root", ["Email"]], ["root", ["Name"]], ["anna", ["Email"]]]
    assert len(rows(root, filters={"model": "testapp.author", "object": ada.pk})) == 1
    totals = call(TOTALS, root, **HISTORY, group_by=["user"], filters={"time__gte": "today-7d"})
    assert totals["rows"] == [["anna", 1], ["root", 2]]
    assert call(TOTALS, root, **HISTORY, group_by=["model", "action"])["rows"] == [["testapp.author", "changed", 4]]
    per_month = call(TOTALS, root, **HISTORY, aggregates=["count", "count_distinct:object"], group_by=["time:month"])
    assert sum(line[1] for line in per_month["rows"]) == 4
    condition = {"function": "count", "where": {"changed": "email"}, "as": "emails"}
    assert call(TOTALS, root, **HISTORY, aggregates=[condition])["rows"] == [[3]]
    assert call(TOTALS, root, **HISTORY, filters={"not": {"changed": "e-mail"}})["rows"] == [[1]]
    assert call(TOTALS, root, **HISTORY, group_by=["client"], top=1)["rows"] == [[None, 4]]


def test_pages_and_orders_are_those_of_any_model(root: MCPRequest) -> None:
    row = make_author("Ada")
    made = [entry(root.user, row, changed("Name"), days=number).pk for number in range(5)]
    first = call(QUERY, root, **HISTORY, limit=2, fields=["id"], count=True)
    second = call(QUERY, root, **HISTORY, limit=3, fields=["id"], cursor=first["next_cursor"])
    assert [line[0] for line in (*first["rows"], *second["rows"])] == made
    assert first["count"] == 5
    assert "next_cursor" not in second
    assert [line[0] for line in rows(root, ordering=["time", "user"], fields=["id"])] == made[::-1]


def test_keys_of_every_kind_are_found(root: MCPRequest) -> None:
    section = Section.objects.create(name="with a UUID")
    entry(root.user, section, changed("Name"))
    for text in (str(section.pk).upper(), section.pk.hex, "1", "", "07"):
        made = entry(root.user, section, changed("Name"))
        LogEntry.objects.filter(pk=made.pk).update(object_id=text)
    assert [line[1:] for line in rows(root, fields=["object", "label"])] == [[str(section.pk), str(section)]]


def test_what_is_gone_or_not_in_the_admin_has_no_entries(root: MCPRequest) -> None:
    gone, kept = make_author("Gone"), make_author("Kept")
    for row in (gone, kept, make_user("not exposed")):
        entry(root.user, row, "", flag=DELETION)
    gone.delete()
    assert [line[1] for line in rows(root, fields=["label"])] == ["Kept"]
    empty = MCPSite("own", admin_site=admin.AdminSite("empty"))
    empty.register(Author, ModelExposure, fields=["id"])
    assert "admin.logentry" not in str(call(ListModels(), reader(root.user, empty)))


def test_who_may_not_see_the_rows_sees_no_entries() -> None:
    site, writer = site_of(SomeAuthors), make_superuser()
    for name in ("Shown", "Hidden"):
        entry(writer, make_author(name), changed("Name"))
    entry(writer, Tag.objects.create(name="tag"), [{"added": {}}], flag=ADDITION)
    both = ["testapp.view_author", "testapp.view_tag"]
    assert [line[1] for line in rows(reader(make_user("b", *both), site), fields=["label"])] == ["tag", "Shown"]
    assert [line[1] for line in rows(reader(make_user("c", both[0]), site), fields=["label"])] == ["Shown"]
    for user in (make_user("d"), make_user("e", *both, staff=False)):
        assert "No such model" in refusal(QUERY, reader(user, site), **HISTORY)


WORLDS = (
    {1: ["Email", "Born: 1900-01-01 → 1900-01-02"], 2: ["Born"], 3: ["Name", "secret_token"]},
    {1: ["Secret token", "Email"], 2: ["Secret token: a → b", "born"], 3: ["Name"]},
)
ASKED = (
    (QUERY, {"fields": [*"id time user action model object label changed client tool message".split()], "count": True}),
    *((QUERY, {"filters": {"changed": name}}) for name in ("email", "name", ["name", "email"])),
    *((QUERY, {"filters": {"not": {"changed": name}}, "count": True}) for name in ("email", "name")),
    (QUERY, {"filters": {"client": "Claude"}}),
    (QUERY, {"filters": {"tool__icontains": "e"}, "search": "Shown"}),
    (QUERY, {"search": "Hidden"}),
    (QUERY, {"filters": {"object": "2"}}),
    *((TOTALS, {"group_by": [name]}) for name in ("user", "model", "action", "time:month", "object", "client", "tool")),
    (TOTALS, {"aggregates": ["count", "min:time", "max:time", "count_distinct:object", "count_distinct:client"]}),
    (TOTALS, {"aggregates": [{"function": "count", "where": {"changed": "email"}}], "group_by": ["model"]}),
    (TOTALS, {"group_by": ["object"], "top": 1, "search": "Shown"}),
)
REFUSED = (
    *((QUERY, {"filters": {"changed": name}}) for name in ("born", "Born", "secret_token", "Secret token", "title")),
    *((QUERY, {"filters": {name: "x"}}) for name in ("stored", "change_message", "message", "stored__icontains")),
    *((TOTALS, {"group_by": [name]}) for name in ("stored", "message", "label", "changed", "object_repr")),
    (TOTALS, {"aggregates": ["count_distinct:stored"]}),
    (QUERY, {"fields": ["stored"]}),
)


def world(number: int, writer: Any) -> None:
    """Make one of two worlds, which differ in what the reader may not see alone."""
    for model in (LogEntry, Author, Tag):
        model._default_manager.all().delete()
    shown, hidden = make_author("Shown", pk=1, secret_token=str(number)), make_author("Hidden", pk=2)
    tag = Tag.objects.create(name="not the reader's", pk=1)
    for pk, names in WORLDS[number].items():
        made = entry(writer, shown, changed(*names) + by("Claude", "c-1", "update_record"))
        LogEntry.objects.filter(pk=made.pk).update(id=pk, action_time=timezone.now().replace(2020, pk, 1, 0, 0, 0, 0))
    for row in [hidden, tag] * number:
        entry(writer, row, changed("Email", "Name") + by("Other", "", "other_tool"), days=400)


def test_worlds_that_differ_in_what_is_hidden_give_the_same_answers() -> None:
    writer, viewer = make_superuser(), make_user("viewer", "testapp.view_author")
    answers: list[list[str]] = []
    for number in (0, 1):
        world(number, writer)
        request = reader(viewer, site_of(SomeAuthors))
        found = [json.dumps(call(tool, request, **HISTORY, **asked)) for tool, asked in ASKED]
        answers.append([*found, *(refusal(tool, request, **HISTORY, **asked) for tool, asked in REFUSED)])
        assert call(QUERY, request, **HISTORY, fields=["changed"])["rows"] == [[3, ["Name"]], [2, []], [1, ["Email"]]]
        # What differs is there: who may see it does.
        assert len(rows(reader(writer, site_of(SomeAuthors)))) == 3 + number
    assert answers[0] == answers[1]
    assert not any("orn" in text or "ecret" in text for text in answers[0][: len(ASKED)])


class ByRow(AuthorAdmin):
    def has_view_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return obj is None or obj.name != "Hidden"


class ByUser(AuthorAdmin):
    mcp_history = True

    def has_view_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return request.user.is_active


class ByAnything(AuthorAdmin):
    def has_view_permission(self, *arguments: Any) -> bool:
        return True


def test_models_whose_admin_decides_row_by_row_keep_their_history_on_its_pages() -> None:
    assert [HistoryRows.leaves_out(owner) for owner in (AuthorAdmin, ByUser, ByRow, ByAnything)] == [
        False,
        False,
        True,
        True,
    ]
    assert not HistoryRows.leaves_out(SomeAuthors)
    writer = make_superuser()
    entry(writer, make_author("Hidden"), changed("Name"))
    entry(writer, Tag.objects.create(name="tag"), changed("Name"))
    assert [line[1] for line in rows(reader(writer, site_of(ByRow)), fields=["label"])] == ["tag"]
    assert [line[1] for line in rows(reader(writer, site_of(ByUser)), fields=["label"])] == ["tag", "Hidden"]


def test_names_and_labels_of_fields_are_understood(root: MCPRequest) -> None:
    row = make_author("Ada")
    entry(root.user, row, changed("Email"))
    entry(root.user, row, [{"changed": {"name": "profile", "object": "Email", "fields": ["Email"]}}])
    entry(root.user, row, changed('via MCP: x", "Email", y, tool'))
    entry(root.user, row, "Changed Email.")
    for name in ("email", "Email", "E-mail", ["email"]):
        assert len(rows(root, filters={"changed": name})) == 1
    error = refusal(QUERY, root, **HISTORY, filters={"changed": "emial"})
    assert "email" in error
    for bad in ({"a": 1}, [], None, "x" * 300, 7):
        refusal(QUERY, root, **HISTORY, filters={"changed": bad})


def test_messages_of_any_kind_are_read(root: MCPRequest) -> None:
    row = make_author("Ada")
    begin, end = '[{"tool": "t", "client": "', '", "client_id": "'
    for message in (
        "",
        "plain",
        "[]",
        "[1]",
        "{}",
        '{"changed": {"fields": ["via MCP: "',
        begin + "}]",
        begin + end + '"}]',
        end + begin,
    ):
        entry(root.user, row, message)
    found = rows(root, fields=["client", "tool", "changed", "message"], filters={"client__isnull": True})
    assert len(found) == 9
    assert "plain" in str(found)


def test_a_project_turns_it_off_or_registers_the_entries_itself() -> None:
    row, user = make_author("Ada"), make_superuser()
    entry(user, row, changed("Name"))
    off = site_of()
    off.history = False
    assert "logentry" not in str(call(ListModels(), reader(user, off)))
    own = site_of()
    own.register(LogEntry, ModelExposure, fields=["id", "object_repr"])
    assert call(QUERY, reader(user, own), **HISTORY)["columns"] == ["id", "object_repr"]


def test_nobody_writes_it(root: MCPRequest) -> None:
    made = entry(root.user, make_author("Ada"), changed("Name"))
    refusal(UpdateRecord(), root, **HISTORY, pk=made.pk, values={"user": "x"})
    refusal(CreateRecord(), root, **HISTORY, values={"user": "x"})
    refusal(DeleteRecord(), root, **HISTORY, pk=made.pk)
    assert LogEntry.objects.get().user == root.user


def test_reading_costs_no_query_for_each_entry(root: MCPRequest, django_assert_max_num_queries: Any) -> None:
    for number in range(5):
        entry(root.user, make_author(f"Author {number}"), changed("Name"))
    rows(root)
    with django_assert_max_num_queries(3):
        assert len(rows(root)) == 5


def test_the_content_types_of_all_models_are_read_at_once(root: MCPRequest) -> None:
    entry(root.user, make_author("Ada"), changed("Name"))
    ContentType.objects.clear_cache()
    with CaptureQueriesContext(connection) as asked:
        assert len(rows(root)) == 1
    table = connection.ops.quote_name("django_content_type")
    assert len([query for query in asked if f"FROM {table}" in query["sql"]]) == 1


def test_messages_are_taken_apart_for_the_entries_of_the_page_alone(root: MCPRequest) -> None:
    row = make_author("Ada")
    made = [entry(root.user, row, changed("Name"), days=number).pk for number in range(5)]
    rows(root)
    with CaptureQueriesContext(connection) as captured:
        shown = call(QUERY, root, **HISTORY, limit=2)
    assert [line[0] for line in shown["rows"]] == made[:2]
    keys, columns, *_ = [query["sql"] for query in captured if "NULLIF" in query["sql"]]
    # What finds the keys selects nothing else, so that the database computes nothing else.
    table, column, alias = map(connection.ops.quote_name, ("django_admin_log", "id", "pk"))
    assert keys.partition(" FROM ")[0] == f"SELECT {table}.{column} AS {alias}"
    assert "LIMIT 3" in keys
    assert f"{table}.{column} IN ({made[0]}, {made[1]}, {made[2]})" in columns
    assert "LIMIT 3" not in columns


@pytest.mark.parametrize("ordering", [["-client", "id"], ["tool", "-time"], ["object"], ["-user", "model", "time"]])
def test_any_order_is_kept_over_pages(root: MCPRequest, ordering: list[str]) -> None:
    ada, ben = make_author("Ada"), make_author("Ben")
    for number, name in enumerate(("Claude", "Zed", "Claude", "Ann")):
        mark = by(name, "c-1", "update_record")
        entry(root.user, (ada, ben)[number % 2], changed("Name") + mark, days=number)
        entry(root.user, ben, changed("Name"), days=number)
    found, cursor = [], ""
    for _ in range(4):
        page = call(QUERY, root, **HISTORY, limit=2, ordering=ordering, cursor=cursor)
        found += [line[0] for line in page["rows"]]
        cursor = page.get("next_cursor", "")
    assert cursor == ""
    assert found == [line[0] for line in rows(root, limit=50, ordering=ordering)]
    assert len(set(found)) == 8


def test_entries_are_compared_with_an_aggregate_over_those_that_the_caller_sees(root: MCPRequest) -> None:
    ada = make_author("Ada")
    marks = (by("Claude", "c-1", "update_record"), by("Zed", "c-2", "update_record"), [])
    made = [entry(root.user, ada, changed("Name") + mark, days=number).pk for number, mark in enumerate(marks)]
    assert [line[0] for line in rows(root, filters={"time__lte": {"min": "time"}})] == [made[2]]
    zed = {"min": "time", "where": {"client": "Zed"}}
    assert [line[0] for line in rows(root, filters={"time__gte": zed})] == made[:2]
    assert rows(root, filters={"time__lt": {"min": "time"}}) == []
