"""The admin, as a person with a browser uses it: pages are opened, filled in and sent as they stand."""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from django.contrib import admin
from django.db.models import Model
from django.forms import BooleanField, JSONField, ModelMultipleChoiceField, SplitDateTimeField
from django.http import QueryDict
from django.test import Client
from django.urls import reverse

from mcp_django.tools.controls import HtmlForm, read_forms

from .outcomes import Outcome
from .urls import site

# The inline whose rows are written, and what may be set of them.
LINES = "lines"
LINE_FIELDS = frozenset({"product", "quantity", "unit_price"})


class AdminSide:
    """The admin's verdicts on what `user` does."""

    def __init__(self, user: Any) -> None:
        self.client = Client()
        self.client.force_login(user)

    def list(self, model: type[Model], search: str, filters: Mapping[str, Any], order: str) -> Outcome:
        url, asked = _url(model, "changelist"), {"q": search, **filters}
        page = self.client.get(url, asked)
        if page.status_code == 200 and order and "cl" in page.context:
            column = page.context["cl"].list_display.index(order.lstrip("-"))
            page = self.client.get(url, {**asked, "o": f"{'-' if order[0] == '-' else ''}{column}"})
        if page.status_code != 200 or "cl" not in page.context:
            return Outcome("refused")
        return Outcome("done", shown=[str(pk) for pk in page.context["cl"].queryset.values_list("pk", flat=True)])

    def view(self, model: type[Model], pk: Any) -> Outcome:
        response = self.client.get(_url(model, "change", pk))
        return Outcome("done" if response.status_code == 200 else "refused")

    def add(self, model: type[Model], values: Mapping[str, Any]) -> Outcome:
        return self._send(_url(model, "add"), values)

    def change(self, model: type[Model], pk: Any, values: Mapping[str, Any]) -> Outcome:
        return self._send(_url(model, "change", pk), values)

    def delete(self, model: type[Model], pk: Any) -> Outcome:
        url = _url(model, "delete", pk)
        existed = model._base_manager.filter(pk=pk).exists()
        self.client.post(url, {"post": "yes"})
        return Outcome("done" if existed and not model._base_manager.filter(pk=pk).exists() else "refused")

    def act(self, model: type[Model], name: str, pks: Sequence[Any], form: Mapping[str, str]) -> Outcome:
        picked = {"action": name, "_selected_action": [str(pk) for pk in pks]}
        page = self.client.post(_url(model, "changelist"), picked)
        if page.status_code != 200 or "action_checkbox_name" not in (page.context or {}):
            return Outcome("done" if page.status_code in (200, 302) else "refused")
        sent = self.client.post(_url(model, "changelist"), {**picked, **form, "apply": "1"})
        if sent.status_code == 200:
            return Outcome("invalid", frozenset(sent.context["form"].errors))
        return Outcome("done")

    def fields(self, model: type[Model], pk: Any | None) -> Mapping[str, Any]:
        """Return the fields of the page's form, none where the page does not open."""
        response = self.client.get(_url(model, "add") if pk is None else _url(model, "change", pk))
        if response.status_code != 200 or not response.context or "adminform" not in response.context:
            return {}
        fields: Mapping[str, Any] = response.context["adminform"].form.fields
        return fields

    def _send(self, url: str, values: Mapping[str, Any]) -> Outcome:
        page = self.client.get(url)
        if page.status_code != 200 or not page.context or "adminform" not in page.context:
            return Outcome("refused")
        form, fields = _page_form(page.text), page.context["adminform"].form.fields
        data = QueryDict(mutable=True)
        for name, text in form.entries:
            data.appendlist(name, text)
        places: dict[int, int] = {}
        for name, value in values.items():
            if name == LINES:
                if not all(fill_line(data, page, line, places, index) for index, line in enumerate(value)):
                    return Outcome("refused")
            else:
                _fill(data, fields[name], name, value)
        sent = self.client.post(url, {name: data.getlist(name) for name in data})
        if sent.status_code == 200:
            return Outcome("invalid", _errors(sent.context, places))
        return Outcome("done" if sent.status_code == 302 else "refused")


def fill_line(data: QueryDict, page: Any, line: Mapping[str, Any], places: dict[int, int], index: int) -> bool:
    """Fill in one row of the inline; return whether the page has controls for that. `places` are noted by the form."""
    total = int(data.get(f"{LINES}-TOTAL_FORMS") or 0)
    if "pk" in line:
        known = [number for number in range(total) if data.get(f"{LINES}-{number}-id") == str(line["pk"])]
        if not known or (line.get("delete") and f'name="{LINES}-{known[0]}-DELETE"' not in page.text):
            return False
        number = known[0]
    else:
        if total >= int(data.get(f"{LINES}-MAX_NUM_FORMS") or 0):
            return False
        number = total
        data[f"{LINES}-TOTAL_FORMS"] = str(total + 1)
    places[number] = index
    if line.get("delete"):
        data[f"{LINES}-{number}-DELETE"] = "on"
    for name in LINE_FIELDS & line.keys():
        if "pk" in line and f"{LINES}-{number}-{name}" not in data:
            return False
        data[f"{LINES}-{number}-{name}"] = str(line[name])
    return True


def _errors(context: Any, places: Mapping[int, int]) -> frozenset[str]:
    found = set(context["adminform"].form.errors)
    for inline in context["inline_admin_formsets"]:
        for number, form in enumerate(inline.formset.forms):
            if not (inline.formset.can_delete and inline.formset._should_delete_form(form)):
                found |= {f"{inline.formset.prefix}[{places.get(number, '?')}].{name}" for name in form.errors}
        if inline.formset.non_form_errors():
            found.add(inline.formset.prefix)
    return frozenset(found)


def _url(model: type[Model], view: str, *args: Any) -> str:
    opts = model._meta
    return reverse(f"admin:{opts.app_label}_{opts.model_name}_{view}", args=args)


def _page_form(page: str) -> HtmlForm:
    return next(
        form
        for form in read_forms(page)
        if any(name == "csrfmiddlewaretoken" for name, _ in form.entries) and form.action == ""
    )


def _fill(data: QueryDict, field: Any, name: str, value: Any) -> None:
    if isinstance(field, SplitDateTimeField):
        day, _, time = str(value or "").partition("T")
        data[f"{name}_0"], data[f"{name}_1"] = day, time
    elif isinstance(field, BooleanField):
        data.pop(name, None)
        if value:
            data[name] = "on"
    elif isinstance(field, ModelMultipleChoiceField):
        data.setlist(name, [str(item) for item in value])
    elif isinstance(field, JSONField):
        data[name] = json.dumps(value)
    else:
        data[name] = "" if value is None else str(value)


def seen(user: Any) -> Callable[[type[Model], Any], bool]:
    """Return what tells whether the user may see a row, by the admin's own word; users are no rows that are exposed."""
    request = _request(user)

    def sees(model: type[Model], pk: Any) -> bool:
        if model not in site.exposures:
            return True
        model_admin = admin.site.get_model_admin(model)
        visible = admin.site.has_permission(request) and model_admin.has_view_permission(request)
        return visible and model_admin.get_queryset(request).filter(pk=pk).exists()

    return sees


def _request(user: Any) -> Any:
    from django.test import RequestFactory

    request = RequestFactory().get("/")
    request.user = user
    return request
