"""One run of an export: it writes a question's answer to a file, and leaves nothing if it ends on its way."""

import logging
from collections.abc import Sequence
from typing import Any, Final

from ..context.request import MCPRequest
from ..exceptions import Cancelled, NotFound, ToolError
from ..operating.daily_budgets import Budgets
from .file_formats import FileFormat
from .kept_exports import KeptExport
from .known_formats import known_formats
from .questions import Question

logger = logging.getLogger("mcp_django.exports")

GONE: Final = "The export was deleted while it was made. Make it again."
TOO_LARGE: Final = "The file would be larger than {} MB. Narrow the filters, or name fewer fields."
TOO_MANY: Final = "xlsx holds at most {:,} rows, and there are more. Ask for csv, or narrow the filters."


class ExportRun:
    """Writes the answer to a question as a file of the caller's. ``first_rows`` are as on a page."""

    def __init__(self, request: MCPRequest, question: Question, format: str, shown: int) -> None:
        self.request = request
        self.question = question
        self.format = format
        self.kind = known_formats()[format]
        self.shown = shown
        self.first_rows: list[list[Any]] = []
        self.rows = 0

    def check_size(self) -> None:
        """Raise ``ToolError`` if the answer is known to have more rows than the format can hold."""
        most = self.kind.max_rows
        if most is not None and self.question.exceeds(most):
            raise ToolError(TOO_MANY.format(most))

    def run(self, total: int | None) -> KeptExport:
        """Return the export, once its file can be fetched.

        Raises ``ToolError`` for an answer that does not fit into a file, ``CallRefused`` when the budget of rows is
        used up, ``Cancelled`` when the call is. No file is left then.
        """
        kept = KeptExport.new(
            self.request,
            model=self.question.model.exposure.label,
            format=self.format,
            extension=self.kind.extension,
            question=self.question.kept,
        )
        file = self.kind(self.question.columns)
        try:
            self._write(file, total)
            written = file.finish()
            self._check_bytes(written.seek(0, 2))
            Budgets(self.request).check_running()
            if self.request.mcp.cancelled:
                raise Cancelled
            kept.finish(written, self.rows)
        except NotFound:
            raise ToolError(GONE) from None
        except BaseException:
            kept.delete()
            raise
        finally:
            file.close()
        logger.info("%s exported %d rows of %s", kept.row.username, self.rows, kept.row.model)
        return kept

    def _write(self, file: FileFormat, total: int | None) -> None:
        budgets = Budgets(self.request)
        budgets.check_running()
        for rows in self.question.pages():
            budgets.check_running()
            self._count(rows)
            self._check_bytes(file.write(rows))
            self.request.mcp.progress(self.rows, total, f"{self.rows} rows")

    def _count(self, rows: Sequence[Any]) -> None:
        self.rows += len(rows)
        most = self.kind.max_rows
        if most is not None and self.rows > most:
            raise ToolError(TOO_MANY.format(most))
        missing = self.shown - len(self.first_rows)
        self.first_rows += [list(row) for row in rows[: max(0, missing)]]

    def _check_bytes(self, size: int) -> None:
        self.request.mcp.record.filed = size
        if size > KeptExport.MAX_BYTES:
            raise ToolError(TOO_LARGE.format(KeptExport.MAX_BYTES // 1024**2))
