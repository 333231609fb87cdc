"""The tools of a ViewSet: one for each of its actions under each HTTP method."""

import copy
import inspect
from collections.abc import Mapping
from typing import Any, Final

import orjson

from ..conf import settings
from ..context.confirmation import can_ask, confirm, issue, one_line, redeem
from ..context.request import MCPRequest
from ..context.results import ToolResult
from ..orm.arguments import IGNORED
from ..schema.jsonable import clean_text
from ..scopes import READ, WRITE
from ..tools.base import Tool
from .parameters import Inputs, check_unicode, inputs_of, path_arguments
from .requests import check_object, is_permitted, probe, rest_request, run, show_object, view_for
from .responses import read_answer
from .routes import Route

TITLES: Final[Mapping[str, str]] = {
    "list": "List {many}",
    "retrieve": "Retrieve {one}",
    "create": "Create {one}",
    "update": "Replace {one}",
    "partial_update": "Change {one}",
    "destroy": "Delete {one}",
}
NOTES: Final[Mapping[str, str]] = {
    "list": "next holds the arguments that change for the next page.",
    "update": "What is left out gets its default; to change single fields, use the tool for that.",
    "partial_update": "Fields that are left out keep their values.",
}
ASKS: Final = "The first call does nothing: it shows the row and gives a confirm_token; the same call with it goes on."
NEXT: Final = "Nothing has been done yet. If it is right, call again with the same arguments and confirm_token."
MAX_DESCRIPTION: Final = 1_000
MAX_SHOWN: Final = 2_000


class ViewSetTool(Tool):
    """One route of a ViewSet. ``shown_by`` is the route that shows what this one deletes, where there is one."""

    slow = True

    def __init__(self, route: Route, shown_by: Route | None = None) -> None:
        self.route = route
        self.shown_by = shown_by
        self.name = route.name
        self.title = self._title()
        self.read_only = route.method == "get"
        self.scopes = frozenset({READ if self.read_only else WRITE})
        self.destructive = not self.read_only and route.action != "create"
        self.idempotent = route.method in ("get", "put", "delete")
        self.confirms = route.method == "delete" or route.action in route.registration.confirm
        self.description = self._description()

    def _title(self) -> str:
        route = self.route
        if not route.is_standard:
            method = "" if route.alone else f", {route.method.upper()}"
            return f"{route.callback.initkwargs.get('name') or route.action}{method} ({route.registration.name})"
        model = getattr(getattr(route.viewset, "queryset", None), "model", None)
        name = route.registration.name.replace("_", " ")
        one, many = (model._meta.verbose_name, model._meta.verbose_name_plural) if model is not None else (name, name)
        return TITLES[route.action].format(one=one, many=many)

    def _description(self) -> str:
        route = self.route
        # What the mixins of REST framework say of themselves is about code.
        own = not getattr(route.handler, "__module__", "").startswith("rest_framework.")
        text = inspect.getdoc(route.handler) if own else None
        parts = [text or f"{self.title}.", NOTES.get(route.action, ""), ASKS if self.confirms else ""]
        about = vars(route.viewset).get("__doc__")
        if route.is_standard and not text and about:
            parts.insert(1, inspect.cleandoc(about).split("\n\n")[0])
        return "\n".join(part for part in parts if part)[:MAX_DESCRIPTION]

    def has_permission(self, request: MCPRequest) -> bool:
        """Return whether the view's permissions admit the caller, as far as they need no row."""
        narrowing = request.mcp.narrowing
        model = getattr(getattr(self.route.viewset, "queryset", None), "model", None)
        if narrowing is not None and model is not None and not narrowing.admits(model):
            return False
        return is_permitted(request, self.route)

    def for_caller(self, request: MCPRequest) -> Tool:
        """Return the tool with the arguments that the view has for this caller: its serializer may depend on it."""
        bound = copy.copy(self)
        bound.input_schema = inputs_of(self.route, probe(request, self.route), confirms=self.confirms).schema
        return bound

    def call(self, request: MCPRequest, arguments: dict[str, Any]) -> ToolResult:
        """See :meth:`Tool.call`."""
        model = getattr(getattr(self.route.viewset, "queryset", None), "model", None)
        if model is not None:
            request.mcp.record.model = model._meta.label_lower
        given = {name: value for name, value in arguments.items() if name not in IGNORED}
        if given.get("confirm_token") == "":
            del given["confirm_token"]
        check_unicode(given)
        kwargs = {**self.route.match(path_arguments(self.route, given)).kwargs}
        inputs = self._inputs(request, kwargs)
        inputs.check(given)
        query = inputs.query_of(given)
        body = inputs.body_of(given) if self.route.method in ("post", "put", "patch") else None
        if self.confirms:
            asked = self._ask(request, kwargs, given)
            if asked is not None:
                return asked
        made, response = run(request, self.route, kwargs, query, body)
        result = read_answer(self.route, made, response, inputs, given)
        self._note(request, result)
        return result

    def _note(self, request: MCPRequest, result: ToolResult) -> None:
        """Have the record of the call say how many rows it read or changed, as far as the answer tells."""
        record = request.mcp.record
        if not self.read_only:
            record.rows_changed += 1
        elif self.route.action == "list":
            members = (result.structured or {}).values()
            record.rows_read += max((len(value) for value in members if isinstance(value, list)), default=0)
        else:
            record.rows_read += 1

    def _inputs(self, request: MCPRequest, kwargs: Mapping[str, Any]) -> Inputs:
        view = view_for(self.route, rest_request(request, self.route, kwargs), kwargs, {})
        return inputs_of(self.route, view, confirms=self.confirms)

    # Asking

    def _ask(self, request: MCPRequest, kwargs: Mapping[str, Any], given: Mapping[str, Any]) -> ToolResult | None:
        """Return the preview of a call that has yet to be confirmed, None if it is confirmed."""
        confirmed = given.get("confirm_token") is not None
        check_object(request, self.route, kwargs, throttled=not confirmed and not can_ask(request))
        shown = self._shown(request, kwargs)
        own = {name: value for name, value in given.items() if name != "confirm_token"}
        bound = (self.name, own, [orjson.dumps(shown, default=str).decode()])
        if confirmed:
            redeem(request, given["confirm_token"], *bound)
            return None
        message = f"{self.title}: this cannot be undone by itself."
        if can_ask(request):
            confirm(request, f"{message}\n\n{one_line(bound[2][0])[:MAX_SHOWN]}", bound[2])
            return None
        return ToolResult(
            structured={
                "confirmation_required": True,
                "message": message,
                "shown": shown,
                "next": NEXT,
                "confirm_token": issue(request, *bound),
                "expires_in": settings.CONFIRMATION_MAX_AGE,
            }
        )

    def _shown(self, request: MCPRequest, kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """Return what the caller may see of what the call is about: who may delete need not be one who may look."""
        about = {name: clean_text(str(value), 200) for name, value in kwargs.items()}
        row = show_object(request, self.shown_by, kwargs) if self.shown_by is not None else None
        return about if row is None else {**about, "row": row}
