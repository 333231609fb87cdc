"""Where an action sends people afterwards, for a caller who has no browser: a row, a list, or nowhere in particular.

The addresses of pages are never passed on, and what the caller may not see is told like any other page.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final
from urllib.parse import urljoin, urlsplit

from django.contrib.admin.utils import unquote
from django.http import HttpResponseBase
from django.urls import Resolver404, get_script_prefix, resolve

from ..conf import settings
from ..context.request import Exposure, MCPRequest
from ..exceptions import NotFound
from ..orm.access import get_row, visible_exposures
from ..orm.columns import render
from ..orm.labels import label_of
from ..orm.uris import row_uri

__all__ = ["Destination", "destination", "own_view"]

LIST: Final = "_changelist"
# The views of the admin itself, which have tools of their own.
DJANGOS: Final = frozenset({"_add", "_change", "_changelist", "_delete", "_history"})
ELSEWHERE: Final = "The action redirected to another admin page; what that page does was not done."


@dataclass(frozen=True, slots=True)
class Destination:
    """A row (``model``, ``pk``, ``label``, ``uri``), or a ``note`` on what else it is; "" for the way back."""

    note: str = ""
    record: Mapping[str, Any] | None = None


def own_view(request: MCPRequest, path: str) -> Callable[..., HttpResponseBase] | None:
    """Return the view at a path if it is one that the model's admin has beside Django's, None for any other.

    ``request`` is the one that the action got: what it was posted to is the list of the model.
    """
    here = request.resolver_match
    if here is None or not (here.url_name or "").endswith(LIST):
        return None
    try:
        match = resolve("/" + path.removeprefix(get_script_prefix()))
    except Resolver404:
        return None
    model, name = (here.url_name or "").removesuffix(LIST), match.url_name or ""
    own = match.namespaces == here.namespaces and name.startswith(f"{model}_")
    if not own or match.args or name.removeprefix(model) in DJANGOS:
        return None
    return partial(match.func, **match.kwargs)


def destination(request: MCPRequest, location: str) -> Destination:
    """Return where a redirect leads. ``request`` is the one that the action got."""
    target = urlsplit(urljoin(request.path, location))
    if target.netloc and target.netloc not in (request.META.get("HTTP_HOST"), urlsplit(settings.BASE_URL or "").netloc):
        return Destination(ELSEWHERE)
    if target.path == request.path:
        return Destination()
    try:
        match = resolve("/" + target.path.removeprefix(get_script_prefix()))
    except Resolver404:
        return Destination(ELSEWHERE)
    if "admin" not in match.app_names:
        return Destination(ELSEWHERE)
    for exposure in visible_exposures(request):
        page = f"{exposure.opts.app_label}_{exposure.opts.model_name}_"
        if match.url_name == f"{page}change":
            return _row(request, exposure, unquote(match.kwargs["object_id"]))
        if match.url_name == f"{page}changelist":
            return Destination(f"The action leads on to a list of {exposure.label}.")
    return Destination(ELSEWHERE)


def _row(request: MCPRequest, exposure: Exposure, pk: str) -> Destination:
    try:
        row = get_row(request, exposure, pk)
    except NotFound:
        return Destination(ELSEWHERE)
    uri, label = row_uri(exposure, row.pk), label_of(exposure, row)
    return Destination(record={"model": exposure.label, "pk": render(row.pk), "label": label, "uri": uri})
