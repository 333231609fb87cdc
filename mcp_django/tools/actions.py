"""Actions on picked rows: those of a ``ModelAdmin``, the methods of an exposure, and the tools that run them.

An action of a ``ModelAdmin`` may carry attributes: ``mcp_destructive`` (True: asked before it runs; False: hinted to be
harmless), ``mcp_read_only`` (it changes nothing), ``mcp_atomic = False`` (it manages its own transactions).
"""

import hashlib
import inspect
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any, Final

from django.contrib.admin.utils import model_format_dict
from django.core.exceptions import ImproperlyConfigured, ValidationError
from django.db.models import Model, QuerySet
from django.db.models.options import Options
from django.forms import Form

from ..conf import settings
from ..context import MCPRequest
from ..exceptions import ToolError
from ..schemas import form_schema, signature_schema
from ..schemas.asking import Asked, answers_of, asked_parameters
from ..visibility import caller_actions, may_view, visible_exposures
from .arguments import alternatives, exposure_argument
from .base import READ, WRITE, Tool, ToolResult
from .controls import Pair, as_query, posted
from .forms import error_lines, field_entries
from .inputs import MAX_ROWS, as_object, as_pks, taken
from .running import ActionCall

if TYPE_CHECKING:
    from ..exposures import ModelExposure

__all__ = ["Action", "ActionOptions", "ActionTool", "AdminAction", "FunctionAction", "RunAction", "action_tool_name"]

MAX_NAME: Final = 40
SKIPPED: Final = ("self", "request", "queryset")
UNSAFE: Final = re.compile(r"[^a-z0-9_]")
PKS: Final[Mapping[str, Any]] = {
    "type": "array",
    "items": {"type": ["integer", "string"]},
    "minItems": 1,
    "maxItems": MAX_ROWS,
    "description": f"Primary keys of the rows, 1 to {MAX_ROWS}",
}
FORM: Final[Mapping[str, Any]] = {
    "type": "object",
    "properties": {},
    "description": "Answers to its question",
}
CONFIRM_TOKEN: Final[Mapping[str, Any]] = {
    "type": "string",
    "description": "From its question",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionOptions:
    """What is declared of an action.

    ``permissions`` are names of ``has_*_permission``; a caller needs one of them, as in the admin, for every row that
    is picked. ``destructive``: True asks before it runs, False hints that it is harmless, None is not known.
    ``atomic`` runs it in one transaction. ``asks`` says that it uses ``request.mcp.ask()``.
    """

    permissions: tuple[str, ...] = ("change",)
    description: str = ""
    destructive: bool | None = True
    read_only: bool = False
    atomic: bool = True
    asks: bool = False


class Action:
    """One action of one exposure, which :meth:`call` runs on rows picked by primary key."""

    def __init__(self, exposure: "ModelExposure", name: str, options: ActionOptions) -> None:
        self.exposure = exposure
        self.name = name
        self.options = options
        self.description = options.description
        self.permissions = options.permissions
        self.read_only = options.read_only
        self.atomic = options.atomic

    @property
    def key(self) -> str:
        """What tells the action apart on its site: ``shop.order/mark_shipped``."""
        return f"{self.exposure.label}/{self.name}"

    @property
    def title(self) -> str:
        """The description's first line, or the name in words."""
        words = self.name.replace("_", " ").strip().capitalize()
        return self.description.strip().split("\n", 1)[0].rstrip(".… ") or words

    @property
    def destructive(self) -> bool:
        """Whether it may destroy something, as far as is known."""
        return self.options.destructive is not False and not self.read_only

    @property
    def confirms(self) -> bool:
        """Whether the caller is asked before it runs; one with a page asks by itself."""
        return self.options.destructive is True and not self.read_only

    @property
    def is_logged(self) -> bool:
        """Whether the history of the rows names it: not if looking at them is all that it takes."""
        return not self.read_only and self.permissions != ("view",)

    @property
    def schema(self) -> Mapping[str, Any]:
        """The JSON Schema of its own arguments."""
        return {"type": "object", "properties": {}}

    def has_permission(self, request: MCPRequest) -> bool:
        """Return whether the caller may run it on some rows."""
        return any(self._is_allowed(request, name, None) for name in self.permissions)

    def has_object_permission(self, request: MCPRequest, obj: Model) -> bool:
        """Return whether the caller may run it on this row."""
        return any(self._is_allowed(request, name, obj) for name in self.permissions)

    def _is_allowed(self, request: MCPRequest, permission: str, obj: Model | None) -> bool:
        for owner in (self.exposure, getattr(self.exposure, "model_admin", None)):
            check = getattr(owner, f"has_{permission}_permission", None)
            if check is not None:
                # The admin calls its own checks of this kind with the request alone.
                return bool(check(request, obj) if obj is not None and _takes_object(check) else check(request))
        codename = permission if "." in permission else f"{self.exposure.opts.app_label}.{permission}"
        return bool(request.user.has_perm(codename))

    def read(self, request: MCPRequest, arguments: Mapping[str, Any]) -> tuple[Mapping[str, Any], list[Pair]]:
        """Return the validated arguments, and what a browser would post for them.

        Raises:
            ToolError: an argument is unknown, missing or not valid.
        """
        raise NotImplementedError

    @property
    def has_form(self) -> bool:
        """Whether it may ask for something to be filled in."""
        return self.options.asks

    def answers(self, request: MCPRequest, values: Mapping[str, Any]) -> dict[str, Any]:
        """Return the values of parameters that are asked for (:func:`~mcp_django.schemas.asking.answers_of`)."""
        return {}

    def invoke(self, request: MCPRequest, queryset: QuerySet[Any], values: Mapping[str, Any]) -> Any:
        """Run the project's code and return what it returns."""
        raise NotImplementedError

    def call(self, request: MCPRequest, arguments: Mapping[str, Any], own: Mapping[str, Any]) -> ToolResult:
        """Run it for a tool whose ``arguments`` are pks, form and confirm_token; ``own`` are the action's.

        Raises:
            ToolError: the action refused or the call does not fit it; nothing was changed.
        """
        return ActionCall(
            request,
            self,
            pks=as_pks(arguments.get("pks")),
            arguments=own,
            form=as_object(arguments.get("form"), "form"),
            confirm_token=arguments.get("confirm_token"),
        ).run()


class FunctionAction(Action):
    """A method ``(self, request, queryset, **arguments)`` of the exposure, marked with ``@mcp.action``."""

    def __init__(self, exposure: "ModelExposure", name: str) -> None:
        self.function: Callable[..., Any] = getattr(exposure, name)
        super().__init__(exposure, name, getattr(self.function, "mcp_action", None) or ActionOptions())
        self.description = self.description or inspect.getdoc(self.function) or ""

    @cached_property
    def asked(self) -> tuple[Asked, ...]:
        """The method's parameters that are no arguments, because they are asked for."""
        return asked_parameters(self.function, SKIPPED)

    @cached_property
    def signature(self) -> Any:
        """The schema of the method's other parameters, and their validation."""
        return signature_schema(self.function, skip=(*SKIPPED, *(item.name for item in self.asked)))

    @property
    def has_form(self) -> bool:
        """See :attr:`Action.has_form`."""
        return bool(self.asked) or super().has_form

    def answers(self, request: MCPRequest, values: Mapping[str, Any]) -> dict[str, Any]:
        """See :meth:`Action.answers`."""
        return answers_of(self.asked, request, values)

    @property
    def schema(self) -> Mapping[str, Any]:
        """See :attr:`Action.schema`."""
        schema: Mapping[str, Any] = self.signature.schema
        return schema

    def read(self, request: MCPRequest, arguments: Mapping[str, Any]) -> tuple[Mapping[str, Any], list[Pair]]:
        """See :meth:`Action.read`."""
        return self.signature.validate(dict(arguments), request), []

    def invoke(self, request: MCPRequest, queryset: QuerySet[Any], values: Mapping[str, Any]) -> Any:
        """See :meth:`Action.invoke`."""
        return self.function(request, queryset, **values)


class AdminAction(Action):
    """An action ``(modeladmin, request, queryset)`` of a ``ModelAdmin``.

    Without ``permissions`` of its own it needs the change permission. Its arguments are the fields that the
    ``action_form`` of the ``ModelAdmin`` has beside Django's own. It may answer with a page that asks.
    """

    def __init__(self, exposure: "ModelExposure", name: str, function: Callable[..., Any], description: str) -> None:
        declared = getattr(function, "mcp_action", None)
        super().__init__(exposure, name, declared or _admin_options(function))
        self.function = function
        self.model_admin: Any = exposure.model_admin  # type: ignore[attr-defined]
        self.description = self.description or description % model_format_dict(exposure.opts)

    def has_permission(self, request: MCPRequest) -> bool:
        """See :meth:`Action.has_permission`; only members of the admin site may run anything."""
        return bool(self.model_admin.admin_site.has_permission(request)) and super().has_permission(request)

    @property
    def has_form(self) -> bool:
        """See :attr:`Action.has_form`."""
        return True

    def _extra_form(self, data: Any = None) -> Form:
        form: Form = self.model_admin.action_form(data, auto_id=None)
        for name in ("action", "select_across"):
            form.fields.pop(name, None)
        return form

    @property
    def schema(self) -> Mapping[str, Any]:
        """See :attr:`Action.schema`."""
        form = self._extra_form()
        schema: Mapping[str, Any] = form_schema(form) if form.fields else super().schema
        return schema

    def read(self, request: MCPRequest, arguments: Mapping[str, Any]) -> tuple[Mapping[str, Any], list[Pair]]:
        """See :meth:`Action.read`."""
        form = self._extra_form()
        taken(arguments, form.fields)
        entries: list[Pair] = []
        for name, field in form.fields.items():
            try:
                if name in arguments:
                    entries += field_entries(request, field, name, arguments[name])
                else:
                    entries += posted(field.widget, name, field.prepare_value(form.get_initial_for_field(field, name)))
            except ValidationError as error:
                raise ToolError(f"{name}: {' '.join(error.messages)} Nothing was changed.") from None
        bound = self._extra_form(as_query(entries))
        if not bound.is_valid():
            raise ToolError("\n".join([*error_lines(bound, bound.fields), "Nothing was changed."]))
        return {}, entries

    def invoke(self, request: MCPRequest, queryset: QuerySet[Any], values: Mapping[str, Any]) -> Any:
        """See :meth:`Action.invoke`."""
        return self.function(self.model_admin, request, queryset)


def _takes_object(check: Callable[..., Any]) -> bool:
    return _parameters(getattr(check, "__func__", check)) > (2 if inspect.ismethod(check) else 1)


@lru_cache(maxsize=512)
def _parameters(function: Callable[..., Any]) -> int:
    return len(inspect.signature(function).parameters)


def _admin_options(function: Callable[..., Any]) -> ActionOptions:
    return ActionOptions(
        permissions=tuple(getattr(function, "allowed_permissions", None) or ("change",)),
        destructive=getattr(function, "mcp_destructive", None),
        read_only=getattr(function, "mcp_read_only", False),
        atomic=getattr(function, "mcp_atomic", True),
    )


# Tools


def action_tool_name(name: str, opts: "Options[Any]") -> str:
    """Return the tool's name, ``mark_shipped_shop_order``: at most 40 of ``a-z0-9_``, a digest in place of the rest."""
    wanted = f"{name}_{opts.app_label}_{opts.model_name}"
    safe = UNSAFE.sub("_", wanted.lower())
    if safe == wanted and len(safe) <= MAX_NAME:
        return safe
    return f"{safe[: MAX_NAME - 9]}_{hashlib.sha256(wanted.encode()).hexdigest()[:8]}"


class ActionTool(Tool):
    """A tool for one action of one model."""

    scopes = frozenset({WRITE})
    slow = True

    def __init__(self, action: Action) -> None:
        opts = action.exposure.opts
        self.action = action
        self.name = action_tool_name(action.name, opts)
        self.title = f"{action.title} ({action.exposure.label})"
        asks = " Asks for confirmation first." if action.confirms else ""
        self.description = f"{action.description or action.title}\nRuns on rows of {action.exposure.label}.{asks}"
        self.read_only = action.read_only
        self.scopes = frozenset({READ if action.read_only else WRITE})
        self.destructive = action.destructive
        self.input_schema = self._schema(action)

    @staticmethod
    def _schema(action: Action) -> dict[str, Any]:
        own = action.schema
        asking = {"form": FORM} if action.has_form else {}
        common = {"pks": PKS, **asking, "confirm_token": CONFIRM_TOKEN}
        clashing = own.get("properties", {}).keys() & {"pks", "form", "confirm_token"}
        if clashing:
            raise ImproperlyConfigured(f"{action.key} may not have a parameter named {', '.join(sorted(clashing))}.")
        schema = {**own, "properties": {"pks": PKS, **own.get("properties", {}), **common}}
        return {**schema, "required": ["pks", *own.get("required", ())]}

    def has_permission(self, request: MCPRequest) -> bool:
        """Return whether the caller may see the model and run the action."""
        if settings.READ_ONLY and not self.read_only:
            return False
        exposure = self.action.exposure
        return may_view(request, exposure) and self.action.name in caller_actions(request, exposure)

    def call(self, request: MCPRequest, arguments: dict[str, Any]) -> ToolResult:
        """See :meth:`Tool.call`."""
        # An action that asks without having said so takes the answers, too.
        known = {**self.input_schema["properties"], **({"form": FORM} if "confirm_token" in arguments else {})}
        given = taken(arguments, known, required=["pks"])
        action = _find_action(request, self.action.exposure, self.action.name)
        common = {name: given.pop(name, None) for name in ("pks", "form", "confirm_token")}
        return action.call(request, common, given)


def _find_action(request: MCPRequest, exposure: "ModelExposure", name: Any) -> Action:
    """Return the action if the caller may run it now; one that is forbidden is answered as one that is not there."""
    actions = caller_actions(request, exposure)
    if settings.READ_ONLY:
        actions = {key: action for key, action in actions.items() if action.read_only}
    found = actions.get(name) if isinstance(name, str) else None
    if found is None:
        raise ToolError(f"{exposure.label} has no such action. {alternatives(name, actions)}")
    return found


class RunAction(Tool):
    """``run_action``: any action of any model."""

    name = "run_action"
    title = "Run action"
    description = (
        "Run an action of a model on rows picked by primary key; describe_model lists the actions. One that needs "
        "confirmation first answers what it asks, with a confirm_token: repeat the call with it to go on."
    )
    input_schema: Mapping[str, Any] = {
        "type": "object",
        "properties": {
            "model": {"type": "string"},
            "action": {"type": "string"},
            "pks": PKS,
            "arguments": {"type": "object", "properties": {}, "description": "The action's own"},
            "form": FORM,
            "confirm_token": CONFIRM_TOKEN,
        },
        "required": ["model", "action", "pks"],
    }
    scopes = frozenset({WRITE})
    slow = True

    def has_permission(self, request: MCPRequest) -> bool:
        """Return whether there is an action that the caller may run."""
        if settings.READ_ONLY:
            return False
        return any(caller_actions(request, exposure) for exposure in visible_exposures(request))

    def call(self, request: MCPRequest, arguments: dict[str, Any]) -> ToolResult:
        """See :meth:`Tool.call`."""
        given = taken(arguments, self.input_schema["properties"], required=["model", "action", "pks"])
        action = _find_action(request, exposure_argument(request, given["model"]), given["action"])
        return action.call(request, given, as_object(given.get("arguments"), "arguments"))
