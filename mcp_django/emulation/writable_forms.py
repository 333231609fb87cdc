"""The forms of the admin's pages as the caller could fill them in, to be described."""

from collections.abc import Collection, Sequence
from copy import copy, deepcopy
from dataclasses import dataclass
from typing import Any

from django.db.models import Model
from django.forms import BaseModelForm, ModelChoiceField
from django.forms.models import apply_limit_choices_to_to_formfield

from ..orm.access import ModelAccess
from ..schema.form_schemas import FormSchema
from .form_filling import writable_names
from .html_forms import first_choice
from .saving import RowPage


@dataclass(frozen=True, slots=True)
class WritableForm:
    """An unbound form of an admin page, and the fields that the caller may set."""

    form: Any
    names: Sequence[str]
    # An update may leave out any field.
    is_update: bool = False

    def schema(self, among: Collection[str] | None = None) -> dict[str, Any]:
        """Return the JSON Schema of the writable fields, or of those in ``among``."""
        shown = set(self.names) if among is None else {*self.names} & {*among}
        schema = FormSchema(self.form).for_tool(exclude=self.form.fields.keys() - shown) if shown else {}
        return {name: part for name, part in schema.items() if name != "required" or not self.is_update}

    def requires(self, name: str) -> bool:
        """Return whether a new row needs a value for the field."""
        field = self.form.fields[name]
        if not field.required or self.form.get_initial_for_field(field, name) not in field.empty_values:
            return False
        # A browser posts the first option of a select that has no blank one.
        looks_up = isinstance(field, ModelChoiceField)
        return looks_up or not any(value for _, value in first_choice(field.widget, name))

    @classmethod
    def of(cls, model: ModelAccess, row: Model | None) -> "WritableForm":
        """Return the form of the add page, or of the change page of a row."""
        exposure = model.exposure
        # With change=True, the admin's form has no fields if the caller cannot change this row: others may allow it.
        change = row is not None and model.may_row("change", row)
        page = RowPage(model, row)
        form = _unbound(exposure.get_form(model.request, row, change=change), row)
        if row is not None:
            # Only the admin's list edits these fields, so a page never requires them.
            for name, field in page.listed_fields(form).items():
                form.fields[name] = copy(field)
                form.fields[name].required = False
        for field in form.fields.values():
            if isinstance(field, ModelChoiceField):
                # Callers name rows by primary key, whatever the column stores.
                field.to_field_name = None
        known = page.nameable()
        return cls(form, writable_names(form, known), is_update=row is not None)


def _unbound(form_class: Any, row: Model | None) -> Any:
    """Return an unbound form that is only read.

    A form copies all of its fields, which is most of the work for a wide model. Only those that a form changes itself,
    choices of rows, are copied here, unless the project has its own ``__init__``.
    """
    if form_class.__init__ is not BaseModelForm.__init__:
        return form_class(instance=row)
    form = form_class.__new__(form_class)
    form.base_fields = {}
    form.__init__(instance=row)
    del form.base_fields
    for name, field in form_class.base_fields.items():
        form.fields[name] = field
        if isinstance(field, ModelChoiceField):
            form.fields[name] = deepcopy(field)
            apply_limit_choices_to_to_formfield(form.fields[name])
    return form
