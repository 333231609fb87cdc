"""Inlines that an update need not post: a caller names none of their rows, and only Django's own code would see them.

The admin's page posts and validates all rows of all inlines with each save. Rows that do not change are not written, so
without code of the project the posting has no effect, but costs a form for each row.
"""

from typing import Any, Final

from django.db.models import Model
from django.forms import ModelForm

from ..exposures.model_exposure import ModelExposure, is_djangos
from ..orm.access import ModelAccess

# Hooks that get the formsets of a page.
SAVING_HOOKS: Final = ("save_related", "construct_change_message")
PAGE_SAVING_HOOKS: Final = (*SAVING_HOOKS, "save_formset")
# Hooks that decide which formsets a page has, and how they are made.
PAGE_HOOKS: Final = ("get_formsets_with_inlines", "get_inline_instances", "get_formset_kwargs", "_create_formsets")
# Methods of a model that its forms call for each row.
CLEANING: Final = ("full_clean", "clean", "clean_fields", "validate_unique", "validate_constraints")


def can_stay(exposure: ModelExposure, inline: type[Any]) -> bool:
    """Return whether an update that names no rows of this inline's class can leave its formset out.

    It can if formset, forms, the model's validation and the hooks that get the formset are Django's, and if no row has
    to be added for ``min_num``.
    """
    hooks = [getattr(exposure.model_admin, hook) for hook in PAGE_SAVING_HOOKS]
    hooks += [inline.get_formset, inline.get_min_num]
    if not all(map(is_djangos, hooks)) or inline.min_num:
        return False
    own_hooks = [hook for hook in SAVING_HOOKS if getattr(type(exposure), hook) is not getattr(ModelExposure, hook)]
    formset = inline.formset
    form = inline.form
    model = inline.model
    if own_hooks or form is not ModelForm or not isinstance(formset, type) or not is_djangos(formset):
        return False
    are_djangos = [getattr(model, method) is getattr(Model, method) for method in CLEANING]
    return all(are_djangos)


def can_all_stay(model: ModelAccess, obj: Model) -> bool:
    """Return whether an update of the row that names no inline can leave out all inlines of its page."""
    admin = model.exposure.model_admin
    if not all(map(is_djangos, [getattr(admin, hook) for hook in PAGE_HOOKS])):
        return False
    standing = [can_stay(model.exposure, inline) for inline in admin.get_inlines(model.request, obj)]
    return all(standing)
