"""``export_records``: any question of ``query_records`` or ``aggregate_records`` as a file for a person.

It is offered only where the project has a storage for exports: ``STORAGES["mcp_exports"]``.
"""

from collections.abc import Mapping
from typing import Any, Final

from ..conf import settings
from ..context.request import MCPRequest
from ..context.tool_results import ToolResult
from ..differences.kept_changes import KeptChange
from ..exports.export_runs import ExportRun
from ..exports.kept_exports import KeptExport
from ..exports.known_formats import format_named
from ..exports.questions import Question
from ..exposures.declared_tasks import TaskOptions
from ..orm.access import access_of
from ..orm.cells import Page
from ..protocol.content import ResourceLink
from ..schema.secrets import clean_text
from ..schema.value_types import FREE_OBJECT
from .base import RecordTool
from .query_records import NAMES, RecordCall

# Rows that a result shows, so that a model sees what it has made.
SHOWN: Final = 10
# Characters of a result beside these rows.
BESIDES: Final = 2_000


class ExportRecords(RecordTool):
    """Rows of a model, or totals of them, as a file."""

    name = KeptExport.TOOL
    title = "Export records"
    description = "All rows of a query_records or aggregate_records call as a file for the user."
    input_schema: Mapping[str, Any] = {
        "type": "object",
        "properties": {
            "model": {"type": "string"},
            "format": {"type": "string", "description": "csv (default), jsonl, xlsx"},
            "fields": NAMES,
            "filters": FREE_OBJECT,
            "search": {"type": "string"},
            "ordering": NAMES,
            "aggregates": {"type": "array", "items": {"anyOf": [{"type": "string"}, FREE_OBJECT]}},
            "group_by": NAMES,
            "having": FREE_OBJECT,
            "top": {"type": "integer"},
            "per": {"type": "string"},
            "fill": {"type": "boolean"},
        },
        "required": ["model"],
    }
    # Each page of rows has a limit of its own.
    reads_rows = False
    slow = True
    # Two calls make two files.
    idempotent = False

    @property
    def task(self) -> TaskOptions | None:  # type: ignore[override]
        """How a call goes on as a task: like any other, where there is a storage for exports."""
        return None if KeptExport.storage() is None else TaskOptions()

    def has_permission(self, request: MCPRequest) -> bool:
        """Return whether there is a storage for exports, and the caller may export some model."""
        if KeptExport.storage() is None or not KeptChange.owner_of(request.user):
            return False
        return any(model.may("export") for model in access_of(request).each_model())

    def check(self, request: MCPRequest, arguments: Mapping[str, Any]) -> None:
        call = RecordCall.read(request, self, arguments)
        format_named(call.given.get("format"))
        Question.read(call.model, call.given)

    def call(self, request: MCPRequest, arguments: dict[str, Any]) -> ToolResult:
        """Make the file, and return how to get it."""
        call = RecordCall.read(request, self, arguments)
        request.go_to(call.exposure, "changelist")
        name = format_named(call.given.pop("format", None))
        question = Question.read(call.model, call.given)
        run = ExportRun(request, question, name, min(SHOWN, settings.MAX_PAGE_SIZE))
        total = question.total()
        run.check_size()
        request.mcp.begin_work(self.task if total is None else None)
        return self._told(run, run.run(total))

    def _told(self, run: ExportRun, kept: KeptExport) -> ToolResult:
        rows = [[_short(value) for value in cells] for cells in run.first_rows]
        page = Page([column.name for column in run.question.columns], rows, [], False)
        shown = page.fit(max(1, run.request.mcp.result_chars - BESIDES))
        told = kept.told
        if run.question.notes:
            told["hint"] = "; ".join(run.question.notes)
        told["columns"] = page.names
        told["first_rows"] = page.rows[:shown]
        link = ResourceLink(kept.uri, kept.row.name, mime_type=kept.mime_type)
        return ToolResult(structured=told, content=[link])


def _short(value: Any) -> Any:
    return clean_text(value, settings.TEXT_CHARS) if isinstance(value, str) else value
