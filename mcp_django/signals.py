"""Signals: those that the app's own parts send to each other, and those that a project can receive."""

from django.dispatch import Signal

# Sent by the app's own tools, with the model as ``sender``, for ``rows`` (instances) that may have been changed in ways
# that Django sends no signal for.
rows_changed = Signal()

#: Sent with the model of applications as ``sender`` when an ``application`` gets its first token of a ``user`` at the
#: consent page, once that is stored; ``scopes`` (a list) are what was granted. What a receiver raises is logged, and
#: the application has its access.
client_connected = Signal()

#: Sent with the site as ``sender`` when a call begins, with its ``request`` (an ``MCPRequest``) and its ``record`` (a
#: ``CallRecord``), in the thread of the call. A receiver that raises ``CallRefused`` refuses the call.
call_started = Signal()

#: Sent with the site as ``sender`` when a call has its answer or is refused, with ``request`` and ``record``. What a
#: receiver raises is logged.
call_finished = Signal()

# Sent with the site as ``sender`` when models were registered with it.
models_registered = Signal()

# Sent with the model of calls as ``sender``, by a thread of its own, when there is an alert and ``TELEMETRY["alerts"]``
# is on: its ``kind`` ("client", "failures", "budget" or "switch"), ``text`` for people, and ``facts`` (a dict). What a
# receiver raises is logged.
alert_raised = Signal()

# Sent with the model of switches as ``sender`` when what is off has changed, once that is committed.
switches_changed = Signal()
