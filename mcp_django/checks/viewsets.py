"""System check of registered ViewSets: secrets and rights in their serializers that nobody named."""

from collections.abc import Iterator
from typing import Any, Final

from django.core.checks import CheckMessage
from rest_framework.serializers import HiddenField, ListSerializer, Serializer

from ..schema.secrets import is_withheld
from .check_rules import Check, check, problem
from .declarations import all_sites

DEPLOYMENT_CHECKS: Final[list[Check]] = []
# Maximum depth of serializers within serializers: ``Meta.depth`` is at most 10.
MAX_DEPTH: Final = 12


@check(DEPLOYMENT_CHECKS)
def check_serializers() -> Iterator[CheckMessage]:
    """Find ViewSets whose serializers have a field that is a secret or gives rights, which ``Meta.fields`` does not
    name."""
    unnamed: dict[Any, dict[str, None]] = {}
    for checked in all_sites():
        for tool in checked.function_tools():
            # Only the tool of a ViewSet has a route; a project need not use ViewSets.
            route = getattr(tool, "route", None)
            if route is not None:
                paths = unnamed.setdefault(route.viewset, {})
                paths.update(dict.fromkeys(_unnamed_fields_of_route(route)))
    for viewset, paths in unnamed.items():
        if paths:
            text = f"{viewset.__name__} has fields that hold secrets or give rights, and that no Meta.fields names: "
            hint = "List the fields in Meta.fields of the serializer, with these only if callers may read or set them."
            yield problem("W053", f"{text}{', '.join(paths)}.", hint, viewset)


def _unnamed_fields_of_route(route: Any) -> list[str]:
    serializer_class = _serializer_class(route)
    if serializer_class is None:
        return []
    # The code of the project may need the request, which a check does not have.
    try:
        return list(_unnamed_fields(serializer_class(context={"request": None})))
    except Exception:
        return []


def _serializer_class(route: Any) -> Any:
    """Return the serializer class of a route as far as it is known without a request, None for none."""
    view = route.view_without_request()
    try:
        return view.get_serializer_class()
    except Exception:
        return getattr(view, "serializer_class", None)


def _unnamed_fields(serializer: Any, before: str = "", depth: int = 0) -> Iterator[str]:
    """Yield the paths of the withheld fields that neither ``Meta.fields`` nor the class of their serializer names."""
    if isinstance(serializer, ListSerializer):
        serializer = serializer.child
    if not isinstance(serializer, Serializer) or depth > MAX_DEPTH:
        return
    meta = getattr(serializer, "Meta", None)
    model = getattr(meta, "model", None)
    listed = getattr(meta, "fields", None)
    named = set(serializer._declared_fields)
    if isinstance(listed, (list, tuple)):
        named.update(listed)
    for name, field in serializer.fields.items():
        path = f"{before}{name}"
        is_named = name in named or isinstance(field, HiddenField)
        if model is not None and not is_named and is_withheld(field.source, model):
            yield path
        yield from _unnamed_fields(field, f"{path}.", depth + 1)
