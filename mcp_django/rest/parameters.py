"""Query parameters of a list: those of a ViewSet's filter backends and of its paginator."""

import inspect
import logging
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from rest_framework.filters import OrderingFilter, SearchFilter

from ..exceptions import ToolError
from ..orm.patterns import is_pattern_lookup, matches_here
from ..orm.wording import alternatives
from ..schema.forms import field_schema
from .routes import Route

logger = logging.getLogger("mcp_django")

KINDS: Final = frozenset({"string", "integer", "number", "boolean", "array"})
MAX_NAMED: Final = 40

Schemas = dict[str, dict[str, Any]]


def query_parameters(route: Route, view: Any) -> Schemas:
    """Return the schemas of the query parameters that the route takes, by name.

    Filters and pages belong to ``list`` and to extra actions whose code filters or paginates.
    """
    found: Schemas = {}
    if route.method == "get":
        if _uses(route, "filter_queryset"):
            for backend in getattr(view, "filter_backends", ()):
                found |= _of_backend(backend(), view)
        paginator = getattr(view, "paginator", None)
        if paginator is not None and _uses(route, "paginate_queryset"):
            found |= _operation_parameters(paginator, view)
            number = getattr(paginator, "page_query_param", None)
            if number in found and found[number]["type"] == "integer":
                found[number]["minimum"] = 1
    declared = route.registration.parameters.get(route.action, {})
    return found | {name: dict(schema) for name, schema in declared.items()}


def ordering_names(view: Any) -> dict[str, list[str]]:
    """Return the names that may be ordered by, for each query parameter that orders."""
    found = {}
    for backend in getattr(view, "filter_backends", ()):
        if issubclass(backend, OrderingFilter):
            names = _ordering_of(backend(), view)
            if names is not None:
                found[str(backend.ordering_param)] = names
    return found


def check_ordering(known: Mapping[str, Iterable[str]], given: Mapping[str, Any]) -> None:
    """Check what the caller orders by: REST framework passes over a name that it does not know.

    Raises:
        ToolError: a name is not one of the view's.
    """
    for parameter, names in known.items():
        for term in str(given.get(parameter, "")).split(","):
            name = term.strip().removeprefix("-")
            if name and name not in names:
                raise ToolError(f"Rows cannot be ordered by {name[:60]!r}. {alternatives(name, names)}")


def _uses(route: Route, method: str) -> bool:
    """Return whether the route's own code calls a method of the view."""
    if route.action == "list":
        return True
    code = getattr(inspect.unwrap(route.handler), "__code__", None)
    return route.method == "get" and code is not None and method in code.co_names


def _of_backend(backend: Any, view: Any) -> Schemas:
    if hasattr(backend, "get_filterset_class"):
        return _of_filterset(backend, view)
    if isinstance(backend, SearchFilter) and _searches_by_pattern(backend, view):
        return {}
    found = _operation_parameters(backend, view)
    if isinstance(backend, OrderingFilter) and (names := _ordering_of(backend, view)) is not None:
        schema = found.setdefault(str(backend.ordering_param), {"type": "string"})
        shown = ", ".join(names[:MAX_NAMED])
        schema["description"] = f"Comma list of {shown}; - before a name reverses it"
    return found


def _searches_by_pattern(backend: Any, view: Any) -> bool:
    """Return whether what is searched for would be a regular expression that this process has to match."""
    names = backend.get_search_fields(view, view.request) or ()
    takes = any(name.startswith("$") or is_pattern_lookup(name) for name in names)
    return takes and matches_here(_queryset(view).db)


def _operation_parameters(source: Any, view: Any) -> Schemas:
    """Return what a filter backend or a paginator says of its own query parameters."""
    describe = getattr(source, "get_schema_operation_parameters", None)
    found: Schemas = {}
    for item in describe(view) if describe is not None else ():
        if item.get("in") == "query" and item.get("name"):
            schema = item.get("schema") or {}
            kind = schema.get("type")
            known: dict[str, Any] = {"type": kind if kind in KINDS else "string"}
            if known["type"] == "array":
                known["items"] = {"type": "string"}
            if isinstance(schema.get("enum"), list):
                known["enum"] = schema["enum"]
            text = str(item.get("description") or "").strip()
            found[str(item["name"])] = {**known, "description": text} if text else known
    return found


def _of_filterset(backend: Any, view: Any) -> Schemas:
    """Return the filters of django-filter, which are fields of a form."""
    queryset = _queryset(view)
    filterset = backend.get_filterset_class(view, queryset)
    if filterset is None:
        return {}
    # An instance has filters of its own: those of the class keep what is first made of them.
    return dict(_filters(filterset(queryset=queryset.all(), request=view.request)))


def _filters(filterset: Any) -> Iterator[tuple[str, dict[str, Any]]]:
    for name, item in filterset.filters.items():
        if is_pattern_lookup(str(item.lookup_expr)) and matches_here(filterset.queryset.db):
            continue
        widget = item.extra.get("widget") or getattr(item.field_class, "widget", None)
        # A range is two parameters, such as price_min and price_max.
        for suffix in getattr(widget, "suffixes", None) or [""]:
            yield (f"{name}_{suffix}" if suffix else name), _filter_schema(filterset, item)


def _filter_schema(filterset: Any, item: Any) -> dict[str, Any]:
    if any(kind.__name__.startswith("AllValues") for kind in type(item).__mro__) or filterset.request is None:
        # Its choices are the values of all rows, of those too that the caller may not see.
        return {"type": "string"}
    schema = field_schema(item.field)
    if hasattr(item.field.widget, "surrogate"):
        note = " ".join(filter(None, [schema.get("description", ""), "(several, separated by commas)"]))
        return {"type": "string", "description": note}
    return schema


def _queryset(view: Any) -> Any:
    queryset = getattr(view, "queryset", None)
    return queryset if queryset is not None else view.get_queryset()


def _ordering_of(backend: Any, view: Any) -> list[str] | None:
    try:
        valid = backend.get_valid_fields(_queryset(view), view, {"request": view.request})
    except Exception:
        logger.debug("What %r may be ordered by is not known", view, exc_info=True)
        return None
    return [str(name) for name, _ in valid]
