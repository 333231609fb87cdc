"""Rows that an action deletes: what goes with them is named before they go.

Nobody knows before an action runs whether it deletes. Django sends ``pre_delete`` when it has found what goes with a
row, and before it writes anything.
"""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from threading import get_ident
from typing import Any

from django.db.models import Model, ProtectedError, QuerySet, RestrictedError
from django.db.models.signals import pre_delete

from .cascades import TooManyRows, concrete
from .footprints import Footprint


class GoingRows:
    """Adds to a footprint what deletions of rows of a model take along. ``are_too_many`` says that it is more than is
    kept of one write."""

    def __init__(self, footprint: Footprint, model: type[Model]) -> None:
        self.footprint = footprint
        self.senders = {model, concrete(model)}
        self.are_too_many = False
        self._thread = get_ident()
        # What was deleted, by the objects whose delete() was called.
        self._origins: list[Any] = []

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Watch the deletions of the block. The model has receivers of its own already, so Django deletes its rows in
        the same way."""
        for sender in self.senders:
            pre_delete.connect(self._note, sender=sender)
        try:
            yield
        finally:
            for sender in self.senders:
                pre_delete.disconnect(self._note, sender=sender)

    def _note(self, instance: Model, using: str, origin: Any = None, **kwargs: Any) -> None:
        if get_ident() != self._thread or using != self.footprint.using or self.are_too_many:
            return
        if origin is None:
            origin = instance
        if any(one is origin for one in self._origins):
            return
        self._origins.append(origin)
        rows = list(origin.all()) if isinstance(origin, QuerySet) else [origin]
        try:
            # If rows are protected, the deletion says so.
            with suppress(ProtectedError, RestrictedError):
                self.footprint.add_deletion(rows)
            self.footprint.before()
        except TooManyRows:
            self.are_too_many = True
