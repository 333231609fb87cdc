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
from django.db.models import Model, QuerySet
from django.http import HttpRequest, HttpResponseBase
from django.utils import timezone

from ..approvals.deciders import DeciderSight
from ..conf import settings
from ..differences.difference_tables import KINDS, Names, cells_of
from ..differences.kept_changes import KeptChange
from ..exposures.model_exposure import ModelExposure
from ..models import CallEntry, Change
from ..orm.column_values import pk_text
from ..orm.columns import Column
from ..orm.labels import labels_of
from ..runtime.failing_hooks import call_hook
from .call_list import FACETED
from .call_log_admin import BODIES, CallPaginator
from .call_query import COLUMNS, LOOKED_THROUGH, CallQuery, time_at
from .console_pages import Page
from .conversations_page import admin_url
from .known_sites import usable_sites
from .query_times import RELATIVE
from .sights import Sights
from .undo_page import changes_by, told_change

# Number of calls on a page, and of values proposed for each name.
LISTED: Final = 25
PROPOSED: Final = {"user": 3, "client": 3, "model": 2}
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
        if not isinstance(shown, list):
            return
        for told in shown:
            label = told.get("model", change.model)
            if "pk" in told:
                kind = next((name for name in KINDS if name in told), "added")
                columns = told.get(kind, told.get("fields"))
                if not isinstance(columns, dict):
                    columns = {}
                yield cls(label, kind, str(told.get("label") or told["pk"]), told["pk"], columns)
            elif "values" not in told:
                # Rows that get values are told one by one.
                kind = "deleted" if "deleted" in told else "changed"
                for text in told.get("objects", ()):
                    yield cls(label, kind, str(text), None, {})

    def values(self, name: str) -> Collection[Any]:
        """Return what a column holds: before and after if it was changed, or else its one value."""
        value = self.columns[name]
        return value if self.kind == "changed" else [value]


class ReaderSight(DeciderSight):
    """What the reader of a page sees by now of rows that were written, and of what they held.

    ``texts`` are the labels of the rows that were found.
    """

    texts: Mapping[Model, str | None]

    def look_for(self, rows: Collection[WrittenRow]) -> None:
        """Look at once for rows, and for those to which their columns refer: by one query for each model."""
        exposures = self.site.exposures_by_label
        keys: dict[str, list[Any]] = defaultdict(list)
        for row in rows:
            for label, key in [(row.label, row.key), *self._references(row)]:
                if label in exposures and key is not None:
                    keys[label].append(key)
        self.texts = {}
        for label, given in keys.items():
            self._see_rows_safely(label, given)
            found = [row for row in self._seen(label, given) if row is not None]
            self.texts |= zip(found, labels_of(exposures[label], found), strict=True)

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
        options = model.exposure.options
        if not (is_own or _is_as_stored(model.exposure, name)):
            return False
        found = self.find(row)
        if found is None and options.has_own_pages and not self.access.user.is_superuser:
            return False
        rows = [] if found is None else [found]
        if not self._is_readable(model, name, options.model_fields[name], rows):
            return False
        return all(self._see_related(row.label, name, value) for value in row.values(name))

    def _references(self, row: WrittenRow) -> Iterator[tuple[str, Any]]:
        """Yield label and key of each row to which the columns of a row refer."""
        exposure = self.site.exposures_by_label.get(row.label)
        if exposure is None:
            return
        for name in row.columns:
            field = exposure.options.model_fields.get(name)
            if field is None or field.related_model is None:
                continue
            label = field.related_model._meta.label_lower
            for value in row.values(name):
                pairs = value if field.many_to_many and isinstance(value, list) else [value]
                for pair in pairs:
                    # A serializer of the project may show something else than pairs of key and label.
                    if pair and isinstance(pair, list):
                        yield label, pair[0]

    def _see_rows(self, label: str, given: Iterable[Any]) -> bool:
        return super()._see_rows(label, given) or self._sees_all(label)

    def _sees_all(self, label: str) -> bool:
        """Return whether they see each row of a model, whatever it holds: of one that is gone nobody knows more."""
        exposure = self.site.exposures_by_label.get(label)
        # Where a hook of the project decides on the permission, it may decide by the row.
        if exposure is None or "view" not in exposure.options.permissions:
            return False
        return self.access[exposure].is_there and self.access[exposure].sees_every_row


def _is_as_stored(exposure: ModelExposure, name: str) -> bool:
    """Return whether calls show the values of a column as they are stored, and no code of the project makes them."""
    column = Column.of(exposure, name)
    if column is None or not column.is_plain or column.is_replaced:
        return False
    serializer: Any = exposure.serializer_class
    return serializer is None or serializer.to_representation.__module__.startswith("rest_framework.")


class Lines:
    """What the template shows of calls and their changes; the number of queries does not grow with theirs."""

    def __init__(self, page: Page, request: HttpRequest, calls: Collection[CallEntry]) -> None:
        self.page = page
        self.request = request
        self.owner = KeptChange.owner_of(request.user)
        changes = changes_by([call.call_id for call in calls]).defer("footprint", "kept", "result")
        sights = Sights(page.home, request)
        told = {change: told_change(sights, change) for change in changes}
        # The rows of each change of which the reader may know.
        self.rows = {change: list(WrittenRow.of(change)) for change, known in told.items() if known}
        self.sights: dict[str, ReaderSight] = {}
        self._look_for_rows()
        made: dict[str, list[dict[str, Any]]] = defaultdict(list)
        for change in self.rows:
            made[change.call].append({**told[change], **self.change(change)})
        self.all = [{"call": call, "changes": made[call.call_id]} for call in calls]

    def _look_for_rows(self) -> None:
        rows: dict[str, list[WrittenRow]] = defaultdict(list)
        for change, written in self.rows.items():
            rows[change.site] += written
        for name, site in usable_sites().items():
            if rows[name]:
                self.sights[name] = ReaderSight(self.request, site, self.page.home.admin_site)
                self.sights[name].look_for(rows[name])

    def change(self, change: Change) -> dict[str, Any]:
        """Return the rows of a change that the reader sees, and how many there are besides."""
        rows = self.rows[change]
        sight = self.sights.get(change.site)
        is_own = change.user == self.owner
        seen: list[dict[str, Any]] = []
        if sight is not None:
            seen = [self.row(sight, row, is_own) for row in rows if sight.sees_row(row)]
        more = max(0, change.rows - len(rows)) if rows else 0
        return {"rows": seen, "hidden": len(rows) - len(seen), "more": more, "undoes": change.undoes_id}

    def row(self, sight: ReaderSight, row: WrittenRow, is_own: bool) -> dict[str, Any]:
        """Return what is shown of a row: its name, its page in the admin, and the columns that the reader sees."""
        exposure = sight.site.exposures_by_label[row.label]
        fields = exposure.options.model_fields
        # What is no field was only computed.
        names = [name for name in row.columns if name in fields and name != exposure.opts.pk.name]
        shows = partial(call_hook, row.label, "get_fields", sight.shows, row, default=False)
        columns = {name: row.columns[name] for name in names if shows(name, is_own)}
        text, url = row.text, ""
        found = sight.find(row)
        if found is not None:
            text = sight.texts[found] or text
            url = admin_url(self.page.home, self.request, type(found), "change", quote(pk_text(found.pk)), row=found)
        return {
            "kind": row.kind,
            "name": exposure.opts.verbose_name,
            "text": text,
            "url": url,
            "cells": list(cells_of(columns, row.kind, Names(exposure.model, exposure.model_admin))),
            "hidden": len(names) - len(columns),
        }


def proposals(query: CallQuery, calls: QuerySet[CallEntry]) -> list[CallQuery]:
    """Return queries that are one term longer, each of which finds some of these calls, and not all of the newest."""
    newest = list(calls.values(*[COLUMNS[name] for name in PROPOSED])[:FACETED])
    named = {term.name for term in query.terms}
    found: list[CallQuery] = []
    for name, most in PROPOSED.items():
        if name in named:
            continue
        values = [call[COLUMNS[name]] for call in newest]
        counts = Counter(value for value in values if value)
        found += [query.adding(**{name: value}) for value, count in counts.most_common(most) if count < len(newest)]
    return found


def show(page: Page, request: HttpRequest) -> HttpResponseBase:
    """Render the changes that a query finds, a page of them."""
    query = CallQuery.parse(request.GET.get("q", ""), timezone.now())
    writing = query.adding(writes="yes")
    calls, since = writing.newest(CallEntry._default_manager.order_by("-time", "-pk").defer(*BODIES))
    if since is None:
        # Of the calls that could write, most may have written nothing.
        since = time_at(calls, LOOKED_THROUGH)
    calls = calls.filter(rows_changed__gt=0).exclude(outcome="tried")
    if since is not None:
        calls = calls.filter(time__gte=since)
    listed = CallPaginator(calls, LISTED).get_page(request.GET.get("p"))
    context = {
        "query": query,
        "writing": writing,
        "spans": query.spans({text: RELATIVE[text] for text in TIMES}),
        "proposals": [(longer, longer.parts[-1]) for longer in proposals(query, calls)],
        "listed": listed,
        "lines": Lines(page, request, list(listed.object_list)).all,
        "since": since,
        "earlier": since and query.back_from(since),
        "is_kept": settings.UNDO_DAYS > 0,
    }
    return page.render(request, context, "change_list")
