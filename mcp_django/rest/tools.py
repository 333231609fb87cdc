"""A ViewSet as tools, one for each of its actions under each HTTP method, and its rows as resources.

The resources are ``rest://orders{?page}`` for a page and ``rest://orders/{pk}`` for a row.
"""

import copy
import inspect
import logging
import re
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from keyword import iskeyword
from typing import Any, Final
from urllib.parse import quote, urlencode

import orjson
from django.core.exceptions import ImproperlyConfigured
from rest_framework.viewsets import ViewSetMixin

from ..context.confirmation import one_line
from ..context.person_consent import confirmation_class, needs_person
from ..context.previews import Preview
from ..context.request import MCPRequest
from ..context.tool_results import ToolResult
from ..exceptions import NotFound, ToolError
from ..protocol.uri_templates import UriTemplate
from ..resources.function_resources import FunctionResource
from ..schema.arguments import ArgumentSchema
from ..schema.secrets import clean_text
from ..scopes import Scope
from ..tools.base import Tool
from .parameters import check_unicode, inputs_of, path_arguments, query_parameters, queryset_of
from .requests import check_object, is_permitted, probe, rest_request, run, show_object, view_for
from .responses import LINKS, read_answer
from .routes import Registration, Route, base_name, routes_of

TITLES: Final[Mapping[str, str]] = {
    "list": "List {many}",
    "retrieve": "Retrieve {one}",
    "create": "Create {one}",
    "update": "Replace {one}",
    "partial_update": "Change {one}",
    "destroy": "Delete {one}",
}
# What the methods do to a row, as approval rules call it.
KINDS: Final[Mapping[str, str]] = {
    "create": "create",
    "update": "update",
    "partial_update": "update",
    "destroy": "delete",
}
NOTES: Final[Mapping[str, str]] = {
    "list": "next holds the arguments that change for the next page.",
    "update": "What is left out gets its default; to change single fields, use the tool for that.",
    "partial_update": "Fields that are left out keep their values.",
}
ASKS: Final = "The first call changes nothing: it shows the row and gives a confirm_token; repeat the call with it."
ASKS_PERSON: Final = "The call changes nothing: the user confirms it on a page."
MAX_DESCRIPTION: Final = 1_000
MAX_SHOWN: Final = 2_000


class ViewSetTool(Tool):
    """The tool for one route of a REST framework ViewSet.

    ``shown_by`` is the route that shows a row before this one changes or deletes it, None if there is none.
    """

    slow = True

    def __init__(self, route: Route, shown_by: Route | None = None) -> None:
        self.route = route
        self.shown_by = shown_by
        self.name = route.name
        if route.is_standard:
            opts = self._model and self._model._meta
            plain = route.registration.name.replace("_", " ")
            one, many = (opts.verbose_name, opts.verbose_name_plural) if opts else (plain, plain)
            self.title = TITLES[route.action].format(one=one, many=many)
        else:
            method = "" if route.alone else f", {route.method.upper()}"
            called = route.callback.initkwargs.get("name") or route.action
            self.title = f"{called}{method} ({route.registration.name})"
        self.read_only = route.method == "get"
        self.scopes = frozenset({Scope.READ if self.read_only else Scope.WRITE})
        harmless = route.action == "create" or getattr(route.handler, "mcp_destructive", None) is False
        self.destructive = not self.read_only and not harmless
        self.idempotent = route.method in ("get", "put", "delete")
        # As in the admin, a change of one row needs no confirmation, but any other action that may destroy something.
        own_action = self.destructive and not route.is_standard
        self.confirms = route.method == "delete" or own_action or route.action in route.registration.confirm
        # The docstrings of REST framework's mixins are about code, not about the tool.
        own = not getattr(route.handler, "__module__", "").startswith("rest_framework.")
        text = inspect.getdoc(route.handler) if own else None
        parts = [text or f"{self.title}.", NOTES.get(route.action, "")]
        about = vars(route.viewset).get("__doc__")
        if route.is_standard and not text and about:
            parts.insert(1, inspect.cleandoc(about).split("\n\n")[0])
        self.description = _described(*parts, ASKS if self.confirms else "")
        self.description_by_person = _described(*parts, ASKS_PERSON if self.confirms else "")

    def only_person_confirms(self) -> bool:
        """Return whether only a person can confirm calls of the tool."""
        return self.confirms and needs_person(deletes=self.route.method == "delete", rows=1)

    @property
    def _model(self) -> Any:
        return getattr(getattr(self.route.viewset, "queryset", None), "model", None)

    def has_permission(self, request: MCPRequest) -> bool:
        """Return whether the ViewSet's permissions let the caller use the tool, as far as is known before the call."""
        narrowing = request.mcp.narrowing
        if narrowing is not None and self._model is not None and not narrowing.admits(self._model):
            return False
        return is_permitted(request, self.route)

    def for_caller(self, request: MCPRequest) -> Tool:
        """Return the tool with the arguments that the ViewSet has for this caller."""
        bound = copy.copy(self)
        bound.input_schema = inputs_of(self.route, probe(request, self.route), confirms=self.confirms).schema
        return bound

    def call(self, request: MCPRequest, arguments: dict[str, Any]) -> ToolResult:
        if self._model is not None:
            request.mcp.record.model = self._model._meta.label_lower
        given = {name: value for name, value in arguments.items() if name not in ArgumentSchema.IGNORED}
        if given.get("confirm_token") == "":
            del given["confirm_token"]
        check_unicode(given)
        kwargs = {**self.route.match(path_arguments(self.route, given)).kwargs}
        view = view_for(self.route, rest_request(request, self.route, kwargs), kwargs, {})
        inputs = inputs_of(self.route, view, confirms=self.confirms)
        inputs.check(given)
        query = inputs.query_of(given)
        body = inputs.body_of(given) if self.route.method in ("post", "put", "patch") else None
        is_approved = self._is_approved(request, view, {**kwargs, **given})
        if self.confirms or is_approved:
            asked = self._ask(request, kwargs, given)
            if asked is not None:
                return asked
        made, response = run(request, self.route, kwargs, query, body)
        result = read_answer(self.route, made, response, inputs, given)
        # Count the rows that the call read or changed, as far as its response tells.
        record = request.mcp.record
        if not self.read_only:
            record.rows_changed += 1
        elif self.route.action == "list":
            members = (result.structured or {}).values()
            record.rows_read += max((len(value) for value in members if isinstance(value, list)), default=0)
        else:
            record.rows_read += 1
        return result

    def _is_approved(self, request: MCPRequest, view: Any, given: Mapping[str, Any]) -> bool:
        """Return whether the call waits for the yes of another person."""
        approvals = request.mcp.approvals
        if approvals is None:
            return False
        model = self._model or _model_of(view)
        label = model._meta.label_lower if model is not None else ""
        approvals.check_arguments(given, label, KINDS.get(self.route.action, ""))
        return approvals.is_needed

    def _ask(self, request: MCPRequest, kwargs: Mapping[str, Any], given: Mapping[str, Any]) -> ToolResult | None:
        """Return the preview that has to be confirmed, None if it is confirmed."""
        token = given.get("confirm_token")
        check_object(request, self.route, kwargs, throttled=token is None and not request.mcp.can("elicitation"))
        # A caller who may delete the row need not be allowed to see it.
        shown: dict[str, Any] = {name: clean_text(str(value), 200) for name, value in kwargs.items()}
        row = show_object(request, self.shown_by, kwargs) if self.shown_by is not None else None
        if row is not None:
            shown["row"] = row
        own = {name: value for name, value in given.items() if name != "confirm_token"}
        text = orjson.dumps(shown, default=str).decode()
        message = f"{self.title}: this cannot be undone by itself."
        kind = confirmation_class(request, by_person=self.only_person_confirms())
        confirmation = kind(request, self.name, own, [text])
        question = f"{message}\n\n{one_line(text)[:MAX_SHOWN]}"
        return confirmation.confirm(token, Preview(message, question, {"shown": shown}))


def _model_of(view: Any) -> Any:
    """Return the model whose rows a view finds by its own code, None if that is not known."""
    with suppress(Exception):
        return queryset_of(view).model
    with suppress(Exception):
        return view.get_serializer_class().Meta.model
    return None


logger = logging.getLogger("mcp_django")

SCHEME: Final = "rest://"
JSON: Final = "application/json"
READ_BY: Final = ("list", "retrieve")
# Names that both a variable of a URI template and a parameter of a function can have.
NAME: Final = re.compile(r"(?!request$)[A-Za-z_][A-Za-z0-9_]{0,63}")


def _described(*parts: str) -> str:
    return "\n".join(part for part in parts if part)[:MAX_DESCRIPTION]


def resources_of(tool: ViewSetTool) -> Iterator[FunctionResource]:
    """Yield the resources that go with a tool: those of ``list`` and ``retrieve`` have some."""
    route = tool.route
    if route.action not in READ_BY or route.method != "get":
        return
    base = "/".join([SCHEME + quote(route.registration.name), *(f"{{{name}}}" for name in route.parameters)])
    if route.action == "list" and not route.parameters:
        yield _resource(tool, base, ())
    # The names of the query parameters that do not depend on the caller.
    query: list[str] = []
    if route.action == "list":
        view = route.view_without_request()
        try:
            schemas = query_parameters(route, view)
            query = [name for name in schemas if NAME.fullmatch(name) and not iskeyword(name)]
        except Exception:
            logger.debug("The query parameters of %s depend on the caller", route.name, exc_info=True)
    query = [name for name in query if name not in route.parameters]
    uri = f"{base}{{?{','.join(query)}}}" if query else base
    if UriTemplate(uri).is_template:
        yield _resource(tool, uri, query)


def _resource(tool: ViewSetTool, uri: str, query: Collection[str]) -> FunctionResource:
    def read(request: MCPRequest, **given: str) -> Any:
        arguments = {name: value for name, value in given.items() if value != "" or name in tool.route.parameters}
        try:
            result = tool.call(request, arguments)
        except ToolError as error:
            if tool.route.action == "retrieve":
                raise NotFound from None
            raise error
        payload = dict(result.structured or {})
        if tool.route.action == "list":
            return _with_links(uri, payload, arguments)
        return payload

    first = inspect.Parameter("request", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    parameters = []
    for name in (*tool.route.parameters, *query):
        default = "" if name in query else inspect.Parameter.empty
        parameters.append(inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=str, default=default))
    read.__signature__ = inspect.Signature([first, *parameters])  # type: ignore[attr-defined]
    return FunctionResource(
        uri,
        read,
        name=f"rest_{tool.name}",
        title=tool.title,
        description=tool.description.split("\n", 1)[0],
        mime_type=JSON,
        permission=tool.has_permission,
    )


def _with_links(uri: str, payload: dict[str, Any], arguments: Mapping[str, Any]) -> dict[str, Any]:
    base = uri.partition("{?")[0]
    for name, value in arguments.items():
        base = base.replace(f"{{{name}}}", quote(str(value), safe=""))
    for link in LINKS:
        if isinstance(changed := payload.get(link), dict):
            query = {name: value for name, value in {**arguments, **changed}.items() if value is not None}
            own = {name: value for name, value in query.items() if f"{{{name}}}" not in uri}
            payload[link] = f"{base}?{urlencode(own, doseq=True, quote_via=quote)}" if own else base
    return payload


def declare(
    prefix: str,
    viewset: Any,
    basename: str | None = None,
    *,
    name: str = "",
    namespace: str = "",
    kwargs: Mapping[str, Any] | None = None,
    actions: Collection[str] | None = None,
    confirm: Collection[str] = (),
    parameters: Mapping[str, Mapping[str, Mapping[str, Any]]] | None = None,
) -> tuple[list[ViewSetTool], list[FunctionResource]]:
    """Return the tools and the resources; see :meth:`mcp_django.sites.MCPSite.register_viewset`."""
    if not (isinstance(viewset, type) and issubclass(viewset, ViewSetMixin)):
        raise ImproperlyConfigured(f"{viewset!r} is not a ViewSet of REST framework.")
    for option, value in (("actions", actions), ("confirm", confirm)):
        if isinstance(value, str):
            raise ImproperlyConfigured(f'{option} must be a list such as ["list", "retrieve"].')
    chosen = name or base_name(prefix)
    queryset = getattr(viewset, "queryset", None)
    registration = Registration(
        prefix=prefix,
        viewset=viewset,
        name=base_name(chosen),
        # The default basename of REST framework's routers.
        basename=basename or (queryset.model._meta.object_name.lower() if queryset is not None else chosen),
        namespace=namespace,
        kwargs=dict(kwargs or {}),
        actions=None if actions is None else frozenset(actions),
        confirm=frozenset(confirm),
        parameters=dict(parameters or {}),
    )
    routes = routes_of(registration)
    readers = {route.parameters: route for route in routes if route.action == "retrieve"}
    tools = [ViewSetTool(route, readers.get(route.parameters)) for route in routes]
    return tools, [resource for tool in tools for resource in resources_of(tool)]
