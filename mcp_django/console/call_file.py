"""The list of calls as a CSV file, with the words and times that the page shows."""

from typing import Any, Final

from django.db.models import QuerySet
from django.http import FileResponse
from django.utils import timezone
from django.utils.formats import date_format

from ..context.untrusted_text import plain
from ..exports.file_formats import CSVFile
from ..exports.questions import FileColumn
from ..models import CallEntry
from ..templatetags.mcp_console import TIME_FORMAT, Outcome

COLUMNS: Final = (
    *("time", "outcome", "detail", "method", "tool", "model", "username", "client_name", "client_id"),
    *("rows_changed", "duration", "call_id"),
)
# Number of calls that are read and written at once.
CHUNK: Final = 500


def respond(calls: QuerySet[CallEntry]) -> FileResponse:
    """Return these calls as a file that a spreadsheet can open: none of its texts runs there."""
    titles = [str(CallEntry._meta.get_field(name).verbose_name) for name in COLUMNS]  # type: ignore[union-attr]
    file = CSVFile([FileColumn(title) for title in titles])
    rows: list[list[Any]] = []
    for call in calls.values_list(*COLUMNS).iterator(CHUNK):
        rows.append(_cells(call))
        if len(rows) == CHUNK:
            file.write(rows)
            rows = []
    if rows:
        file.write(rows)
    # The response closes the file, not the writer of texts.
    written = file.text.detach()
    written.seek(0)
    return FileResponse(written, as_attachment=True, filename="calls.csv", content_type="text/csv; charset=utf-8")


def _cells(call: tuple[Any, ...]) -> list[Any]:
    time, outcome, *texts, rows_changed, duration, call_id = call
    local = timezone.localtime(time) if timezone.is_aware(time) else time
    said = [plain(text, 255) for text in texts]
    return [date_format(local, TIME_FORMAT), Outcome(outcome).word, *said, rows_changed, round(duration, 1), call_id]
