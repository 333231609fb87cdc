"""Actions on selected rows: methods of an exposure, and what the actions of an admin share with them."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

from django.db.models import Model, QuerySet
from django.forms import Field

if TYPE_CHECKING:
    from ..context.request import MCPRequest
    from ..functions.asked_parameters import AskedParameters


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionOptions:
    """The options of a declared action on selected rows, by which its :class:`Action` decides who can run it, and how.

    ``permissions`` are names for ``has_<name>_permission``; as in the admin, a caller needs one of them, here for every
    selected row. ``destructive``: True asks before the action runs, False declares it harmless. None, which an action
    of an admin has that says nothing, asks unless the action needs only the view permission. ``atomic`` runs the action
    in one transaction. ``asks`` says that it uses ``request.mcp.ask()``. ``confirm`` says who confirms it, ``approval``
    which runs another person approves, ``dry_run`` that it may run to be tried, ``task`` how it may become a task.
    """

    permissions: tuple[str, ...] = ("change",)
    description: str = ""
    destructive: bool | None = True
    read_only: bool = False
    atomic: bool = True
    asks: bool = False
    confirm: Any = None
    dry_run: bool = False
    approval: Sequence[Any] = ()
    task: Any = None


class Action:
    """A declared action of an exposure. An ``ActionCall`` runs the action on rows."""

    def __init__(self, exposure: Any, name: str, options: ActionOptions) -> None:
        self.exposure = exposure
        self.name = name
        self.options = options
        self.description = options.description
        self.permissions = options.permissions
        self.read_only = options.read_only
        self.atomic = options.atomic

    @property
    def key(self) -> str:
        """The name of the declared action on its site: ``shop.order/mark_shipped``."""
        return f"{self.exposure.label}/{self.name}"

    @property
    def title(self) -> str:
        """The title of the declared action: its description's first line, or its name in words."""
        words = self.name.replace("_", " ").strip().capitalize()
        return self.description.strip().split("\n", 1)[0].rstrip(".… ") or words

    @property
    def destructive(self) -> bool:
        """Whether the declared action may destroy something: its author has not said that it is harmless."""
        return self.options.destructive is not False and not self.read_only

    @property
    def only_looks(self) -> bool:
        """Whether the declared action changes nothing, so that callers with view permission can run the action."""
        return self.read_only or (self.permissions == ("view",) and self.options.destructive is not True)

    @property
    def confirms(self) -> bool:
        """Whether the declared action needs confirmation before it runs: it may change something and destroy it."""
        return self.destructive and not self.only_looks

    @property
    def asks_by_page(self) -> bool:
        """Whether the declared action is confirmed by a page of its own."""
        return False

    @property
    def hands_out_files(self) -> bool:
        """Whether the declared action may hand out files and texts with columns that its exposure hides."""
        return True

    @property
    def is_logged(self) -> bool:
        """Whether the declared action is named in the history of the rows."""
        return not self.read_only and self.permissions != ("view",)

    @property
    def schema(self) -> Mapping[str, Any]:
        """The JSON Schema of the declared action's arguments, the same for all callers."""
        return {"type": "object", "properties": {}}

    def schema_for(self, request: MCPRequest) -> Mapping[str, Any]:
        """Return the schema of the declared action's arguments, with choices among rows that the caller sees."""
        return self.schema

    def has_permission(self, request: MCPRequest) -> bool:
        """Return whether the caller has a permission that the declared action needs."""
        return any(self._is_allowed(request, name, None) for name in self.permissions)

    def has_object_permission(self, request: MCPRequest, obj: Model) -> bool:
        """Return whether the caller has a permission for this row that the declared action needs."""
        return any(self._is_allowed(request, name, obj) for name in self.permissions)

    def _is_allowed(self, request: MCPRequest, permission: str, obj: Model | None) -> bool:
        for owner in self.exposure.permission_owners:
            check = getattr(owner, f"has_{permission}_permission", None)
            if check is not None:
                # The admin calls such methods for its own actions with the request only.
                takes_row = obj is not None and len(inspect.signature(check).parameters) > 1
                return bool(check(request, obj) if takes_row else check(request))
        codename = permission if "." in permission else f"{self.exposure.opts.app_label}.{permission}"
        return bool(request.user.has_perm(codename))

    def validate(self, request: MCPRequest, arguments: Mapping[str, Any]) -> tuple[Mapping[str, Any], list[Any]]:
        """Validate the arguments; return them, and the entries that a browser would post. Raises ``ToolError``."""
        raise NotImplementedError

    @property
    def has_form(self) -> bool:
        """Whether the declared action may ask for something to be filled in."""
        return self.options.asks

    @property
    def fields(self) -> Mapping[str, Field | None]:
        """The fields that the action asks for before it runs, None for a question, which has to be answered."""
        return {}

    @property
    def asks_for(self) -> Sequence[str]:
        """The required fields that the declared action asks for."""
        from ..schema.form_schemas import FormField

        return [name for name, found in self.fields.items() if found is None or FormField(found).is_required]

    def answers(self, request: MCPRequest, values: Mapping[str, Any]) -> dict[str, Any]:
        """Return the answers for the declared action's parameters that are questions."""
        return {}

    def invoke(self, request: MCPRequest, queryset: QuerySet[Any], values: Mapping[str, Any]) -> Any:
        """Run the function of the declared action."""
        raise NotImplementedError


class FunctionAction(Action):
    """An action declared as a method ``(self, request, queryset, **arguments)`` with ``@mcp.action``."""

    # The parameters that are no arguments of a call.
    SKIPPED: ClassVar = ("self", "request", "queryset")

    def __init__(self, exposure: Any, name: str) -> None:
        self.function: Callable[..., Any] = getattr(exposure, name)
        super().__init__(exposure, name, getattr(self.function, "mcp_action", None) or ActionOptions())
        self.description = self.description or inspect.getdoc(self.function) or ""

    @cached_property
    def questions(self) -> AskedParameters:
        """The parameters of the declared action that are questions."""
        from ..functions.asked_parameters import AskedParameters

        return AskedParameters.of(self.function, self.SKIPPED)

    @cached_property
    def signature(self) -> Any:
        """The schema and validation of the declared action's parameters that are not questions."""
        from ..schema.arguments import ArgumentSchema

        return ArgumentSchema.of_signature(self.function, skip=(*self.SKIPPED, *self.questions.names))

    @property
    def has_form(self) -> bool:
        return bool(self.questions.items) or super().has_form

    @property
    def fields(self) -> Mapping[str, Field | None]:
        return dict.fromkeys(self.questions.of_user)

    def answers(self, request: MCPRequest, values: Mapping[str, Any]) -> dict[str, Any]:
        return self.questions.answers(request, values)

    @property
    def schema(self) -> Mapping[str, Any]:
        schema: Mapping[str, Any] = self.signature.schema
        return schema

    def validate(self, request: MCPRequest, arguments: Mapping[str, Any]) -> tuple[Mapping[str, Any], list[Any]]:
        return self.signature.validate(dict(arguments), request), []

    def invoke(self, request: MCPRequest, queryset: QuerySet[Any], values: Mapping[str, Any]) -> Any:
        return self.function(request, queryset, **values)
