"""Request ids in log messages: a logging filter for the project's handlers."""

import logging

from ..context.call_record import CallRecord


class RequestIdFilter(logging.Filter):
    """Add request ids to log messages: ``request_id``, the id of the current call, and ``trace_id``, or "-" for none.

    Errors, the log of calls, the admin's history and spans have the same id. Put the filter on a handler, so that it
    sees the messages of all loggers.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        """Let each message pass, with its ids."""
        call = CallRecord.current.get()
        if not hasattr(record, "request_id"):
            record.request_id = call.id.hex if call is not None else "-"
        record.trace_id = (call.trace if call is not None else "") or "-"
        return True
