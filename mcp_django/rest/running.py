"""Running a route as Django would run it for a REST client: the view decides everything itself."""

import json
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from django.core.exceptions import PermissionDenied, RequestDataTooBig
from django.core.handlers.base import BaseHandler
from django.http import Http404, HttpResponseBase, QueryDict
from rest_framework.exceptions import APIException
from rest_framework.parsers import JSONParser
from rest_framework.renderers import JSONRenderer
from rest_framework.response import Response

from ..context.request import MCPRequest
from ..exceptions import ToolError
from ..schema.jsonable import to_jsonable
from .errors import refuse
from .file_links import link_files
from .probing import view_for
from .requests import RestRequest, rest_request
from .routes import Route


def run(
    request: MCPRequest, route: Route, kwargs: Mapping[str, Any], query: QueryDict, body: Any
) -> tuple[RestRequest, HttpResponseBase]:
    """Return the request that the view got and its response; in a transaction where ``ATOMIC_REQUESTS`` says so.

    Raises:
        ToolError: the body is larger than Django takes.
    """
    made = rest_request(request, route, kwargs, path=route.path(kwargs), query=query, body=body)
    handler: Any = BaseHandler().make_view_atomic(_speaking_json(route, view_for(route, made, kwargs, {})))
    try:
        response = handler(made, **kwargs)
    except RequestDataTooBig:
        raise ToolError("The arguments are larger than this project takes.") from None
    link_files(request, getattr(response, "data", None))
    return made, response


def check_object(request: MCPRequest, route: Route, kwargs: Mapping[str, Any], *, throttled: bool) -> None:
    """Check that the caller may do to a row what the route does, without doing it.

    Raises:
        NotFound: there is none for this caller.
        ToolError: the view refuses.
    """
    view = view_for(route, rest_request(request, route, kwargs, path=route.path(kwargs)), kwargs, {})
    try:
        view.check_permissions(view.request)
        if throttled:
            view.check_throttles(view.request)
        # REST framework asserts that there are rows: a view may do without.
        if route.callback.initkwargs.get("detail") and hasattr(view, "get_object"):
            with suppress(AssertionError):
                view.get_object()
    except Exception as error:
        # As the view would answer it.
        refuse(route, view.finalize_response(view.request, view.handle_exception(error)))


def show_object(request: MCPRequest, route: Route, kwargs: Mapping[str, Any]) -> Any:
    """Return the data with which a view shows a row to the caller, None where it does not.

    It is the second half of a call that counts already: throttles are left out.
    """
    view = view_for(route, rest_request(request, route, kwargs, path=route.path(kwargs)), kwargs, {})
    try:
        view.check_permissions(view.request)
        response = getattr(view, route.action)(view.request, **kwargs)
    except (APIException, PermissionDenied, Http404):
        return None
    if not isinstance(response, Response) or response.status_code != 200:
        return None
    link_files(request, response.data)
    return to_jsonable(json.loads(JSONRenderer().render(response.data) or b"null"))


def _speaking_json(route: Route, view: Any) -> Any:
    """Return the view function, which reads and writes JSON even where REST clients have to use something else."""
    initkwargs = route.callback.initkwargs
    other: dict[str, Any] = {}
    if not any(_is_json(item.media_type) for item in view.get_renderers()):
        other["renderer_classes"] = [JSONRenderer]
    if not any(_is_json(item.media_type) for item in view.get_parsers()):
        other["parser_classes"] = [JSONParser]
    if not other:
        return route.callback
    return route.viewset.as_view({route.method: route.action}, **{**initkwargs, **other})


def _is_json(media_type: str | None) -> bool:
    plain = (media_type or "").split(";")[0].strip()
    return plain in ("application/json", "*/*", "application/*")
