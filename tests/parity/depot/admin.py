"""Admins that decide by user, by row and by hook; whoever is called "lead" may do more than others."""

from collections.abc import Sequence
from typing import Any

from django import forms
from django.contrib import admin, messages
from django.contrib.auth import get_user_model
from django.contrib.contenttypes.admin import GenericTabularInline
from django.core.exceptions import ValidationError
from django.db.models import F, QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect

from .models import Crate, Item, Mark, Remark, Shelf

MOST_PIECES = 50


def is_lead(request: HttpRequest) -> bool:
    return getattr(request.user, "last_name", "") == "lead"


class ItemFormSet(forms.BaseInlineFormSet):
    def clean(self) -> None:
        super().clean()
        kept = [form.cleaned_data for form in self.forms if hasattr(form, "cleaned_data")]
        if sum(data.get("quantity") or 0 for data in kept if not data.get("DELETE")) > MOST_PIECES:
            raise ValidationError("Too many pieces.")


class ItemInline(admin.TabularInline):
    model = Item
    formset = ItemFormSet
    extra = 1
    max_num = 3

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return super().has_delete_permission(request, obj) and (obj is None or obj.state != "sealed")


class RemarkInline(GenericTabularInline):
    model = Remark
    extra = 0
    max_num = 2


class CarefulForm(forms.ModelForm):
    def clean_label(self) -> str:
        if self.cleaned_data["label"] == "0":
            raise ValidationError("No label of nothing.")
        return str(self.cleaned_data["label"])

    def clean(self) -> Any:
        cleaned = super().clean()
        if cleaned.get("state") == "sealed" and cleaned.get("weight") == 0:
            raise ValidationError("An empty crate cannot be sealed.")
        return cleaned


@admin.register(Crate)
class CrateAdmin(admin.ModelAdmin):
    list_display = ["code", "label", "rank", "state", "weight"]
    list_editable = ["rank"]
    list_filter = ["state"]
    search_fields = ["code", "shelf__name"]
    autocomplete_fields = ["shelf"]
    inlines = [ItemInline, RemarkInline]
    actions = ["seal", "visit"]

    # Rows

    def get_queryset(self, request: HttpRequest) -> QuerySet[Crate]:
        return super().get_queryset(request).filter(deleted=False)

    def get_ordering(self, request: HttpRequest) -> Sequence[str]:
        return ["-weight", "code"] if is_lead(request) else ["code"]

    def get_search_results(self, request: Any, queryset: Any, search_term: str) -> Any:
        found, duplicates = super().get_search_results(request, queryset, search_term)
        if search_term.isdigit():
            found |= queryset.filter(weight=int(search_term))
        return found, duplicates

    # Permissions

    def has_view_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return super().has_view_permission(request, obj) and (obj is None or not obj.hidden or is_lead(request))

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        allowed = obj is None or (not obj.hidden and obj.state != "lost") or is_lead(request)
        return super().has_change_permission(request, obj) and allowed

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        allowed = obj is None or (obj.state == "open" and not obj.hidden) or is_lead(request)
        return super().has_delete_permission(request, obj) and allowed

    # The form

    def get_fields(self, request: HttpRequest, obj: Any = None) -> Sequence[str]:
        names = ["code", "label", "state", "shelf", "owner", "weight", "opened", "note", "hidden", "marks"]
        return [name for name in names if name != "hidden" or is_lead(request)]

    def get_exclude(self, request: HttpRequest, obj: Any = None) -> Any:
        return ["rank"] if is_lead(request) else ["rank", "hidden"]

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> Sequence[str]:
        # What the form itself may change would be another answer for the page that shows its errors.
        closed = ["code", "weight"] if obj is not None and obj.rank > 1 else []
        return closed if is_lead(request) else [*closed, "note"]

    def get_form(self, request: HttpRequest, obj: Any = None, change: bool = False, **kwargs: Any) -> Any:
        if not is_lead(request):
            kwargs["form"] = CarefulForm
        return super().get_form(request, obj, change, **kwargs)

    def formfield_for_choice_field(self, db_field: Any, request: Any, **kwargs: Any) -> Any:
        if db_field.name == "state" and not is_lead(request):
            kwargs["choices"] = [("open", "Open"), ("sealed", "Sealed")]
        return super().formfield_for_choice_field(db_field, request, **kwargs)

    def formfield_for_foreignkey(self, db_field: Any, request: Any, **kwargs: Any) -> Any:
        if db_field.name == "owner" and not is_lead(request):
            kwargs["queryset"] = get_user_model().objects.filter(pk=request.user.pk)
        return super().formfield_for_foreignkey(db_field, request, **kwargs)

    def formfield_for_manytomany(self, db_field: Any, request: Any, **kwargs: Any) -> Any:
        if not is_lead(request):
            kwargs["queryset"] = Mark.objects.filter(internal=False)
        return super().formfield_for_manytomany(db_field, request, **kwargs)

    def formfield_for_dbfield(self, db_field: Any, request: Any, **kwargs: Any) -> Any:
        if db_field.name == "weight" and not is_lead(request):
            kwargs["max_value"] = 100
        return super().formfield_for_dbfield(db_field, request, **kwargs)

    # Saving

    def save_form(self, request: Any, form: Any, change: bool) -> Any:
        crate = super().save_form(request, form, change)
        crate.checked_by = request.user.get_username()
        return crate

    def save_model(self, request: Any, obj: Any, form: Any, change: bool) -> None:
        if obj.owner_id is None:
            obj.owner = request.user
            self.message_user(request, "It is yours now.", messages.WARNING)
        super().save_model(request, obj, form, change)

    def save_formset(self, request: Any, form: Any, formset: Any, change: bool) -> None:
        for row in formset.save(commit=False):
            if isinstance(row, Item):
                row.quantity = min(row.quantity, 40)
            row.save()
        for row in formset.deleted_objects:
            row.delete()
        formset.save_m2m()

    def save_related(self, request: Any, form: Any, formsets: Any, change: bool) -> None:
        super().save_related(request, form, formsets, change)
        form.instance.pieces = sum(form.instance.items.values_list("quantity", flat=True))
        form.instance.save(update_fields=["pieces"])

    def delete_model(self, request: Any, obj: Any) -> None:
        obj.deleted = True
        obj.save(update_fields=["deleted"])

    def delete_queryset(self, request: Any, queryset: Any) -> None:
        queryset.update(deleted=True)

    def response_add(self, request: Any, obj: Any, post_url_continue: Any = None) -> HttpResponse:
        return HttpResponseRedirect("/elsewhere/")

    def response_change(self, request: Any, obj: Any) -> HttpResponse:
        return HttpResponseRedirect("../../?e=1")

    # Actions

    @admin.action(permissions=["change"])
    def seal(self, request: HttpRequest, queryset: QuerySet[Crate]) -> None:
        """Count in the session how many were sealed."""
        request.session["sealed"] = request.session.get("sealed", 0) + queryset.count()
        queryset.update(state="sealed", rank=F("rank") + request.session["sealed"])

    @admin.action(permissions=["view"])
    def visit(self, request: HttpRequest, queryset: QuerySet[Crate]) -> HttpResponse:
        """Lead on to the page of a crate, which was visited."""
        queryset.update(label="visited")
        first = queryset.first()
        return HttpResponseRedirect(f"{first.pk}/change/" if first is not None else "/elsewhere/")


@admin.register(Shelf)
class ShelfAdmin(admin.ModelAdmin):
    fields = ["name"]
    list_display = ["name", "zone", "active"]
    list_editable = ["zone", "active"]
    search_fields = ["name"]
    ordering = ["-name"]

    def get_search_results(self, request: Any, queryset: Any, search_term: str) -> Any:
        found, duplicates = super().get_search_results(request, queryset, search_term)
        return (found if is_lead(request) else found.filter(zone="dry")), duplicates


@admin.register(Mark)
class MarkAdmin(admin.ModelAdmin):
    def get_queryset(self, request: HttpRequest) -> QuerySet[Mark]:
        found = super().get_queryset(request)
        return found if is_lead(request) else found.filter(internal=False)
