"""The list of calls as a CSV file, with the words and times that the page shows."""

from itertools import islice
from typing import Any, Final

from django.db.models import QuerySet
from django.http import FileResponse
from django.utils.formats import date_format

from ..context.untrusted_text import plain
from ..exports.file_formats import CSVFile
from ..exports.questions import FileColumn
from ..models import CallEntry
from ..templatetags.mcp_console import TIME_FORMAT, Outcome, local_time

TEXTS: Final = ("detail", "method", "tool", "model", "username", "client_name", "client_id")
COLUMNS: Final = ("time", "outcome", *TEXTS, "rows_changed", "duration", "call_id")
# Number of calls that are read and written at once.
CHUNK: Final = 500


def respond(calls: QuerySet[CallEntry]) -> FileResponse:
    """Return these calls as a file that a spreadsheet can open: none of its texts runs there."""
    titles = [str(CallEntry._meta.get_field(name).verbose_name) for name in COLUMNS]  # type: ignore[union-attr]
    file = CSVFile([FileColumn(title) for title in titles])
    rows = map(_cells, calls.values_list(*COLUMNS).iterator(CHUNK))
    while chunk := list(islice(rows, CHUNK)):
        file.write(chunk)
    # The response closes the file, not the writer of texts.
    written = file.text.detach()
    written.seek(0)
    return FileResponse(written, as_attachment=True, filename="calls.csv", content_type="text/csv; charset=utf-8")


def _cells(call: tuple[Any, ...]) -> list[Any]:
    time, outcome, *texts, rows_changed, duration, call_id = call
    begins = date_format(local_time(time), TIME_FORMAT)
    said = [plain(text, 255) for text in texts]
    return [begins, Outcome(outcome).word, *said, rows_changed, round(duration, 1), call_id]
