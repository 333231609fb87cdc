"""One row as a caller sees it: its fields, inlines and related rows."""

from collections.abc import Collection, Mapping, Sequence
from functools import cached_property, partial
from typing import Any, Final

import orjson
from django.db.models import Model

from ..conf import settings
from ..orm.access import ModelAccess
from ..orm.column_values import plain_key
from ..orm.columns import Column
from ..orm.labels import label_of
from ..orm.nearest_names import Misnamed
from ..orm.pagination import PageQuery
from ..orm.row_arguments import RowArguments
from ..orm.row_reading import read_page, show_rows
from ..orm.suggestions import with_field
from ..orm.tool_arguments import Arguments
from ..orm.uris import Address
from ..schema.secrets import clean_text
from .saving import RowPage

MAX_RELATIONS: Final = 10
DEFAULT_RELATED: Final = 5
MAX_RELATED: Final = 20


class Record:
    """Record for ``get_record``: one row as a caller sees it; ``labels`` are those that
    :class:`~mcp_django.orm.row_reading.FoundRow` has.

    Long texts are cut only at ``text_limit``, or if the whole record would be longer than ``RESULT_CHARS``.
    """

    def __init__(
        self,
        model: ModelAccess,
        row: Model,
        labels: Mapping[str, str | None] | None = None,
        text_limit: int | None = None,
    ) -> None:
        self.model = model
        self.request = model.request
        self.exposure = model.exposure
        self.row = row
        self.labels = labels
        self.text_limit = text_limit

    @cached_property
    def page(self) -> RowPage:
        """The page of the row in the admin."""
        return RowPage(self.model, self.row)

    def payload(self, fields: Sequence[str] | None = None, *, is_brief: bool = False) -> dict[str, Any]:
        """Return the result of ``get_record``: ``{model, pk, uri, label, permissions, admin_url?, hint?, fields}``.

        ``fields`` are names that the caller may read, None for all. A brief record has no permissions and no URL of a
        page, and repeats no key.
        """
        model = self.model
        request = self.request
        exposure = self.exposure
        row = self.row
        off = self.request.mcp.off
        names = model.fields_of(row) if fields is None else exposure.options.with_primary_key(fields)
        page = show_rows(model, [row], Column.all(exposure, names), self.text_limit, self.labels)
        values = dict(zip(page.names, page.rows[0], strict=True))
        payload: dict[str, Any] = {
            "model": exposure.label,
            "pk": plain_key(values[exposure.opts.pk.name]),
            "uri": Address(model).row(row.pk),
            "label": label_of(exposure, row),
        }
        if is_brief:
            del values[exposure.opts.pk.name]
        else:
            may_write = "mcp:write" in request.mcp.scopes and not settings.READ_ONLY
            may_write = may_write and (off is None or off.writes is None)
            payload["permissions"] = {deed: may_write and model.may_row(deed, row) for deed in ("change", "delete")}
            if (page_url := Address(model).admin_url(row)) is not None:
                payload[Address.ADMIN_URL] = page_url
        cut = _cut(values, request.mcp.result_chars)
        hints = list(page.notes)
        if cut:
            hints.append(f"cut for length: {', '.join(cut)}; name one of them in fields to read more")
        if hints:
            payload["hint"] = "; ".join(hints)
        payload["fields"] = values
        return payload

    def full(
        self,
        fields: Sequence[str] | None = None,
        inlines: Collection[str] | None = None,
        *,
        is_brief: bool = False,
    ) -> dict[str, Any]:
        """Return the record in full for ``get_record``, with its ``version`` and ``inlines``, None for all."""
        payload = self.payload(fields, is_brief=is_brief)
        shown = self.page.inlines
        found = shown.shown_rows()
        rows, notes = shown.show([i for i in found if inlines is None or i.inline.name in inlines])
        values = payload.pop("fields")
        hints = [payload.pop("hint")] if "hint" in payload else []
        payload["version"] = self.page.version(found, shown=values)
        if hints or notes:
            payload["hint"] = "; ".join([*hints, *notes])
        payload["fields"] = values
        if rows:
            payload["inlines"] = rows
        return payload

    def changed(self, before: Mapping[str, Any], named: Collection[str]) -> dict[str, Any]:
        """Return what an update has changed of the record: ``named`` fields, and stored values that are not as
        ``before``, which has them by attribute of the row."""
        now = vars(self.row)
        stored = {field.name: field.attname for field in self.exposure.opts.concrete_fields}
        names = []
        for name in self.model.fields_of(self.row):
            attribute = stored.get(name, name)
            is_other = attribute in before and attribute in now and before[attribute] != now[attribute]
            if name in named or attribute in named or is_other:
                names.append(name)
        return self.full(names, named, is_brief=True)

    def created(self, named: Collection[str]) -> dict[str, Any]:
        """Return what a creation has made of the record: ``named`` fields, and those that are not empty."""
        shown = self.model.fields_of(self.row)
        attributes = {field.attname: field.name for field in self.exposure.opts.concrete_fields}
        given = {attributes.get(name, name) for name in named}
        payload = self.full(shown, named, is_brief=True)
        fields = payload["fields"]
        payload["fields"] = {
            name: value for name, value in fields.items() if name in given or value not in (None, "", [], {})
        }
        return payload

    def chosen(self, given: Arguments) -> dict[str, Any]:
        """Return the record for ``get_record`` with only the fields in ``fields``, also of related rows and inlines."""
        if given.get("fields") is None:
            return self.full()
        row = self.row
        shown = self.model.fields_of(row)
        names = given.names("fields")
        # The admin URL is always in the result.
        wanted = [name for name in names if name != Address.ADMIN_URL or name in shown]
        inlines = {inline.name for inline in self.page.inlines.all}
        # The page of this row can show fields that the pages of other rows do not.
        others = [name for name in wanted if name not in inlines and name not in shown]
        columns = RowArguments(self.model, {"fields": others}).columns() if others else ()
        names = [name for name in wanted if name in shown and name not in inlines]
        names += [column.name for column in columns if column.name in shown]
        payload = self.full(names, [name for name in wanted if name in inlines])
        through = tuple(column for column in columns if column.through)
        if through:
            page = read_page(PageQuery.of_row(self.model, row, through))
            payload["fields"] |= dict(zip(page.names, page.rows[0], strict=True)) if page.rows else {}
        return payload

    def related(self, given: Arguments) -> dict[str, Any]:
        """Return the first related rows of the record for each relation in ``related``, with their number."""
        found = dict[str, Any]()
        for text in given.names("related", MAX_RELATIONS):
            name, _, number = text.partition(":")
            link = self.model.link(name)
            if link is None:
                known = [link.name for link in self.model.links]
                message = f"{self.exposure.label} has no relation {name[:60]!r}."
                raise Misnamed(message, name, known, partial(with_field, name, within=("related",)))
            limit = Arguments(limit=number or None).limit(DEFAULT_RELATED, MAX_RELATED)
            columns = RowArguments(link.related, {}).columns()
            query = PageQuery.of_related(link, self.row, columns, limit)
            page = read_page(query)
            found[name] = {
                "model": link.exposure.label,
                "count": query.total(),
                "columns": page.names,
                "rows": page.rows,
            }
            if page.notes:
                found[name]["hint"] = "; ".join(page.notes)
        return found


def _cut(values: dict[str, Any], limit: int) -> list[str]:
    """Cut the longest values of a record until it fits into the result of ``get_record``; return their names."""
    # If all values together fit, they need not be measured one by one.
    if len(orjson.dumps(list(values.values()))) <= limit:
        return []
    sizes = {name: len(orjson.dumps(value)) for name, value in values.items()}
    over = sum(sizes.values()) - limit
    names = []
    for name in sorted(sizes, key=lambda name: -sizes[name]):
        if over <= 0:
            break
        keep = max(sizes[name] - over - 100, settings.TEXT_CHARS)
        text = values[name] if isinstance(values[name], str) else orjson.dumps(values[name]).decode()
        values[name] = clean_text(text, keep)
        over -= sizes[name] - len(orjson.dumps(values[name]))
        names.append(name)
    return names
