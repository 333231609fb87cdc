"""Fields that the admin edits in its list alone (``list_editable``), written as its list writes them."""

from collections.abc import Mapping
from functools import partial
from typing import Any

from django.db.models import Model
from django.forms import Field

from ..context.admin_page import as_page
from ..context.request import Exposure, MCPRequest
from ..exceptions import ToolError
from ..exposures.history import log_change
from ..forms.constraints import duplicate_note
from ..forms.entering import enter, impose
from ..forms.filling import HIDDEN_ERROR, compare_whole, error_lines, keep, refuse
from ..forms.formsets import management_entries
from ..forms.html import as_files, as_query
from ..orm.access import visible_fields
from .naming import NOT_SAVED


def listed_fields(request: MCPRequest, exposure: Exposure, obj: Model | None, form: Any) -> Mapping[str, Field]:
    """Return the fields of the list's form that the caller sees and that ``form``, of the row's own page, has not."""
    editable = exposure.get_list_editable(request)
    shown = visible_fields(request, exposure, obj) if editable else ()
    names = [name for name in editable if name in shown and name not in form.fields]
    if not names:
        return {}
    found: Mapping[str, Field] = exposure.inline_admin.get_changelist_formset(request).form.base_fields
    return {name: found[name] for name in names if name in found and not found[name].disabled}


class ListedRow:
    """A row of the admin's list, in which ``values`` are entered: :meth:`post` it, then :meth:`save` it."""

    def __init__(self, request: MCPRequest, exposure: Exposure, obj: Model, values: Mapping[str, Any]) -> None:
        self.request, self.exposure, self.values = request, exposure, values
        self.rows = exposure.get_queryset(request).filter(pk=obj.pk)
        with as_page(request, "GET"):
            draft = self._formset(queryset=self.rows)
            self.entered = enter(request, draft.forms[0], values)
        entries = [*management_entries(draft, 1, 1), *self.entered.data, ("_save", "Save")]
        self.data, self.files = as_query(entries), as_files(entries)

    def _formset(self, *posted: Any, queryset: Any) -> Any:
        return self.exposure.inline_admin.get_changelist_formset(self.request)(*posted, queryset=queryset)

    def _posted(self) -> tuple[Any, list[str]]:
        """Return the form of the row that the request posts, and what is wrong with it."""
        formset = self._formset(self.request.POST, self.request.FILES, queryset=self.rows)
        [form] = formset.forms
        compare_whole(form)
        impose(form, self.entered.exact)
        key = form.instance._meta.pk.name
        keep(form, form.instance, {*self.values, key})
        valid = formset.is_valid()
        refuse(form, self.entered.wrong)
        lines = error_lines(form, self.values, partial(duplicate_note, self.request))
        lines += [f"(row): {' '.join(map(str, error.messages))}" for error in formset.non_form_errors().as_data()]
        return form, lines if lines or valid else [HIDDEN_ERROR]

    def errors(self) -> list[str]:
        """Return what is wrong with the values, a line for each error; nothing is saved."""
        with as_page(self.request, "POST", self.data, [], self.files):
            return self._posted()[1]

    def save(self, tool: str, messages: list[dict[str, str]] | None) -> tuple[Model, list[str]]:
        """Save what differs; return the row and the changed fields.

        Raises:
            ToolError: a value is not valid.
        """
        with as_page(self.request, "POST", self.data, messages, self.files):
            form, lines = self._posted()
            if lines:
                raise ToolError("\n".join([NOT_SAVED, *dict.fromkeys(lines)]))
            if not form.has_changed():
                return form.instance, []
            row = self.exposure.save_form(self.request, form, True)
            self.exposure.save_model(self.request, row, form, True)
            self.exposure.save_related(self.request, form, [], True)
            message = self.exposure.construct_change_message(self.request, form, (), add=False)
            log_change(self.request, self.exposure, row, message, tool)
            return row, [name for name in form.changed_data if name in self.values]
