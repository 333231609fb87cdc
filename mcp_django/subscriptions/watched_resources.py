"""Watched resources: what a caller can watch at a URI, and whether they may see a change of its rows.

The rules are the same as for reading: a row counts if the caller can read it, and a page if its rows do. A row that
still exists, but that the caller can no longer see, causes no notification.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final, TypeVar

import orjson
from django.db import router
from django.db.models import Model

from ..context.request import MCPRequest
from ..exceptions import CallRefused, NotFound, ToolError
from ..exposures.model_exposure import ModelExposure
from ..orm.access import ModelAccess, access_of
from ..orm.column_values import pk_text
from ..orm.pagination import chunks
from ..orm.row_arguments import RowArguments
from ..orm.uris import ParsedURI
from ..protocol.errors import InvalidParams
from ..resources.model_resources import Resources
from ..tools.model_description import Description

T = TypeVar("T")

PERMISSION_LOST: Final = "a permission was lost"
# Maximum number of rows that are checked if it is unknown which ones have changed.
SAMPLE: Final = 20
# Number of changed rows that are looked up at once to find one that the reader of a page may view.
STEP: Final = 100


@dataclass(frozen=True, slots=True)
class Watch:
    """What stands at a URI, as the client spelt it: a row or a file of it, a page, or anything else.

    ``label`` and ``pk`` are those of the row; a page has no ``pk``, and a resource without rows has no ``label``.
    """

    uri: str
    label: str = ""
    pk: str | None = None
    field: str | None = None

    @property
    def is_page(self) -> bool:
        return bool(self.label) and self.pk is None

    @property
    def is_schema(self) -> bool:
        return not self.label and self.uri.startswith(ParsedURI.SCHEME)


class Rows:
    """Rows by their primary keys, as callers see them; rows that look the same for all callers are read once.

    ``wanted`` are the keys, by label, that will be looked up for some caller.
    """

    def __init__(self, wanted: Mapping[str, Iterable[str]]) -> None:
        self._wanted = {label: set(pks) for label, pks in wanted.items()}
        self._shared: dict[ModelExposure, dict[str, Model | None]] = defaultdict(dict)
        self._existing: dict[tuple[str, str], bool] = {}

    def visible(self, model: ModelAccess, pks: Collection[str]) -> dict[str, Model]:
        """Return those of the rows that the caller may view; the caller must have access to the model."""
        if model.exposure.options.has_every_row:
            shared = self._shared_rows(model, pks)
            rows = {pk: row for pk in pks if (row := shared[pk]) is not None}
        else:
            rows = _read(model, pks)
        return {pk: row for pk, row in rows.items() if model.may_row("view", row)}

    def _shared_rows(self, model: ModelAccess, pks: Collection[str]) -> Mapping[str, Model | None]:
        shared = self._shared[model.exposure]
        if not shared.keys() >= set(pks):
            missing = self._wanted.get(model.exposure.label, set()).union(pks) - shared.keys()
            shared.update(dict.fromkeys(missing))
            shared.update(_read(model, missing))
        return shared

    def gone(self, model: ModelAccess, pks: Collection[str]) -> set[str]:
        exposure = model.exposure
        if exposure.options.has_every_row:
            shared = self._shared_rows(model, pks)
            return {pk for pk in pks if shared[pk] is None}
        values = _values(model, [pk for pk in pks if (exposure.label, pk) not in self._existing])
        using = router.db_for_read(exposure.model)
        for some in chunks(list(values.values())):
            rows = exposure.model._base_manager.using(using).filter(pk__in=some).values_list("pk", flat=True)
            self._existing.update(((exposure.label, pk_text(pk)), True) for pk in rows)
        return {pk for pk in pks if not self._existing.setdefault((exposure.label, pk), False)}


def _values(model: ModelAccess, pks: Iterable[str]) -> dict[str, Any]:
    keys = {}
    for pk in pks:
        try:
            keys[pk] = model.parse_pk(pk)
        except NotFound:
            continue
    return keys


def _read(model: ModelAccess, pks: Iterable[str]) -> dict[str, Model]:
    exposure = model.exposure
    rows: dict[str, Model] = {}
    for some in chunks(list(_values(model, pks).values())):
        rows.update((pk_text(row.pk), row) for row in exposure.get_queryset(model.request).filter(pk__in=some))
    return rows


def any_visible(model: ModelAccess) -> bool:
    """Return whether the caller may view any of the first ``SAMPLE`` rows of the model."""
    return any(model.may_row("view", row) for row in model.exposure.get_queryset(model.request)[:SAMPLE])


def content_digest(request: MCPRequest, watch: Watch) -> int:
    """Return a digest of a page's rows or of a schema, which differs after a change."""
    address = ParsedURI.read(watch.uri)
    model = access_of(request).get_model(address.label)
    if address.is_schema:
        return hash(orjson.dumps(Description(model).in_lines(), default=str))
    try:
        query = RowArguments(model, address.query).query()
        pages = query.rows(model.exposure.get_queryset(request))
        pks = (pk for rows in pages for pk in rows.values_list("pk", flat=True))
        return hash(tuple(islice(pks, query.limit + 1)))
    except (CallRefused, ToolError, InvalidParams):
        raise NotFound from None


def list_digests(request: MCPRequest) -> dict[str, int]:
    """Return a digest of each list of the caller: tools, prompts and resources."""
    site = request.mcp.site
    resources = Resources(request)
    names = [item.get("uri") or item["uriTemplate"] for item in [*resources.list(None)[0], *resources.templates()]]
    names += [exposure.label for exposure in access_of(request).exposures]
    return {
        "tools": hash(tuple(tool.name for tool in site.get_tools(request))),
        "prompts": hash(tuple(prompt.name for prompt in site.get_prompts(request))),
        "resources": hash(tuple(names)),
    }


def is_readable(request: MCPRequest, watch: Watch) -> bool:
    """Return whether the caller may read a resource that is neither a row nor a page."""
    function = request.mcp.site.get_function_resource(request, watch.uri)
    if function is not None:
        return function.has_scopes(request)
    try:
        access_of(request).get_model(ParsedURI.read(watch.uri).label)
    except (NotFound, CallRefused):
        return False
    return True


def reason_lost(request: MCPRequest, watch: Watch) -> str:
    """Return why the caller may no longer watch the resource, "" if the caller still may."""
    try:
        if not watch.label:
            if is_readable(request, watch):
                return ""
            return PERMISSION_LOST
        access_of(request).get_model(watch.label)
    except NotFound:
        return PERMISSION_LOST
    except CallRefused as refused:
        return refused.message
    return ""


def needs_digest(request: MCPRequest, watch: Watch) -> bool:
    """Return whether only a digest can show a change: of a schema, or of a page of restricted rows."""
    if watch.is_schema:
        return True
    return watch.is_page and not request.mcp.site.find_exposure(watch.label).options.has_every_row


def shows(model: ModelAccess, watch: Watch, row: Model) -> bool:
    if watch.field is None:
        return True
    return watch.field in model.fields_of(row) and model.is_file(watch.field)


# Subscribing


def find_watches(request: MCPRequest, uris: Sequence[str]) -> list[Watch]:
    """Return the resources at these URIs that the caller may watch; others are left out."""
    watches = [watch for uri in dict.fromkeys(uris) if (watch := _asked(request, uri)) is not None]
    rows: dict[str, set[str]] = defaultdict(set)
    for watch in watches:
        if watch.pk is not None:
            rows[watch.label].add(watch.pk)
    reader = Rows(rows)
    models = {label: access_of(request)[request.mcp.site.find_exposure(label)] for label in rows}
    visible = {label: reader.visible(models[label], pks) for label, pks in rows.items()}
    readable = []
    for watch in watches:
        row = visible[watch.label].get(watch.pk) if watch.pk is not None else None
        if watch.pk is None or (row is not None and shows(models[watch.label], watch, row)):
            readable.append(watch)
    return readable


def _asked(request: MCPRequest, uri: str) -> Watch | None:
    """Return the resource that the caller may watch at a URI, whether or not its row exists."""
    function = request.mcp.site.get_function_resource(request, uri)
    if function is not None:
        return Watch(uri) if function.has_scopes(request) else None
    try:
        address = ParsedURI.read(uri)
        if address.label != address.label.lower():
            return None
        model = access_of(request).get_model(address.label)
        exposure = model.exposure
        if address.is_schema:
            return Watch(uri)
        if address.pk is None:
            RowArguments(model, address.query).query()
            return Watch(uri, exposure.label)
        return Watch(uri, exposure.label, pk_text(model.parse_pk(address.pk)), address.field_name)
    except (NotFound, CallRefused, ToolError, InvalidParams):
        return None
