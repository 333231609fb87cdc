"""Fields whose values are objects, and widgets that only a script can fill in."""

import json
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import Any

from django import forms
from django.core.exceptions import ValidationError
from django.db import models


@dataclass(frozen=True)
class Money:
    amount: Decimal
    currency: str

    def __str__(self) -> str:
        return f"{self.amount} {self.currency}"


class MoneyWidget(forms.MultiWidget):
    """Takes the value apart, and takes nothing but such a value."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__([forms.NumberInput, forms.Select(choices=[("EUR", "Euro"), ("USD", "Dollar")])], **kwargs)

    def decompress(self, value: Any) -> list[Any]:
        return [None, "EUR"] if value is None else [value.amount, value.currency]


class MoneyFormField(forms.MultiValueField):
    def __init__(self, **kwargs: Any) -> None:
        parts = [
            forms.DecimalField(max_digits=9, decimal_places=2),
            forms.ChoiceField(choices=[("EUR", ""), ("USD", "")]),
        ]
        super().__init__(parts, **{"widget": MoneyWidget, **kwargs})

    def compress(self, data_list: list[Any]) -> Any:
        return Money(*data_list) if data_list and data_list[0] is not None else None


class MoneyField(models.DecimalField):
    """A field with values of a class of their own, derived from one whose values are plain."""

    def db_type(self, connection: Any) -> str:
        return "varchar(40)"

    def get_internal_type(self) -> str:
        return "MoneyField"

    def from_db_value(self, value: Any, expression: Any, connection: Any) -> Any:
        return self.to_python(value)

    def to_python(self, value: Any) -> Any:
        if value is None or isinstance(value, Money):
            return value
        try:
            amount, currency = str(value).split()
            return Money(Decimal(amount), currency)
        except (ValueError, InvalidOperation):
            raise ValidationError("Give an amount and a currency, such as 12.50 EUR.") from None

    def get_prep_value(self, value: Any) -> Any:
        return None if value is None else str(value)

    def get_db_prep_value(self, value: Any, connection: Any, prepared: bool = False) -> Any:
        return self.get_prep_value(value)

    def get_db_prep_save(self, value: Any, connection: Any) -> Any:
        return self.get_prep_value(value)

    @property
    def validators(self) -> list[Any]:
        return []

    def formfield(self, **kwargs: Any) -> Any:
        return models.Field.formfield(self, **{"form_class": MoneyFormField, **kwargs})


class BlocksWidget(forms.Widget):
    """An empty element that a script turns into as many controls as there are blocks."""

    def render(self, name: str, value: Any, attrs: Any = None, renderer: Any = None) -> str:
        return f'<div id="{name}" data-blocks></div>'

    def value_from_datadict(self, data: Any, files: Any, name: str) -> Any:
        return Blocks([data[f"{name}-{number}"] for number in range(int(data[f"{name}-count"]))])

    def value_omitted_from_data(self, data: Any, files: Any, name: str) -> bool:
        return f"{name}-count" not in data


class Blocks(list[str]):
    def __str__(self) -> str:
        return json.dumps(self)


class BlocksFormField(forms.Field):
    widget = BlocksWidget

    def clean(self, value: Any) -> Any:
        found = super().clean(value)
        if any(not block.strip() for block in found):
            raise ValidationError("A block is empty.")
        return found


class BlocksField(models.Field):
    """A list of texts, kept as JSON."""

    def db_type(self, connection: Any) -> str:
        return "text"

    def from_db_value(self, value: Any, expression: Any, connection: Any) -> Any:
        return self.to_python(value)

    def to_python(self, value: Any) -> Any:
        if value is None or isinstance(value, Blocks):
            return value
        try:
            return Blocks(json.loads(value))
        except (TypeError, ValueError):
            raise ValidationError("Give a list of texts as JSON.") from None

    def get_prep_value(self, value: Any) -> Any:
        return None if value is None else str(value)

    def formfield(self, **kwargs: Any) -> Any:
        return super().formfield(**{"form_class": BlocksFormField, **kwargs})


# As in GeoDjango, whose libraries not every machine has: the names and the rules are those of its forms.


class Shape:
    """A geometry: its well-known text and the system of its coordinates."""

    def __init__(self, text: str, srid: int | None = None) -> None:
        prefix, found, rest = text.partition(";")
        if found:
            srid, text = int(prefix.removeprefix("SRID=")), rest
        kind, _, numbers = text.strip().partition("(")
        self.geom_type = kind.strip().upper()
        self.points = [[float(part) for part in pair.split()] for pair in numbers.strip("() ").split(",")]
        if self.geom_type not in ("POINT", "LINESTRING"):
            raise ValueError(text)
        self.srid = srid

    @property
    def wkt(self) -> str:
        return f"{self.geom_type} ({', '.join(' '.join(f'{part:g}' for part in pair) for pair in self.points)})"

    def transform(self, srid: int) -> None:
        """Web Mercator to degrees and back, near the equator."""
        if srid != self.srid:
            factor = 111_319.49 if srid == 3857 else 1 / 111_319.49
            self.points = [[part * factor for part in pair] for pair in self.points]
            self.srid = srid

    def __str__(self) -> str:
        return f"SRID={self.srid};{self.wkt}" if self.srid else self.wkt

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Shape) and str(self) == str(other)

    def __hash__(self) -> int:
        return hash(str(self))


class MapWidget(forms.Widget):
    map_srid = 3857

    def deserialize(self, value: str) -> Shape | None:
        try:
            if value.lstrip().startswith("{"):
                found = json.loads(value)
                return Shape(f"{found['type']} ({' '.join(map(str, found['coordinates']))})", self.map_srid)
            return Shape(value)
        except (ValueError, KeyError):
            return None


class ShapeFormField(forms.Field):
    widget = MapWidget

    def __init__(self, *, srid: Any = None, geom_type: Any = None, **kwargs: Any) -> None:
        self.srid, self.geom_type = srid, geom_type
        super().__init__(**kwargs)

    def to_python(self, value: Any) -> Any:
        if value in self.empty_values:
            return None
        found: Any = value if isinstance(value, Shape) else self.widget.deserialize(value)  # type: ignore[attr-defined]
        if found is None:
            raise ValidationError("Invalid geometry value.")
        if not found.srid:
            found.srid = self.widget.map_srid  # type: ignore[attr-defined]
        return found

    def clean(self, value: Any) -> Any:
        found = super().clean(value)
        if found is not None:
            if found.geom_type != self.geom_type:
                raise ValidationError("Invalid geometry type.")
            found.transform(self.srid)
        return found


class ShapeField(models.Field):
    srid = 4326
    geom_type = "POINT"

    def db_type(self, connection: Any) -> str:
        return "varchar(200)"

    def from_db_value(self, value: Any, expression: Any, connection: Any) -> Any:
        return None if value is None else Shape(value, self.srid)

    def get_prep_value(self, value: Any) -> Any:
        return None if value is None else value.wkt

    def formfield(self, **kwargs: Any) -> Any:
        return super().formfield(
            **{"form_class": ShapeFormField, "srid": self.srid, "geom_type": self.geom_type, **kwargs}
        )
