"""The admin, as a person with a browser uses it: pages are opened, filled in and sent as they stand."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django.contrib import admin
from django.contrib.admin.models import DELETION, LogEntry
from django.core.exceptions import NON_FIELD_ERRORS
from django.db.models import Model
from django.forms import BooleanField, JSONField, ModelMultipleChoiceField, SplitDateTimeField
from django.http import QueryDict
from django.test import Client
from django.urls import reverse
from django.utils.deprecation import MiddlewareMixin

from mcp_django.emulation.html_forms import HtmlForm, read_forms

from .outcomes import Outcome
from .urls import site


@dataclass(frozen=True)
class Inline:
    """An inline whose rows are written: its name for callers, the prefix of its formset, what may be set of a row."""

    name: str
    prefix: str
    fields: frozenset[str]


INLINES = {
    "lines": Inline("lines", "lines", frozenset({"product", "quantity", "unit_price"})),
    "items": Inline("items", "items", frozenset({"name", "quantity"})),
    "remarks": Inline("remarks", "depot-remark-content_type-object_id", frozenset({"text"})),
}
# The places of rows on the page, by the prefix of their formset: what the caller calls each.
Places = dict[str, dict[int, int]]


# The header of a request whose page nobody reads: what its view decided, and its context, say enough.
UNREAD = {"X-Unread": "yes"}


class LeaveUnreadPagesBlank(MiddlewareMixin):
    """Renders no template for a page that is not read, which takes longer than all else that the admin does for it."""

    def process_template_response(self, request: Any, response: Any) -> Any:
        if "X-Unread" in request.headers:
            response.content = b""
        return response


class AdminSide:
    """The admin's verdicts on what `user` does."""

    def __init__(self, user: Any) -> None:
        self.user = user
        self.client = Client()
        self.client.force_login(user)

    def list(self, model: type[Model], search: str, filters: Mapping[str, Any], order: str) -> Outcome:
        asked = {"q": search, **filters}
        if order:
            # The list's own columns, as the links above them count.
            columns = admin.site.get_model_admin(model).get_changelist_instance(request_as(self.user)).list_display
            asked["o"] = f"{'-' if order[0] == '-' else ''}{columns.index(order.lstrip('-'))}"
        page = self.client.get(_url(model, "changelist"), asked, headers=UNREAD)
        context = _context(page)
        if page.status_code != 200 or "cl" not in context:
            return Outcome("refused")
        return Outcome("done", shown=[str(pk) for pk in context["cl"].queryset.values_list("pk", flat=True)])

    def view(self, model: type[Model], pk: Any) -> Outcome:
        response = self.client.get(_url(model, "change", pk))
        return Outcome("done" if response.status_code == 200 else "refused")

    def add(self, model: type[Model], values: Mapping[str, Any]) -> Outcome:
        return self._send(_url(model, "add"), values)

    def change(self, model: type[Model], pk: Any, values: Mapping[str, Any]) -> Outcome:
        return self._send(_url(model, "change", pk), values)

    def delete(self, model: type[Model], pk: Any) -> Outcome:
        deletions = LogEntry.objects.filter(action_flag=DELETION)
        before = deletions.count()
        self.client.post(_url(model, "delete", pk), {"post": "yes"})
        return Outcome("done" if deletions.count() > before else "refused")

    def edit(self, model: type[Model], pk: Any, name: str, value: Any) -> Outcome:
        """Write a field in the list, where all of its rows are sent."""
        url = _url(model, "changelist")
        page = self.client.get(url)
        formset = page.context["cl"].formset if page.status_code == 200 and "cl" in page.context else None
        rows = [form for form in formset.forms if str(form.instance.pk) == str(pk)] if formset is not None else []
        if not rows:
            return Outcome("refused")
        entries = next(form.entries for form in read_forms(page.text) if ("form-TOTAL_FORMS" in dict(form.entries)))
        data = QueryDict(mutable=True)
        for key, text in entries:
            if key not in ("action", "select_across"):
                data.appendlist(key, text)
        _fill(data, rows[0].fields[name], rows[0].add_prefix(name), value)
        data["_save"] = "Save"
        sent = self.client.post(url, {name: data.getlist(name) for name in data}, headers=UNREAD)
        if sent.status_code == 200:
            return Outcome("invalid", frozenset(n for form in _context(sent)["cl"].formset.forms for n in form.errors))
        return Outcome("done" if sent.status_code == 302 else "refused")

    def suggest(self, field: Any, term: str) -> Outcome:
        """Return what the widget of a relation suggests for what is typed."""
        asked = {"app_label": field.model._meta.app_label, "model_name": field.model._meta.model_name}
        found = self.client.get(reverse("admin:autocomplete"), {**asked, "field_name": field.name, "term": term})
        if found.status_code != 200:
            return Outcome("refused")
        return Outcome("done", shown=[row["id"] for row in found.json()["results"]])

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
        response = self.client.get(_url(model, "add") if pk is None else _url(model, "change", pk), headers=UNREAD)
        context = _context(response)
        if response.status_code != 200 or "adminform" not in context:
            return {}
        fields: Mapping[str, Any] = context["adminform"].form.fields
        return fields

    def _send(self, url: str, values: Mapping[str, Any]) -> Outcome:
        page = self.client.get(url)
        if page.status_code != 200 or not page.context or "adminform" not in page.context:
            return Outcome("refused")
        form, fields = _page_form(page.text), page.context["adminform"].form.fields
        data = QueryDict(mutable=True)
        for name, text in form.entries:
            data.appendlist(name, text)
        places: Places = {}
        for name, value in values.items():
            if name in INLINES:
                rows = enumerate(value)
                if not all(fill_row(INLINES[name], data, page, row, places, index) for index, row in rows):
                    return Outcome("refused")
            elif name not in fields:
                return Outcome("refused")
            else:
                _fill(data, fields[name], name, value)
        sent = self.client.post(url, {name: data.getlist(name) for name in data}, headers=UNREAD)
        if sent.status_code == 200:
            return Outcome("invalid", _errors(_context(sent), places))
        return Outcome("done" if sent.status_code == 302 else "refused")


def fill_row(inline: Inline, data: QueryDict, page: Any, row: Mapping[str, Any], places: Places, index: int) -> bool:
    """Fill in one row of the inline; return whether the page has controls for that. `places` are noted by the form."""
    prefix = inline.prefix
    total = int(data.get(f"{prefix}-INITIAL_FORMS") or 0)
    if "pk" in row:
        known = [number for number in range(total) if data.get(f"{prefix}-{number}-id") == str(row["pk"])]
        if not known or (row.get("delete") and f'name="{prefix}-{known[0]}-DELETE"' not in page.text):
            return False
        number = known[0]
    else:
        total = total + sum(place >= total for place in places.get(prefix, ()))
        if total >= int(data.get(f"{prefix}-MAX_NUM_FORMS") or 0):
            return False
        number = total
        data[f"{prefix}-TOTAL_FORMS"] = str(max(total + 1, int(data.get(f"{prefix}-TOTAL_FORMS") or 0)))
    places.setdefault(prefix, {})[number] = index
    if row.get("delete"):
        data[f"{prefix}-{number}-DELETE"] = "on"
    for name in inline.fields & row.keys():
        if "pk" in row and f"{prefix}-{number}-{name}" not in data:
            return False
        data[f"{prefix}-{number}-{name}"] = str(row[name])
    return True


def _errors(context: Any, places: Places) -> frozenset[str]:
    found = set(context["adminform"].form.errors)
    names = {inline.prefix: inline.name for inline in INLINES.values()}
    for inline in context["inline_admin_formsets"]:
        formset, known = inline.formset, places.get(inline.formset.prefix, {})
        prefix = names.get(formset.prefix, formset.prefix)
        for number, form in enumerate(formset.forms):
            if not (formset.can_delete and formset._should_delete_form(form)):
                row = f"{prefix}[{known.get(number, '?')}]"
                found |= {row if name == NON_FIELD_ERRORS else f"{row}.{name}" for name in form.errors}
        if formset.non_form_errors():
            found.add(prefix)
    return frozenset(found)


def _context(response: Any) -> Mapping[str, Any]:
    """Return what the page has to show, which is nothing where there is no page."""
    return getattr(response, "context_data", None) or {}


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
    """Return what tells whether the user may see a row, or without a key any row, by the admin's own word.

    Users are no rows that are exposed.
    """
    request = request_as(user)

    def sees(model: type[Model], pk: Any) -> bool:
        if model not in site.exposures:
            return True
        model_admin = admin.site.get_model_admin(model)
        visible = admin.site.has_permission(request) and model_admin.has_view_permission(request)
        if pk is None or not visible:
            return visible
        row = model_admin.get_queryset(request).filter(pk=pk).first()
        return row is not None and model_admin.has_view_permission(request, row)

    return sees


def request_as(user: Any) -> Any:
    from django.test import RequestFactory

    request = RequestFactory().get("/")
    request.user = user
    return request
