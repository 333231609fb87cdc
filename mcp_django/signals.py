"""Signals that the app's own parts send to each other."""

from django.dispatch import Signal

# Sent by the app's own tools, with the model as ``sender``, for ``rows`` (instances) that may have been changed in ways
# that Django sends no signal for.
rows_changed = Signal()
