"""Actions of a ``ModelAdmin``.

An action can have attributes: ``mcp_destructive`` (False: it is harmless and needs no confirmation; True: it needs
confirmation, also with the view permission alone), ``mcp_confirm`` (who confirms it), ``mcp_read_only`` (it changes
nothing), ``mcp_atomic = False`` (it manages its own transactions), ``mcp_dry_run`` (True: it may run to show what it
would do, in a transaction that is rolled back), ``mcp_approval`` (an ``mcp.approval()``: which runs wait for the yes of
another person), ``mcp_task`` (True, or an ``mcp.task()``: its runs may go on as tasks), ``mcp_file`` (True: it can hand
out files and texts with columns that the exposure hides), ``mcp_form`` (the form class of its intermediate page; None,
like ``-> None``, says that it has no such page).
"""

import inspect
from collections.abc import Callable, Mapping
from functools import cached_property, lru_cache
from typing import Any

from django.contrib.admin.utils import model_format_dict
from django.core.exceptions import ImproperlyConfigured, ValidationError
from django.db.models import QuerySet
from django.forms import CharField, Field, Form

from ..context.request import MCPRequest
from ..exceptions import ToolError
from ..exposures.declared_actions import Action, ActionOptions
from ..exposures.declared_approvals import Approval
from ..exposures.declared_tasks import TaskOptions
from ..operating.query_comments import reading
from ..orm.tool_arguments import Arguments
from ..schema.form_schemas import FormSchema
from ..schema.signatures import Signature
from ..schema.value_types import is_empty
from .form_filling import changing_choices, field_entries, visible_choices
from .html_forms import Pair, posted
from .page_requests import as_files, as_query
from .validation_errors import error_lines


class AdminAction(Action):
    """An admin action: a function ``(modeladmin, request, queryset)`` of a ``ModelAdmin``.

    It needs the change permission unless it declares ``permissions``. Its arguments are the fields that the
    ``ModelAdmin`` adds to its ``action_form``. It can answer with an intermediate page.
    """

    def __init__(self, exposure: Any, name: str, function: Callable[..., Any], description: str) -> None:
        declared = getattr(function, "mcp_action", None)
        super().__init__(exposure, name, declared or _admin_options(function))
        self.function = function
        self.model_admin: Any = exposure.model_admin
        self.description = self.description or description % model_format_dict(exposure.opts)

    def has_permission(self, request: MCPRequest) -> bool:
        """Return whether the caller may run the admin action: a member of the admin site with its permissions."""
        return bool(self.model_admin.admin_site.has_permission(request)) and super().has_permission(request)

    @property
    def has_form(self) -> bool:
        """Whether the admin action may ask with a form or a page."""
        declared = self.declares_page and not self.only_looks
        return super().has_form or declared or self.may_show_a_page

    @property
    def declares_page(self) -> bool:
        """Whether the admin action says that it shows a page before it does anything."""
        return getattr(self.function, "mcp_form", None) is not None

    @property
    def may_show_a_page(self) -> bool:
        """Whether it is unknown if the admin action shows a page: no ``mcp_form``, no ``-> None``."""
        if self.only_looks or self.options.asks or hasattr(self.function, "mcp_form"):
            return False
        try:
            return Signature(self.function).return_annotation not in (None, "None")
        except (TypeError, ValueError):
            return True

    @property
    def is_declared(self) -> bool:
        """Whether the author of the admin action says if it can destroy something."""
        return self.options.destructive is not None

    @property
    def hands_out_files(self) -> bool:
        return bool(getattr(self.function, "mcp_file", False)) or hasattr(self.function, "mcp_action")

    @property
    def asks_by_page(self) -> bool:
        """Whether the page that the admin action declares confirms it. A result without it can be undone."""
        return self.declares_page and self.options.destructive is None and self.atomic

    @cached_property
    def fields(self) -> Mapping[str, Field | None]:
        """The fields of the form class that the admin action declares by ``mcp_form``."""
        fields: Mapping[str, Field] = getattr(getattr(self.function, "mcp_form", None), "base_fields", {})
        return {name: found for name, found in fields.items() if not found.widget.is_hidden}

    def _extra_form(self, data: Any = None, files: Any = None) -> Form:
        form: Form = self.model_admin.action_form(data, files, auto_id=None)
        for name in ("action", "select_across"):
            form.fields.pop(name, None)
        return form

    @property
    def schema(self) -> Mapping[str, Any]:
        form = self._extra_form()
        for _, field in changing_choices(form):
            field.choices = []
            field.initial = None
            field.help_text = " ".join(filter(None, [str(field.help_text), "describe_model with detail lists values."]))
        return FormSchema(form).for_tool() if form.fields else super().schema

    def schema_for(self, request: MCPRequest) -> Mapping[str, Any]:
        form = self._told_form(request)
        return FormSchema(form).for_tool() if form.fields else super().schema

    def _told_form(self, request: MCPRequest) -> Form:
        with reading() as before:
            form = self._extra_form()
        for _, field in changing_choices(form):
            # Choices from a function are computed now, all others were computed with the form.
            with reading() as now:
                choices = list(field.choices)
            if queries := before if isinstance(field.choices, list) else now:
                field.choices = visible_choices(request, choices, queries)
                field.initial = None
        return form

    def validate(self, request: MCPRequest, arguments: Mapping[str, Any]) -> tuple[Mapping[str, Any], list[Pair]]:
        form = self._extra_form()
        given = Arguments.of_write(arguments, form.fields, keeping=form.fields)
        entries: list[Pair] = []
        for name, field in form.fields.items():
            shown = posted(field.widget, name, field.prepare_value(form.get_initial_for_field(field, name)))
            try:
                # An empty text is a value only for a text field.
                absent = name not in given or (given[name] == "" and not isinstance(field, CharField))
                entries += shown if absent else field_entries(request, field, name, given[name])
            except ValidationError as error:
                if field.required or not is_empty(given[name]):
                    raise ToolError(f"Nothing was changed. {name}: {' '.join(error.messages)}") from None
                entries += shown
        bound = self._extra_form(as_query(entries), as_files(entries))
        if not bound.is_valid():
            # The errors list the valid choices: only those that the caller can see.
            told: Any = self._told_form(request).fields
            for name, field in list(changing_choices(bound)):
                field.choices = told[name].choices
            raise ToolError("\n".join(["Nothing was changed.", *error_lines(bound, bound.fields)]))
        return {}, entries

    def invoke(self, request: MCPRequest, queryset: QuerySet[Any], values: Mapping[str, Any]) -> Any:
        return self.function(self.model_admin, request, queryset)


@lru_cache(maxsize=512)
def takes_selection(function: Callable[..., Any]) -> bool:
    """Return whether a function has the signature of an admin action: ``(modeladmin, request, queryset)``."""
    try:
        inspect.signature(function).bind(None, None, None)
    except TypeError:
        return False
    except ValueError:
        # The function has no signature that Python can read.
        return True
    return True


@lru_cache(maxsize=512)
def _admin_options(function: Callable[..., Any]) -> ActionOptions:
    permissions = tuple(getattr(function, "allowed_permissions", None) or ("change",))
    return ActionOptions(
        permissions=permissions,
        # An action that needs only the delete permission is confirmed like any deletion, whatever its page asks.
        destructive=getattr(function, "mcp_destructive", True if permissions == ("delete",) else None),
        read_only=getattr(function, "mcp_read_only", False),
        atomic=getattr(function, "mcp_atomic", True),
        confirm=getattr(function, "mcp_confirm", None),
        approval=Approval.listed(getattr(function, "mcp_approval", None)),
        dry_run=getattr(function, "mcp_dry_run", False),
        task=_task_of(function),
    )


def _task_of(function: Callable[..., Any]) -> TaskOptions | None:
    """Return the options of an admin action's tasks, None for none. The system checks report what is wrong."""
    declared = getattr(function, "mcp_task", None)
    try:
        return TaskOptions.of_action(declared, atomic=getattr(function, "mcp_atomic", True))
    except ImproperlyConfigured:
        return None
