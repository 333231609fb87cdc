"""Actions on picked rows: those of a ``ModelAdmin`` and the methods of an exposure.

An action of a ``ModelAdmin`` may carry attributes: ``mcp_destructive`` (True: asked before it runs; False: hinted to be
harmless), ``mcp_read_only`` (it changes nothing), ``mcp_atomic = False`` (it manages its own transactions),
``mcp_form`` (the form class of the page with which it asks; None says that it has none).
"""

import inspect
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, lru_cache
from typing import Any, Final

from django.contrib.admin.utils import model_format_dict
from django.core.exceptions import ValidationError
from django.db.models import Model, QuerySet
from django.forms import CharField, Field, Form

from ..context.request import Exposure, MCPRequest
from ..exceptions import ToolError
from ..forms.filling import changing_choices, error_lines, field_entries, visible_choices
from ..forms.html import Pair, as_files, as_query, posted
from ..functions.arguments import signature_schema
from ..functions.asking import Ask, Asked, answers_of, asked_parameters
from ..orm.inputs import taken
from ..runtime.hooks import reading
from ..schema.forms import form_schema, is_required
from ..schema.types import is_empty
from .action_options import ActionOptions, page_form, returns_nothing
from .admin_filters import OfAdmin

SKIPPED: Final = ("self", "request", "queryset")


class Action:
    """One action of one exposure, as it is declared. An ``ActionCall`` runs it on rows."""

    def __init__(self, exposure: Exposure, name: str, options: ActionOptions) -> None:
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
        return self.options.destructive is not False and not self.only_looks

    @property
    def only_looks(self) -> bool:
        """Whether it changes nothing, as far as is known: who may only view the rows may run it."""
        return self.read_only or (self.permissions == ("view",) and self.options.destructive is not True)

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
        """The JSON Schema of its own arguments, as all callers get it: no row is in it."""
        return {"type": "object", "properties": {}}

    def told(self, request: MCPRequest) -> Mapping[str, Any]:
        """Return the schema with the choices that are made of rows, as far as the caller may see those."""
        return self.schema

    def has_permission(self, request: MCPRequest) -> bool:
        """Return whether the caller may run it on some rows."""
        return any(self._is_allowed(request, name, None) for name in self.permissions)

    def has_object_permission(self, request: MCPRequest, obj: Model) -> bool:
        """Return whether the caller may run it on this row."""
        return any(self._is_allowed(request, name, obj) for name in self.permissions)

    def _is_allowed(self, request: MCPRequest, permission: str, obj: Model | None) -> bool:
        for owner in self.exposure.permission_owners:
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

    @property
    def fields(self) -> Mapping[str, Field | None]:
        """What it asks for before it runs, as far as that is declared: its page and its questions may ask for more.

        None stands for a field of a question, which has to be answered.
        """
        return {}

    @property
    def asks_for(self) -> Sequence[str]:
        """The names of those fields that have to be filled in."""
        return [name for name, found in self.fields.items() if found is None or is_required(found)]

    def answers(self, request: MCPRequest, values: Mapping[str, Any]) -> dict[str, Any]:
        """Return the values of parameters that are asked for (:func:`~mcp_django.functions.asking.answers_of`)."""
        return {}

    def invoke(self, request: MCPRequest, queryset: QuerySet[Any], values: Mapping[str, Any]) -> Any:
        """Run the project's code and return what it returns."""
        raise NotImplementedError


class FunctionAction(Action):
    """A method ``(self, request, queryset, **arguments)`` of the exposure, marked with ``@mcp.action``."""

    def __init__(self, exposure: Exposure, name: str) -> None:
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

    @property
    def fields(self) -> Mapping[str, Field | None]:
        """See :attr:`Action.fields`."""
        return {item.name: None for item in self.asked if isinstance(item.marker, Ask)}

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

    def __init__(self, exposure: OfAdmin, name: str, function: Callable[..., Any], description: str) -> None:
        declared = getattr(function, "mcp_action", None)
        super().__init__(exposure, name, declared or _admin_options(function))
        self.function = function
        self.model_admin: Any = exposure.model_admin
        self.description = self.description or description % model_format_dict(exposure.opts)

    def has_permission(self, request: MCPRequest) -> bool:
        """See :meth:`Action.has_permission`; only members of the admin site may run anything."""
        return bool(self.model_admin.admin_site.has_permission(request)) and super().has_permission(request)

    @property
    def has_form(self) -> bool:
        """See :attr:`Action.has_form`; many may show a page, and one that only looks says what to send if it does."""
        return super().has_form or not (self.only_looks or returns_nothing(self.function))

    @cached_property
    def fields(self) -> Mapping[str, Field | None]:
        """See :attr:`Action.fields`: those of the form class of its page."""
        fields: Mapping[str, Field] = getattr(page_form(self.function), "base_fields", {})
        return {name: found for name, found in fields.items() if not found.widget.is_hidden}

    def _extra_form(self, data: Any = None, files: Any = None) -> Form:
        form: Form = self.model_admin.action_form(data, files, auto_id=None)
        for name in ("action", "select_across"):
            form.fields.pop(name, None)
        return form

    @property
    def schema(self) -> Mapping[str, Any]:
        """See :attr:`Action.schema`."""
        form = self._extra_form()
        for _, field in changing_choices(form):
            field.choices, field.initial = [], None
            field.help_text = " ".join(filter(None, [str(field.help_text), "describe_model with detail lists values."]))
        schema: Mapping[str, Any] = form_schema(form) if form.fields else super().schema
        return schema

    def told(self, request: MCPRequest) -> Mapping[str, Any]:
        """See :meth:`Action.told`."""
        form = self._told_form(request)
        schema: Mapping[str, Any] = form_schema(form) if form.fields else super().schema
        return schema

    def _told_form(self, request: MCPRequest) -> Form:
        with reading() as before:
            form = self._extra_form()
        for _, field in changing_choices(form):
            # Those of a function are made now, any others were made with the form.
            with reading() as now:
                choices = list(field.choices)
            if queries := before if isinstance(field.choices, list) else now:
                field.choices, field.initial = visible_choices(request, choices, queries), None
        return form

    def read(self, request: MCPRequest, arguments: Mapping[str, Any]) -> tuple[Mapping[str, Any], list[Pair]]:
        """See :meth:`Action.read`."""
        form = self._extra_form()
        given = taken(arguments, form.fields, keeping=form.fields)
        entries: list[Pair] = []
        for name, field in form.fields.items():
            shown = posted(field.widget, name, field.prepare_value(form.get_initial_for_field(field, name)))
            try:
                # An empty text is a value of texts alone.
                absent = name not in given or (given[name] == "" and not isinstance(field, CharField))
                entries += shown if absent else field_entries(request, field, name, given[name])
            except ValidationError as error:
                if field.required or not is_empty(given[name]):
                    raise ToolError(f"{name}: {' '.join(error.messages)} Nothing was changed.") from None
                entries += shown
        bound = self._extra_form(as_query(entries), as_files(entries))
        if not bound.is_valid():
            # The lines name choices.
            told: Any = self._told_form(request).fields
            for name, field in list(changing_choices(bound)):
                field.choices = told[name].choices
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


@lru_cache(maxsize=512)
def takes_selection(function: Callable[..., Any]) -> bool:
    """Return whether a function can be called as the admin's list calls its actions; some are for another page."""
    try:
        inspect.signature(function).bind(None, None, None)
    except TypeError:
        return False
    except ValueError:
        # It does not say what it takes.
        return True
    return True


@lru_cache(maxsize=512)
def _admin_options(function: Callable[..., Any]) -> ActionOptions:
    permissions = tuple(getattr(function, "allowed_permissions", None) or ("change",))
    return ActionOptions(
        permissions=permissions,
        # What takes the permission to delete is asked about like any deletion.
        destructive=getattr(function, "mcp_destructive", True if permissions == ("delete",) else None),
        read_only=getattr(function, "mcp_read_only", False),
        atomic=getattr(function, "mcp_atomic", True),
    )
