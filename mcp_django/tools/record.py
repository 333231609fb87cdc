"""``get_record``: one row in full."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import Any, Final

import orjson
from django.db.models import Model, QuerySet

from ..conf import settings
from ..context.places import go_to
from ..context.request import Exposure, MCPRequest
from ..context.results import ToolResult
from ..context.signing import MAX_AGE
from ..exceptions import NotFound, ToolError
from ..exposures.history import history_of
from ..forms.inlines import inlines_of, read_inlines, show_inlines
from ..orm.access import columns_of, get_exposure, visible_fields
from ..orm.arguments import (
    MAX_FIELDS,
    RECORD_NOT_FOUND,
    check_names,
    exposure_argument,
    fields_argument,
    flag_argument,
    limit_argument,
    names_argument,
)
from ..orm.columns import Column, is_file, plain_key
from ..orm.keys import key_meant
from ..orm.lookups import Applied, Condition, NamedFilter, Offer, resolve_path
from ..orm.ordering import default_ordering, total_order
from ..orm.pages import read_page, show_row
from ..orm.queries import COUNT_CAP, PageQuery, count_rows
from ..orm.relations import label_of
from ..orm.repairs import with_argument, with_field
from ..orm.rows import FoundRow, find_row
from ..orm.uris import ADMIN_URL, SCHEME, admin_url, download_url, parse_uri, row_uri
from ..orm.ways import Link, guarded_values, link_of, links_of, rows_linked_to
from ..orm.wording import misnamed
from ..protocol.content import Text
from ..schema.jsonable import clean_text
from ..schema.types import KEY
from ..writes.versions import version_of
from .asking import is_text, text_of
from .base import RecordTool
from .query import NAMES

MAX_RELATIONS: Final = 10
DEFAULT_RELATED: Final = 5
MAX_RELATED: Final = 20


def record_payload(
    request: MCPRequest,
    exposure: Exposure,
    obj: Model,
    fields: Sequence[str] | None = None,
    labels: Mapping[str, str | None] = MappingProxyType({}),
    text_limit: int | None = None,
) -> dict[str, Any]:
    """Return one row in full: ``{model, pk, uri, label, permissions, admin_url?, hint?, fields}``.

    ``fields`` are names that the caller may read, None for all; ``labels`` are what :func:`find_row` found. Long texts
    are not cut but at a ``text_limit``, or where the whole would be longer than ``RESULT_CHARS``.
    """
    names = visible_fields(request, exposure, obj) if fields is None else exposure.with_primary_key(fields)
    page = show_row(request, exposure, obj, columns_of(exposure, names), labels, text_limit)
    values = dict(zip(page.names, page.rows[0], strict=True))
    payload: dict[str, Any] = {
        "model": exposure.label,
        "pk": plain_key(values[exposure.opts.pk.name]),
        "uri": row_uri(exposure, obj.pk),
        "label": label_of(exposure, obj),
        "permissions": {
            "change": _may(request, exposure.has_change_permission, obj),
            "delete": _may(request, exposure.has_delete_permission, obj),
        },
    }
    if (page_url := admin_url(request, exposure, obj)) is not None:
        payload[ADMIN_URL] = page_url
    cut = _cut(values, request.mcp.result_chars)
    hints = list(page.notes)
    if cut:
        hints.append(f"cut for length: {', '.join(cut)}; name one of them in fields to read more")
    if hints:
        payload["hint"] = "; ".join(hints)
    payload["fields"] = values
    return payload


def full_record(
    request: MCPRequest,
    exposure: Exposure,
    obj: Model,
    fields: Sequence[str] | None = None,
    labels: Mapping[str, str | None] = MappingProxyType({}),
    inlines: Collection[str] | None = None,
    text_limit: int | None = None,
) -> dict[str, Any]:
    """Return :func:`record_payload` with the ``version`` of the row and the rows of its ``inlines``, None for all."""
    payload = record_payload(request, exposure, obj, fields, labels, text_limit)
    found = read_inlines(request, exposure, obj)
    rows, notes = show_inlines(request, exposure, [i for i in found if inlines is None or i.inline.name in inlines])
    values = payload.pop("fields")
    hints = [payload.pop("hint")] if "hint" in payload else []
    payload["version"] = version_of(request, exposure, obj, found, shown=values)
    if hints or notes:
        payload["hint"] = "; ".join([*hints, *notes])
    payload["fields"] = values
    if rows:
        payload["inlines"] = rows
    return payload


def _may(request: MCPRequest, verdict: Any, obj: Model) -> bool:
    off = request.mcp.off
    writes = "mcp:write" in request.mcp.scopes and not settings.READ_ONLY
    return writes and (off is None or off.writes is None) and bool(verdict(request, obj))


def _cut(values: dict[str, Any], limit: int) -> list[str]:
    """Cut the longest values until all fit together, and return their names."""
    # Whole, they have commas too: where all of it fits, each need not be measured.
    if len(orjson.dumps(list(values.values()))) <= limit:
        return []
    sizes = {name: len(orjson.dumps(value)) for name, value in values.items()}
    over, names = sum(sizes.values()) - limit, []
    for name in sorted(sizes, key=lambda name: -sizes[name]):
        if over <= 0:
            break
        keep = max(sizes[name] - over - 100, settings.TEXT_CHARS)
        text = values[name] if isinstance(values[name], str) else orjson.dumps(values[name]).decode()
        values[name] = clean_text(text, keep)
        over -= sizes[name] - len(orjson.dumps(values[name]))
        names.append(name)
    return names


class GetRecord(RecordTool):
    """One row in full."""

    name = "get_record"
    title = "Get record"
    description = "One record in full. pk can be its uri, without model."
    input_schema: Mapping[str, Any] = {
        "type": "object",
        "properties": {
            "model": {"type": "string"},
            "pk": KEY,
            "fields": NAMES,
            "related": {**NAMES, "description": "Relations, orders:5"},
            "history": {"type": "boolean", "description": "Also who changed what"},
        },
        "required": ["pk"],
    }
    read_only = True

    def call(self, request: MCPRequest, arguments: dict[str, Any]) -> ToolResult:
        """Return the row."""
        given = check_names(arguments, (*self.input_schema["properties"], "uri"))
        if "model" not in given and is_text(uri := given.get("uri") or given.get("pk")):
            return self._text(request, uri)
        exposure, found = self._find(request, given)
        names, inlines, related = _chosen(request, exposure, found.row, given.get("fields"))
        payload = full_record(request, exposure, found.row, names, found.labels, inlines)
        payload["fields"] |= _of_related_rows(request, exposure, found.row, related)
        if links := _downloads(request, exposure, payload):
            payload["downloads"] = {"expires_in": MAX_AGE, **links}
        if given.get("related") is not None:
            payload["related"] = related_rows(request, exposure, found.row, given["related"])
        if flag_argument(given.get("history"), "history"):
            payload["history"] = history_of(request, exposure, found.row)
        return ToolResult(structured=payload)

    def _text(self, request: MCPRequest, uri: str) -> ToolResult:
        """Return the contents of a resource that is no record."""
        try:
            found = text_of(request, uri)
        except NotFound:
            raise ToolError(RECORD_NOT_FOUND) from None
        if isinstance(found.body, bytes):
            return ToolResult(content=[found])
        return ToolResult(content=[Text(clean_text(found.body, request.mcp.result_chars))])

    def _find(self, request: MCPRequest, given: Mapping[str, Any]) -> tuple[Exposure, FoundRow]:
        key = given.get("pk")
        uri = key if "model" not in given and isinstance(key, str) and key.startswith(SCHEME) else given.get("uri")
        if uri is not None:
            try:
                address = parse_uri(uri)
                exposure = get_exposure(request, address.label)
                if address.pk is None or address.field_name is not None:
                    raise NotFound
                go_to(request, exposure, "change", address.pk)
                return exposure, find_row(request, exposure, address.pk)
            except NotFound:
                raise ToolError(RECORD_NOT_FOUND) from None
        if key is None:
            raise ToolError("Name the record by model and pk, or by its uri as pk.")
        exposure = exposure_argument(request, given.get("model"), given)
        go_to(request, exposure, "change", key)
        try:
            return exposure, find_row(request, exposure, key)
        except NotFound:
            pass
        key = key_meant(request, exposure, key, RECORD_NOT_FOUND, partial(with_argument, "pk"))
        go_to(request, exposure, "change", key)
        return exposure, find_row(request, exposure, key)


class _RelatedTo(NamedFilter):
    """The rows that are related to a row."""

    def __init__(self, link: Link, row: Model) -> None:
        self.link, self.row = link, row

    def names(self) -> Sequence[str]:
        """Return none: no client can name it."""
        return ()

    def offers(self) -> Sequence[Offer]:
        """Return none."""
        return ()

    def narrow(self, queryset: QuerySet[Any], values: Mapping[str, tuple[str, ...]]) -> QuerySet[Any]:
        """Return the related rows."""
        return rows_linked_to(self.link, self.row, queryset)


def related_rows(request: MCPRequest, exposure: Exposure, row: Model, value: Any) -> dict[str, Any]:
    """Return the first rows of each relation that ``related`` names, with their number, as pages of their model.

    Raises:
        ToolError: the caller has no relation of that name.
    """
    found: dict[str, Any] = {}
    for text in names_argument(value, "related", MAX_RELATIONS):
        name, _, number = text.partition(":")
        link = link_of(request, exposure, name)
        if link is None:
            known = [link.name for link in links_of(request, exposure)]
            message = f"{exposure.label} has no relation {name[:60]!r}."
            raise misnamed(message, name, known, partial(with_field, name, within=("related",)))
        limit = limit_argument(number or None, DEFAULT_RELATED, MAX_RELATED)
        columns, order = fields_argument(request, link.exposure, None), default_ordering(request, link.exposure)
        conditions = (Applied(_RelatedTo(link, row), {}),)
        query = PageQuery(link.exposure, columns, order, limit, conditions, text_limit=settings.TEXT_CHARS)
        page, count = read_page(request, query), count_rows(request, query)
        total = count if count <= COUNT_CAP else f"more than {COUNT_CAP}"
        shown = {"model": link.exposure.label, "count": total, "columns": page.names, "rows": page.rows}
        found[name] = shown | ({"hint": "; ".join(page.notes)} if page.notes else {})
    return found


def _downloads(request: MCPRequest, exposure: Exposure, payload: Mapping[str, Any]) -> dict[str, str]:
    """Return a URL for each file of the shown record, where there are such URLs."""
    links: dict[str, str] = {}
    for name, value in payload["fields"].items():
        if value and is_file(exposure, name):
            url = download_url(request, replace(parse_uri(payload["uri"]), field_name=name))
            links |= {name: url} if url is not None else {}
    return links


def _chosen(
    request: MCPRequest, exposure: Exposure, row: Model, value: Any
) -> tuple[list[str] | None, list[str] | None, list[Column]]:
    """Return the fields and the inlines to show, None for all of them, and the columns of related rows."""
    if value is None:
        return None, None, []
    shown = visible_fields(request, exposure, row)
    # The URL is there anyway.
    wanted = [name for name in names_argument(value, "fields", MAX_FIELDS) if name != ADMIN_URL or name in shown]
    inlines = {inline.name for inline in inlines_of(request, exposure, row)}
    # The page of this row may show what pages of others do not.
    others = [name for name in wanted if name not in inlines and name not in shown]
    columns = fields_argument(request, exposure, others) if others else ()
    names = [name for name in wanted if name in shown and name not in inlines]
    names += [column.name for column in columns if column.name in shown]
    return names, [name for name in wanted if name in inlines], [column for column in columns if column.through]


def _of_related_rows(request: MCPRequest, exposure: Exposure, row: Model, columns: Sequence[Column]) -> dict[str, Any]:
    """Return what the columns of related rows hold, by their names."""
    if not columns:
        return {}
    paths = [path for part in exposure.opts.pk_fields if (path := resolve_path(exposure.model, part.name)) is not None]
    conditions = tuple(Condition(path, "exact", (getattr(row, path.field.attname),)) for path in paths)
    guarded, order = guarded_values(request, exposure, columns), total_order(exposure, ())
    page = read_page(request, PageQuery(exposure, tuple(columns), order, 1, conditions, guarded=guarded))
    return dict(zip(page.names, page.rows[0], strict=True)) if page.rows else {}
