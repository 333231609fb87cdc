"""Runs of exports: what they write and count, and that nothing is left of one that ends on its way."""

from typing import Any

import pytest
from django.core.files.storage import storages

from mcp_django.exceptions import CallRefused, Cancelled, ToolError
from mcp_django.exports import export_runs, questions
from mcp_django.exports.export_runs import ExportRun
from mcp_django.exports.file_formats import CSVFile
from mcp_django.exports.kept_exports import KeptExport
from mcp_django.exports.questions import Question
from mcp_django.exports.xlsx_files import XLSXFile
from mcp_django.operating.daily_budgets import Budgets
from mcp_django.orm.access import access_of
from mcp_django.orm.tool_arguments import Arguments
from tests.factories import make_book, make_superuser
from tests.tool_calls import request_of

pytestmark = [pytest.mark.postgresql, pytest.mark.django_db]

MEMORY = {"BACKEND": "django.core.files.storage.InMemoryStorage"}
ROWS = 5


@pytest.fixture(autouse=True)
def storage(settings: Any, monkeypatch: Any) -> Any:
    monkeypatch.setattr(questions, "SIZES", (1, 2, 2))
    settings.STORAGES = {**settings.STORAGES, "mcp_exports": MEMORY}
    return storages["mcp_exports"]


@pytest.fixture
def request_() -> Any:
    for number in range(ROWS):
        make_book(f"Book {number}")
    request = request_of(make_superuser(), resource="http://testserver/mcp")
    request.mcp.record.method = "tools/call"
    return request


def run_of(request: Any, format: str = "csv", shown: int = 10, **arguments: Any) -> ExportRun:
    question = Question.read(access_of(request).get_model("testapp.book"), Arguments(arguments))
    return ExportRun(request, question, format, shown)


def is_empty(storage: Any) -> bool:
    """Return whether nothing is left, neither a file nor the row of one."""
    try:
        files = storage.listdir("mcp_exports")[1]
    except FileNotFoundError:
        files = []
    return not files and not KeptExport.rows().exists()


def test_a_run_counts_its_rows_and_shows_the_first(request_: Any) -> None:
    run = run_of(request_, shown=3)
    kept = run.run(None)
    assert (kept.row.rows, run.rows, len(run.first_rows)) == (ROWS, ROWS, 3)
    assert request_.mcp.record.rows_read == ROWS
    assert kept.row.size == len(kept.open().read())


def test_progress_is_told_after_each_page(request_: Any, monkeypatch: Any) -> None:
    told: list[Any] = []
    monkeypatch.setattr(type(request_.mcp), "progress", lambda self, *about: told.append(about[:2]))
    run_of(request_).run(ROWS)
    # Before them, it has read the keys of all rows.
    assert [about for about in told if about[0]] == [(2, ROWS), (4, ROWS), (5, ROWS)]


def test_the_end_of_a_budget_ends_the_run(request_: Any, settings: Any, storage: Any) -> None:
    settings.MCP_DJANGO = {**settings.MCP_DJANGO, "BUDGETS": {"user": {"rows_read": 3}}}
    request_.mcp.record.kind = "person"
    request_.mcp.record.user = str(request_.user.pk)
    with pytest.raises(CallRefused, match="rows to read"):
        run_of(request_).run(None)
    assert is_empty(storage)
    # What it has read is spent.
    Budgets(request_).spend()
    with pytest.raises(CallRefused):
        Budgets(request_).check()


def test_the_bytes_of_a_file_are_taken_from_the_budget(request_: Any, settings: Any, storage: Any) -> None:
    settings.MCP_DJANGO = {**settings.MCP_DJANGO, "BUDGETS": {"user": {"bytes": 10}}}
    record = request_.mcp.record
    record.kind = "person"
    record.user = str(request_.user.pk)
    for format in ("csv", "jsonl", "xlsx"):
        with pytest.raises(CallRefused, match="bytes"):
            run_of(request_, format).run(None)
        assert is_empty(storage)


def test_the_bytes_and_rows_of_a_file_are_taken_once(request_: Any, settings: Any) -> None:
    settings.MCP_DJANGO = {**settings.MCP_DJANGO, "BUDGETS": {"user": {"bytes": 1_000_000, "rows_read": 100}}}
    record = request_.mcp.record
    record.kind = "person"
    record.user = str(request_.user.pk)
    kept = run_of(request_).run(None)
    record.size = 7
    Budgets(request_).spend()
    left = Budgets(request_).left()["user"]
    assert left == {"rows_read": 100 - ROWS, "bytes": 1_000_000 - kept.row.size - 7}


def test_exports_that_run_at_the_same_time_share_a_budget(request_: Any, settings: Any, storage: Any) -> None:
    settings.MCP_DJANGO = {**settings.MCP_DJANGO, "BUDGETS": {"user": {"rows_read": ROWS + 1}}}
    other = request_of(request_.user, request_.mcp.site, resource="http://testserver/mcp")
    for request in (request_, other):
        request.mcp.record.kind = "person"
        request.mcp.record.method = "tools/call"
        request.mcp.record.user = str(request_.user.pk)
    runs = [run_of(request) for request in (request_, other)]
    write = CSVFile.write

    def write_and_let_the_other_one_run(self: Any, rows: Any) -> int:
        if len(runs) == 2:
            with pytest.raises(CallRefused, match="rows to read"):
                runs.pop().run(None)
        return write(self, rows)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(CSVFile, "write", write_and_let_the_other_one_run)
        with pytest.raises(CallRefused, match="rows to read"):
            runs[0].run(None)
    assert is_empty(storage)
    assert sum(request.mcp.record.rows_read for request in (request_, other)) <= ROWS + 1 + 2 * max(questions.SIZES)


def test_a_run_that_is_cancelled_leaves_nothing(request_: Any, storage: Any, monkeypatch: Any) -> None:
    write = CSVFile.write

    def cancel(self: Any, rows: Any) -> int:
        request_.mcp.cancelled = True
        return write(self, rows)

    monkeypatch.setattr(CSVFile, "write", cancel)
    with pytest.raises(Cancelled):
        run_of(request_).run(None)
    assert is_empty(storage)
    assert request_.mcp.record.rows_read == 2


def test_a_file_that_grows_too_large_leaves_nothing(request_: Any, storage: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr(KeptExport, "MAX_BYTES", 60)
    with pytest.raises(ToolError, match="larger than"):
        run_of(request_).run(None)
    assert is_empty(storage)


def test_more_rows_than_xlsx_holds_are_refused_before_they_are_read(request_: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr(XLSXFile, "max_rows", ROWS - 1)
    with pytest.raises(ToolError, match="Ask for csv"):
        run_of(request_, "xlsx").check_size()
    assert request_.mcp.record.rows_read == 0
    run_of(request_).check_size()
    run_of(request_, "xlsx", filters={"title": "Book 1"}).check_size()


def test_more_rows_than_xlsx_holds_are_refused_on_the_way_too(request_: Any, storage: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr(XLSXFile, "max_rows", ROWS - 1)
    with pytest.raises(ToolError, match="Ask for csv"):
        run_of(request_, "xlsx").run(None)
    assert is_empty(storage)


def test_a_storage_that_fails_leaves_no_row(request_: Any, storage: Any, monkeypatch: Any) -> None:
    def fail(*args: Any, **options: Any) -> str:
        raise OSError("disk full")

    monkeypatch.setattr(type(storage), "save", fail)
    with pytest.raises(OSError, match="disk full"):
        run_of(request_).run(None)
    assert is_empty(storage)


def test_an_export_that_was_deleted_on_the_way_leaves_no_file(request_: Any, storage: Any, monkeypatch: Any) -> None:
    write = CSVFile.write

    def delete(self: Any, rows: Any) -> int:
        KeptExport.rows().all().delete()
        return write(self, rows)

    monkeypatch.setattr(CSVFile, "write", delete)
    with pytest.raises(ToolError, match=export_runs.GONE):
        run_of(request_).run(None)
    assert is_empty(storage)
