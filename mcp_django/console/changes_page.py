"""The console's page of changes: what calls wrote, the newest first, row by row.

A line is a call of the log that wrote rows. What it wrote is told from what was kept for its caller
(:attr:`~mcp_django.differences.kept_changes.KeptChange.shown`). Of that, the page shows the rows and columns that its
reader sees now: at the same endpoint, or on the row's page in the admin.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from django.contrib.admin.utils import quote
from django.db.models import Model
from django.http import HttpRequest, HttpResponseBase
from django.utils import timezone

from ..approvals.deciders import DeciderSight
from ..conf import settings
from ..differences.difference_tables import KINDS, ShownCall
from ..differences.kept_changes import KeptChange
from ..models import CallEntry, Change
from ..orm.column_values import pk_text
from ..orm.columns import Column
from ..orm.labels import labels_of
from ..runtime.failing_hooks import call_hook
from .call_list import FACETED
from .call_log_admin import BODIES, CallPaginator
from .call_query import LOOKED_THROUGH, CallQuery
from .console_pages import Page
from .conversations_page import admin_url
from .known_sites import known_sites
from .query_times import RELATIVE
from .undo_page import changes_by, told_change

# Number of calls on a page, and of users, clients and models that are proposed.
LISTED: Final = 25
PROPOSED: Final = {"user": ("username", 3), "client": ("client_name", 3), "model": ("model", 2)}
# The times of the page's links.
TIMES: Final = ("today", "yesterday", "this week", "last week")


@dataclass(frozen=True, slots=True)
class WrittenRow:
    """A row that a change wrote, as its caller was told: ``kind`` is one of ``KINDS``, and ``columns`` have the values,
    of a changed row pairs of before and after. ``key`` is None for a row that is only named."""

    label: str
    kind: str
    text: str
    key: Any
    columns: Mapping[str, Any]

    @classmethod
    def of(cls, change: Change) -> "Iterator[WrittenRow]":
        """Yield the rows of a change, as far as they were kept."""
        shown = KeptChange(change).shown
        for row in shown if isinstance(shown, list) else ():
            label = row.get("model", change.model)
            if "pk" in row:
                kind = next((name for name in KINDS if name in row), "added")
                columns = row.get(kind, row.get("fields"))
                text = str(row.get("label") or row["pk"])
                yield cls(label, kind, text, row["pk"], columns if isinstance(columns, dict) else {})
            elif "values" not in row:
                # Rows that get values are told one by one.
                kind = "deleted" if "deleted" in row else "changed"
                yield from (cls(label, kind, str(text), None, {}) for text in row.get("objects", ()))

    def values(self, name: str) -> Collection[Any]:
        """Return what a column holds, before and after."""
        return self.columns[name] if self.kind == "changed" else [self.columns[name]]


class ReaderSight(DeciderSight):
    """What the reader of a page sees by now of rows that were written, and of what they held."""

    texts: Mapping[Model, str | None]

    def look_for(self, rows: Collection[WrittenRow]) -> None:
        """Look at once for rows, and for those to which their columns refer: by one query for each model."""
        keys: dict[str, list[Any]] = defaultdict(list)
        for row in rows:
            for label, key in [(row.label, row.key), *self._references(row)]:
                if label in self.site.exposures_by_label and key is not None:
                    keys[label].append(key)
        self.texts = {}
        for label, given in keys.items():
            call_hook(label, "get_queryset", self._see_rows, label, given, default=False)
            found = [row for row in self._seen(label, given) if row is not None]
            self.texts |= zip(found, labels_of(self.site.exposures_by_label[label], found), strict=True)

    def find(self, row: WrittenRow) -> Model | None:
        """Return a row that was looked for; None for one that is gone, or that they do not see."""
        return None if row.key is None else self._seen(row.label, [row.key])[0]

    def sees_row(self, row: WrittenRow) -> bool:
        """Return whether they see a row that was looked for, or would see it if it was still there."""
        return self.find(row) is not None or self._sees_all(row.label)

    def shows(self, row: WrittenRow, name: str, is_own: bool) -> bool:
        """Return whether they see what a column of a row held.

        What code of the project made for one caller is for nobody else. Where it decides on columns by the row, only
        superusers see those of a row that is gone.
        """
        model = self.access[self.site.exposures_by_label[row.label]]
        found = self.find(row)
        column = Column.of(model.exposure, name)
        is_as_stored = column is not None and column.is_plain and not column.is_replaced
        serializer: Any = model.exposure.serializer_class
        if serializer is not None and not serializer.to_representation.__module__.startswith("rest_framework."):
            is_as_stored = False
        if not (is_own or is_as_stored):
            return False
        if found is None and model.exposure.options.has_own_pages and not self.access.user.is_superuser:
            return False
        rows = [] if found is None else [found]
        return self._is_readable(model, name, model.exposure.options.model_fields[name], rows) and all(
            self._see_related(row.label, name, value) for value in row.values(name)
        )

    def _references(self, row: WrittenRow) -> Iterator[tuple[str, Any]]:
        """Yield label and key of each row to which the columns of a row refer."""
        exposure = self.site.exposures_by_label.get(row.label)
        for name in row.columns if exposure is not None else ():
            field = exposure.options.model_fields.get(name)
            for value in row.values(name) if field is not None and field.related_model is not None else ():
                pairs = value if field.many_to_many and isinstance(value, list) else [value]
                # A serializer of the project may show something else than pairs of key and label.
                keys = (pair[0] for pair in pairs if pair and isinstance(pair, list))
                yield from ((field.related_model._meta.label_lower, key) for key in keys)

    def _see_rows(self, label: str, given: Iterable[Any]) -> bool:
        return super()._see_rows(label, given) or self._sees_all(label)

    def _sees_all(self, label: str) -> bool:
        """Return whether they see each row of a model, whatever it holds: of one that is gone nobody knows more."""
        exposure = self.site.exposures_by_label.get(label)
        # Where a hook of the project decides on the permission, it may decide by the row.
        if exposure is None or "view" not in exposure.options.permissions:
            return False
        return self.access[exposure].is_there and self.access[exposure].sees_every_row


class Lines:
    """What the template shows of calls and their changes; the number of queries does not grow with theirs."""

    def __init__(self, page: Page, request: HttpRequest, calls: Collection[CallEntry]) -> None:
        self.page = page
        self.request = request
        self.owner = KeptChange.owner_of(request.user)
        changes = changes_by([call.call_id for call in calls]).defer("footprint", "kept", "result")
        told = [(change, told_change(page.home, request, change)) for change in changes]
        self.rows = {change: list(WrittenRow.of(change)) for change, known in told if known}
        self.sights: dict[str, ReaderSight] = {}
        for name, site in known_sites().items():
            rows = [row for change, rows in self.rows.items() if change.site == name for row in rows]
            if rows and not site.needs_middleware:
                self.sights[name] = ReaderSight(request, site, page.home.admin_site)
                self.sights[name].look_for(rows)
        made: dict[str, list[dict[str, Any]]] = defaultdict(list)
        for change, known in told:
            if known:
                made[change.call].append({**known, **self.change(change)})
        self.all = [{"call": call, "changes": made[call.call_id]} for call in calls]

    def change(self, change: Change) -> dict[str, Any]:
        """Return the rows of a change that the reader sees, and how many there are besides."""
        rows = self.rows[change]
        sight = self.sights.get(change.site)
        is_own = change.user == self.owner
        seen = [self.row(sight, row, is_own) for row in rows if sight.sees_row(row)] if sight is not None else []
        more = max(0, change.rows - len(rows)) if rows else 0
        return {"rows": seen, "hidden": len(rows) - len(seen), "more": more, "undoes": change.undoes_id}

    def row(self, sight: ReaderSight, row: WrittenRow, is_own: bool) -> dict[str, Any]:
        """Return what is shown of a row: its name, its page in the admin, and the columns that the reader sees."""
        exposure = sight.site.exposures_by_label[row.label]
        # What is no field was only computed.
        names = [
            name for name in row.columns if name in exposure.options.model_fields and name != exposure.opts.pk.name
        ]
        shows = partial(call_hook, row.label, "get_fields", sight.shows, row, default=False)
        seen = [name for name in names if shows(name, is_own)]
        wire = {"label": "", "columns": {name: row.columns[name] for name in seen}}
        difference = {"counts": {row.label: {row.kind: 1}}, row.kind: {row.label: [wire] if seen else []}}
        [table] = ShownCall({"difference": difference}, sight.site).tables
        found = sight.find(row)
        text, url = row.text, ""
        if found is not None:
            text = sight.texts[found] or text
            url = admin_url(self.page.home, self.request, type(found), "change", quote(pk_text(found.pk)), row=found)
        shown = {"kind": row.kind, "name": exposure.opts.verbose_name, "text": text, "url": url}
        return {**shown, "cells": [cell for one in table.rows for cell in one.cells], "hidden": len(names) - len(seen)}


def show(page: Page, request: HttpRequest) -> HttpResponseBase:
    """Render the changes that a query finds, a page of them."""
    query = CallQuery.parse(request.GET.get("q", ""), timezone.now())
    writing = query.adding(writes="yes")
    calls, since = writing.newest(CallEntry._default_manager.order_by("-time", "-pk").defer(*BODIES))
    if since is None:
        # Of the calls that could write, most may have written nothing.
        since = calls.values_list("time", flat=True)[LOOKED_THROUGH:][:1].first()
    calls = calls.filter(rows_changed__gt=0).exclude(outcome="tried")
    calls = calls if since is None else calls.filter(time__gte=since)
    listed = CallPaginator(calls, LISTED).get_page(request.GET.get("p"))
    newest = list(calls.values_list(*(column for column, _most in PROPOSED.values()))[:FACETED])
    proposed = []
    for place, (name, (_column, most)) in enumerate(PROPOSED.items()):
        counts = Counter(row[place] for row in newest if row[place])
        values = [value for value, count in counts.most_common(most) if count < len(newest)]
        proposed += [
            query.adding(**{name: value}) for value in values if name not in {term.name for term in query.terms}
        ]
    texts = [str(term) for term in query.terms]
    context = {
        "query": query,
        "writing": writing,
        "spans": [(RELATIVE[text], query.adding(time=text).url(), text in texts) for text in TIMES],
        "proposals": [(found, found.parts[-1]) for found in proposed],
        "listed": listed,
        "lines": Lines(page, request, list(listed.object_list)).all,
        "since": since,
        "earlier": since and query.back_from(since),
        "is_kept": settings.UNDO_DAYS > 0,
    }
    return page.render(request, context, "change_list")
