"""An admin site of its own."""

from typing import Any

from django.contrib import admin
from django.forms import BaseInlineFormSet, inlineformset_factory
from django.urls import path

from .models import Detail, Kind, Page, Part, Task

odd = admin.AdminSite("oddapp")

DetailFormSet: Any = inlineformset_factory(Part, Detail, fields=["text"], extra=1)


class PartFormSet(BaseInlineFormSet):
    """Each row has rows of its own, as tutorials do it."""

    def add_fields(self, form: Any, index: Any) -> None:
        super().add_fields(form, index)
        form.nested = DetailFormSet(
            instance=form.instance,
            data=form.data if form.is_bound else None,
            files=form.files if form.is_bound else None,
            prefix=f"{form.prefix}-details",
        )

    def is_valid(self) -> bool:
        return super().is_valid() and all(form.nested.is_valid() for form in self.forms)

    def save(self, commit: bool = True) -> Any:
        found = super().save(commit=commit)
        for form in self.forms:
            if not self._should_delete_form(form) and form.instance.pk:
                form.nested.save(commit=commit)
        return found


class PartInline(admin.StackedInline):
    model = Part
    formset = PartFormSet
    extra = 1


class DetailInline(admin.TabularInline):
    model = Detail
    extra = 2


class PlainPartInline(admin.StackedInline):
    model = Part
    extra = 1


class PageAdmin(admin.ModelAdmin):
    inlines = [PartInline]


class FlatPageAdmin(admin.ModelAdmin):
    """Puts the formsets of all depths into one list, as packages do that nest inlines."""

    inlines = [PlainPartInline]

    def _create_formsets(self, request: Any, obj: Any, change: bool) -> Any:
        formsets, inlines = super()._create_formsets(request, obj, change)  # type: ignore[misc]
        found, admins = [], []
        for formset, inline in zip(formsets, inlines, strict=True):
            found.append(formset)
            admins.append(inline)
            for form in formset.forms:
                nested = DetailInline(Part, self.admin_site)
                data = {"data": request.POST, "files": request.FILES} if request.method == "POST" else {}
                found.append(
                    nested.get_formset(request, form.instance)(
                        instance=form.instance, prefix=f"{form.prefix}-details", **data
                    )
                )
                admins.append(nested)
        return found, admins


class TaskAdmin(admin.ModelAdmin):
    fields = ["name", "state", "kind", "parent", "starts", "watchers"]
    list_display = ["name", "rank"]
    list_editable = ["rank"]


odd.register(Page, PageAdmin)
odd.register(Task, TaskAdmin)
odd.register(Kind)

urlpatterns = [path("odd/", odd.urls)]
