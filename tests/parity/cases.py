"""What is drawn for a case: who acts, on what, with which values."""

from datetime import date
from typing import Any

from django import forms
from django.contrib.auth import get_user_model
from django.contrib.auth.models import Permission
from django.db.models import Model, UUIDField
from hypothesis import strategies as st

from example_project.places.models import Country
from example_project.shop.models import OrderLine, Product, StaffProfile

from .admin_side import INLINES
from .depot.models import Crate, Item, Remark

MOSTLY = st.sampled_from([True] * 9 + [False])
SELDOM = st.sampled_from([False] * 9 + [True])
TEXTS = ["", " ", "Ø", "Müller & Söhne", "a-b", "x" * 130, "0", "<b>", "מוצר", "a@b.example", "new-1", "null"]
NUMBERS = ["0", "1", "5", "-1", "2.50", "12.345", "1e3", "abc", "", "99999999999", "4"]
MOMENTS = ["2026-01-02T10:00:00", "2020-02-29T23:59:59", "2026-02-30T10:00:00", "soon", ""]
# Hours that clocks pass twice, and not at all, in one of the zones.
MOMENTS += ["2025-10-26T02:30:00", "2025-03-30T02:30:00", "2025-11-02T01:30:00"]
ZONES = ["UTC", "Europe/Berlin", "America/New_York", "Asia/Kathmandu"]
DAYS = ["2026-01-02", "2026-13-01", "soon", "", date(2020, 2, 29).isoformat()]
MISSING = 987_654


def make_person(draw: Any, model: type[Model], codenames: list[str]) -> Any:
    """Make a user: mostly active staff, with some of the permissions, seldom with all, maybe tied to a country."""
    label = model._meta.app_label
    user = get_user_model().objects.create(
        username="drawn",
        is_active=draw(MOSTLY),
        is_staff=draw(MOSTLY),
        is_superuser=draw(SELDOM),
        last_name=draw(st.sampled_from(["", "lead"])) if label == "depot" else "",
    )
    own = {f"{verb}_{model._meta.model_name}" for verb in ("view", "add", "change", "delete")} | set(codenames)
    others = draw(MOSTLY)
    granted = []
    for permission in Permission.objects.filter(
        content_type__app_label__in=["depot"] if label == "depot" else ["shop", "places"]
    ):
        wanted = draw(MOSTLY) if permission.codename in own else others and permission.codename.startswith("view_")
        if wanted:
            granted.append(permission)
    user.user_permissions.add(*granted)
    if label != "depot" and draw(st.booleans()):
        StaffProfile.objects.create(user=user, country=draw(st.sampled_from(list(Country.objects.order_by("pk")[:4]))))
    return get_user_model().objects.get(pk=user.pk)


def value_for(draw: Any, field: Any) -> Any:
    """Return a JSON value for a form's field, sometimes one that it cannot take."""
    if isinstance(field, forms.ModelMultipleChoiceField):
        return draw(st.lists(st.sampled_from(_keys(field)), max_size=3, unique=True))
    if isinstance(field, forms.ModelChoiceField):
        return draw(st.sampled_from([*_keys(field), *_outside(field), None]))
    if isinstance(field, forms.BooleanField):
        return draw(st.booleans())
    if isinstance(field, forms.JSONField):
        return draw(st.sampled_from([{}, {"colour": "red"}, {"a": [1, None]}, ["x"]]))
    if isinstance(field, forms.ChoiceField):
        return draw(st.sampled_from([*(str(value) for value, _ in field.choices), "nope"]))
    if isinstance(field, (forms.SplitDateTimeField, forms.DateTimeField)):
        return draw(st.sampled_from(MOMENTS))
    if isinstance(field, forms.DateField):
        return draw(st.sampled_from(DAYS))
    if isinstance(field, (forms.IntegerField, forms.DecimalField, forms.FloatField)):
        return draw(st.sampled_from(NUMBERS))
    return draw(st.sampled_from(TEXTS))


def _keys(field: Any) -> list[Any]:
    # As JSON has them: text for what is no number.
    keys = [pk if isinstance(pk, int) else str(pk) for pk in field.queryset.order_by("pk").values_list("pk", flat=True)]
    middle = len(keys) // 2
    return [*keys[:4], *keys[middle : middle + 2], *keys[-4:], missing_key(field.queryset.model)]


def _outside(field: Any) -> list[Any]:
    """Return the key of a row that the field does not offer, if there is one."""
    rows = field.queryset.model._base_manager
    offered = field.queryset.complex_filter(field.get_limit_choices_to() or {}).values("pk")
    return list(rows.exclude(pk__in=offered).order_by("pk").values_list("pk", flat=True)[:1])


def missing_key(model: type[Model]) -> Any:
    """Return a primary key that no row has."""
    return "00000000-0000-4000-8000-000000000000" if isinstance(model._meta.pk, UUIDField) else MISSING


def named_rows(fields: Any, values: dict[str, Any]) -> list[tuple[type[Model], Any]]:
    """Return the rows that the values refer to."""
    found: list[tuple[type[Model], Any]] = []
    for name, value in values.items():
        if name not in fields:
            if name in INLINES:
                found += [(Product, line["product"]) for line in value if "product" in line]
            continue
        field = fields.get(name)
        if isinstance(field, forms.ModelMultipleChoiceField):
            # Links to rows that nobody of his kind may see have no name.
            found.append((field.queryset.model, None))
        if isinstance(field, (forms.ModelChoiceField, forms.ModelMultipleChoiceField)) and value not in (None, []):
            found += [(field.queryset.model, pk) for pk in (value if isinstance(value, list) else [value])]
    return found


def lines_for(draw: Any, order: Any) -> list[dict[str, Any]]:
    """Return changes to the lines of an order: rows of it, seldom of another one, and new ones."""
    own = list(OrderLine.objects.filter(order=order).order_by("pk").values_list("pk", flat=True)) if order else []
    other = list(OrderLine.objects.exclude(order=order).order_by("pk").values_list("pk", flat=True)[:1])
    products = [str(pk) for pk in Product.objects.order_by("pk").values_list("pk", flat=True)[:3]]
    found: list[dict[str, Any]] = []
    for pk in draw(st.lists(st.sampled_from([*own, *own, *other]), max_size=2, unique=True)):
        change = draw(st.sampled_from([{"delete": True}, {"quantity": 3}, {"quantity": 0}, {"unit_price": "2.50"}]))
        found.append({"pk": pk, **change})
    if draw(st.booleans()):
        price = draw(st.sampled_from(["1.00", "abc"]))
        found.append(
            {"product": draw(st.sampled_from(products)), "quantity": draw(st.sampled_from([1, 0])), "unit_price": price}
        )
    return found


def contents_for(draw: Any, pk: Any) -> dict[str, list[dict[str, Any]]]:
    """Return changes to what is in a crate, and to the remarks on it."""
    own = list(Item.objects.filter(crate=pk).order_by("pk").values_list("pk", flat=True))
    other = list(Item.objects.exclude(crate=pk).order_by("pk").values_list("pk", flat=True)[:1])
    items: list[dict[str, Any]] = []
    for item in draw(st.lists(st.sampled_from([*own, *own, *other]), max_size=2, unique=True)):
        items.append({"pk": item, **draw(st.sampled_from([{"delete": True}, {"quantity": 45}, {"name": "I1"}]))})
    new = [
        {"name": "new", "quantity": 2},
        {"name": "I0", "quantity": 1},
        {"name": "big", "quantity": 60},
        {"name": "x" * 40, "quantity": 1},
    ]
    items += draw(st.lists(st.sampled_from(new), max_size=3))
    remarks: list[dict[str, Any]] = draw(st.lists(st.sampled_from([{"text": "a"}, {"text": "x" * 30}]), max_size=3))
    crate = Crate.objects.filter(pk=pk).first()
    for remark in Remark.objects.filter(object_id=crate.pk) if crate is not None else ():
        remarks += draw(st.sampled_from([[], [{"pk": remark.pk, "delete": True}], [{"pk": remark.pk, "text": "b"}]]))
    return {name: rows for name, rows in (("items", items), ("remarks", remarks)) if rows}
