"""A write as the admin's change page does it: its form, its checks, its hooks and its history."""

from typing import Any

from django.contrib import admin
from django.core.exceptions import PermissionDenied, ValidationError
from django.db import transaction
from django.forms import BaseForm, MultiWidget
from django.http import HttpRequest

from .models import Article
from .rows import shown


def change_article(request: HttpRequest, pk: int, fields: dict[str, Any]) -> dict[str, Any]:
    """Change fields of an article through the form of its ``ModelAdmin``; return it as it is then.

    Raises:
        Article.DoesNotExist: the user's list of the admin has none.
        PermissionDenied: the user may not change it.
        ValidationError: the form is not valid.
    """
    model_admin: Any = admin.site.get_model_admin(Article)
    with transaction.atomic():
        found = model_admin.get_queryset(request).select_for_update(of=("self",)).select_related("author")
        article = found.get(pk=pk)
        if not model_admin.has_change_permission(request, article):
            raise PermissionDenied
        form_class = model_admin.get_form(request, article, change=True)
        form = form_class(posted(form_class(instance=article)) | fields, instance=article)
        if not form.is_valid():
            raise ValidationError(form.errors.as_data())
        saved = model_admin.save_form(request, form, change=True)
        model_admin.save_model(request, saved, form, change=True)
        model_admin.save_related(request, form, [], change=True)
        message = model_admin.construct_change_message(request, form, [], False)
        model_admin.log_change(request, saved, message)
    return shown(saved)


def posted(form: BaseForm) -> dict[str, Any]:
    """Return what a browser would send of a form that nobody touched."""
    data: dict[str, Any] = {}
    for bound in form:
        value: Any = bound.value()
        widget: Any = bound.field.widget
        if isinstance(widget, MultiWidget):
            parts: Any = widget.decompress(value)
            data |= {f"{bound.html_name}_{number}": part for number, part in enumerate(parts)}
        elif value is not False:
            data[bound.html_name] = value
    return data
