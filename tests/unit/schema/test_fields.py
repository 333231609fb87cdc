"""What form fields and serializer fields have in common."""

import pytest
from django import forms
from rest_framework import serializers

from mcp_django.schema.fields import NOTATIONS, choice, notation, with_default


@pytest.mark.parametrize("name", NOTATIONS)
def test_a_field_of_a_form_and_one_of_a_serializer_are_written_alike(name: str) -> None:
    modules = [module for module in (forms, serializers) if hasattr(module, name)]
    assert modules
    for module in modules:
        field = getattr(module, name)(**({"assume_scheme": "https"} if module is forms and name == "URLField" else {}))
        assert notation(field, module) == NOTATIONS[name]


def test_a_field_of_no_such_kind_has_no_notation() -> None:
    assert notation(forms.CharField(), forms) == ("", "")


@pytest.mark.parametrize(
    ("options", "more", "shape"),
    [
        ([], [], ({"type": "string"}, ["one of 0 values"])),
        ([(1, "One"), (2, "2")], [""], ({"type": "integer", "enum": [1, 2]}, ["1 = One"])),
        ([(1, "One"), ("b", "B")], [""], ({"type": "string", "enum": ["1", "b", ""]}, ["1 = One"])),
        ([(n, f"No {n}") for n in range(51)], [], ({"type": "integer", "enum": list(range(51))}, [""])),
    ],
)
def test_values_stay_numbers_where_all_are(options, more, shape) -> None:
    assert choice(options, *more) == shape


def test_a_default_that_is_worked_out_is_not_shown() -> None:
    shape = {"type": "string"}, ["UUID"]
    assert with_default(({"type": "string"}, ["UUID"]), lambda: 5, [""]) == {**shape[0], "description": "(UUID)"}
    assert with_default(shape, 5, ["Whose"]) == {
        "type": "string",
        "default": 5,
        "description": "Whose (UUID, default 5)",
    }
