"""Signals: those that the app's own parts send to each other, and those that a project can receive."""

from django.dispatch import Signal

# Sent by the app's own tools, with the model as ``sender``, for ``rows`` (instances) that may have been changed without
# a signal of Django's.
rows_changed = Signal()

#: Sent with the model of applications as ``sender`` when an ``application`` gets its first token of a ``user`` at the
#: consent page, after the token is stored; ``scopes`` is a list of the granted scopes. Exceptions that receivers raise
#: are logged, and do not affect the access of the application.
client_connected = Signal()

#: Sent with the site as ``sender`` when a call begins, with its ``request`` (an ``MCPRequest``) and its ``record`` (a
#: ``CallRecord``), in the thread of the call. A receiver that raises ``CallRefused`` refuses the call.
call_started = Signal()

#: Sent with the site as ``sender`` when a call has been answered or refused, with ``request`` and ``record``.
#: Exceptions that receivers raise are logged.
call_finished = Signal()

#: Sent with the model of changes as ``sender`` when a change has been taken back and that is committed: with the
#: ``change``, which has its number, tool and summary, and the ``request`` (an ``MCPRequest``) of the call that took it
#: back. Rows went back in the database, without receivers of ``post_save``. Exceptions that receivers raise are logged.
change_undone = Signal()

#: Sent with the model of requests for approval as ``sender`` when a call waits for the yes of another person and that
#: is committed: with the ``change``, which has the number of the request, who asks, the tool and a summary, and the
#: ``approval``, which has the rule's name. Exceptions that receivers raise are logged.
approval_requested = Signal()

#: Sent with the model of requests for approval as ``sender`` when somebody has said yes or no and that is committed:
#: with the ``change``, whose ``state`` and ``outcome`` say how it ended and ``by`` who decided, and the ``approval``,
#: which has their ``word``. Exceptions that receivers raise are logged.
approval_decided = Signal()

# Sent with the site as ``sender`` when models were registered with it.
models_registered = Signal()

# Sent with the model of calls as ``sender``, by a thread of its own, for an alert while ``TELEMETRY["alerts"]`` is on:
# with its ``kind`` ("client", "failures", "budget" or "switch"), ``text`` for people, and ``facts`` (a dict).
# Exceptions that receivers raise are logged.
alert_raised = Signal()

# Sent with the model of switches as ``sender`` after a change of the switches is committed.
switches_changed = Signal()
