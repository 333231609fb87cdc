"""Actions of a ``ModelAdmin``.

They may carry attributes: ``mcp_destructive`` (True: asked before it runs; False: hinted to be harmless),
``mcp_read_only`` (it changes nothing), ``mcp_atomic = False`` (it manages its own transactions), ``mcp_form`` (the form
class of the page with which it asks; None says that it has none, as ``-> None`` does).
"""

import inspect
from collections.abc import Callable, Mapping
from functools import cached_property, lru_cache
from typing import Any

from django.contrib.admin.utils import model_format_dict
from django.core.exceptions import ValidationError
from django.db.models import QuerySet
from django.forms import CharField, Field, Form

from ..context.request import MCPRequest
from ..exceptions import ToolError
from ..exposures.actions import Action, ActionOptions
from ..functions.declarations import signature_of
from ..orm.inputs import taken
from ..runtime.hooks import reading
from ..schema.forms import form_schema
from ..schema.types import is_empty
from .errors import error_lines
from .forms import changing_choices, field_entries, visible_choices
from .html import Pair, posted
from .page import as_files, as_query


class AdminAction(Action):
    """An action ``(modeladmin, request, queryset)`` of a ``ModelAdmin``.

    Without ``permissions`` of its own it needs the change permission. Its arguments are the fields that the
    ``action_form`` of the ``ModelAdmin`` has beside Django's own. It may answer with a page that asks.
    """

    def __init__(self, exposure: Any, name: str, function: Callable[..., Any], description: str) -> None:
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
        declared = getattr(self.function, "mcp_form", None) is not None and not self.only_looks
        return super().has_form or declared or self.may_show_a_page

    @property
    def may_show_a_page(self) -> bool:
        """Whether nothing says if it shows a page: neither ``mcp_form`` nor ``-> None``."""
        if self.only_looks or self.options.asks or hasattr(self.function, "mcp_form"):
            return False
        try:
            return signature_of(self.function).return_annotation not in (None, "None")
        except (TypeError, ValueError):
            return True

    @cached_property
    def fields(self) -> Mapping[str, Field | None]:
        """See :attr:`Action.fields`: those of the form class of its page."""
        fields: Mapping[str, Field] = getattr(getattr(self.function, "mcp_form", None), "base_fields", {})
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
