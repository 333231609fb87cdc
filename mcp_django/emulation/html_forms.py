"""The entries that a browser would post: from the controls of an HTML form, or from the widget of a form field.

Projects have their own pages and widgets, so their HTML is parsed as a browser would (HTML, section 4.10.22.4,
"Constructing the entry list").
"""

import re
from dataclasses import dataclass, field
from html.parser import HTMLParser
from typing import Any, Final

from django.contrib.admin.widgets import ForeignKeyRawIdWidget
from django.forms import CheckboxInput, Field, FileInput, MultiWidget, Select, Widget
from django.forms.widgets import ChoiceWidget
from django.utils.datastructures import MultiValueDict

# A file is posted as an ``UploadedFile``.
Pair = tuple[str, Any]
Attrs = dict[str, str | None]
# Elements whose text is not part of the message of a page.
SILENT: Final = frozenset(
    {"script", "style", "select", "textarea", "button", "label", "title", "nav", "header", "footer"}
)
# A link that looks like a button, such as the admin's "Cancel".
BUTTON_LINK: Final = re.compile(r"\b(?:button|closelink|cancel-link|deletelink)\b")
UNPOSTED_INPUTS: Final = frozenset({"reset", "button", "file", "image", "submit"})


@dataclass(frozen=True, slots=True)
class Button:
    """A named button of an HTML form, posted when it is pressed."""

    name: str
    value: str
    label: str


@dataclass(slots=True)
class Control:
    """A control of an HTML form that a person can change. ``choices`` are the values of a select or of radio buttons;
    ``labels`` has the texts of a select's options by value."""

    required: bool = False
    many: bool = False
    choices: list[str] = field(default_factory=list)
    labels: dict[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class HtmlForm:
    """An HTML form: its address, the entries that it posts untouched, its controls and its buttons."""

    action: str = ""
    method: str = "get"
    entries: list[Pair] = field(default_factory=list)
    controls: dict[str, Control] = field(default_factory=dict)
    buttons: list[Button] = field(default_factory=list)
    text: list[str] = field(default_factory=list)


class Unfit(Exception):
    """Raised where the HTML of a form's widget cannot show a value, or reads back another one."""


class _FormReader(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        # The first form collects controls and text outside of any form. It is never posted.
        self.forms = [HtmlForm()]
        self.form = self.forms[0]
        self.silent: list[str] = []
        self.field: Attrs | None = None
        self.field_text = ""
        self.options: list[tuple[str, bool, str]] = []
        self.option: tuple[str | None, bool] | None = None

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found: Attrs = dict(attrs)
        if tag in SILENT or (tag == "a" and BUTTON_LINK.search(found.get("class") or "")):
            self.silent.append(tag)
        if tag == "form":
            self.form = HtmlForm(found.get("action") or "", (found.get("method") or "get").lower())
            self.forms.append(self.form)
        elif tag == "input" and "disabled" not in found:
            self._input(found)
        elif tag in ("select", "textarea", "button"):
            self.field = found
            self.field_text = ""
            self.options = []
            self.option = None
        elif tag == "option":
            self._close_option()
            self.option = (found.get("value"), "selected" in found)
            self.field_text = ""

    def handle_endtag(self, tag: str) -> None:
        if tag in self.silent:
            del self.silent[len(self.silent) - 1 - self.silent[::-1].index(tag) :]
        if tag == "form":
            self.form = self.forms[0]
        elif tag == "option":
            self._close_option()
        elif tag in ("select", "textarea", "button") and self.field is not None:
            self._close_option()
            attrs = self.field
            self.field = None
            if attrs.get("name") and "disabled" not in attrs:
                getattr(self, f"_{tag}")(str(attrs["name"]), attrs)

    def handle_data(self, data: str) -> None:
        if self.field is not None:
            self.field_text += data
        elif not self.silent and data.strip():
            self.form.text.append(" ".join(data.split()))

    def _close_option(self) -> None:
        if self.option is not None:
            value, selected = self.option
            label = " ".join(self.field_text.split())
            self.options.append((self.field_text.strip() if value is None else value, selected, label))
        self.option = None

    def _input(self, attrs: Attrs) -> None:
        name = attrs.get("name")
        kind = (attrs.get("type") or "text").lower()
        if not name:
            return
        value = attrs.get("value")
        if kind == "submit":
            self.form.buttons.append(Button(name, value or "", value or name))
        if kind in UNPOSTED_INPUTS:
            return
        checkable = kind in ("checkbox", "radio")
        if value is None:
            # As browsers do (HTML, 4.10.5.1.15): a box without a value posts "on".
            value = "on" if checkable else ""
        if not checkable or "checked" in attrs:
            self.form.entries.append((name, value))
        if kind != "hidden":
            control = self._control(name, attrs)
            control.many = control.many or (kind == "checkbox" and bool(control.choices))
            if checkable:
                control.choices.append(value or "on")

    def _control(self, name: str, attrs: Attrs) -> Control:
        control = self.form.controls.setdefault(name, Control())
        control.required = control.required or "required" in attrs
        return control

    def _select(self, name: str, attrs: Attrs) -> None:
        control = self._control(name, attrs)
        control.many = "multiple" in attrs
        control.choices += [value for value, _, _ in self.options]
        control.labels = {value: label for value, _, label in self.options if value and label != value}
        chosen = [value for value, selected, _ in self.options if selected]
        if not chosen and not control.many:
            # A browser posts the first option, which nobody has chosen.
            chosen = control.choices[:1]
            control.required = control.required or bool(chosen and chosen[0])
        self.form.entries += [(name, value) for value in chosen]

    def _textarea(self, name: str, attrs: Attrs) -> None:
        self._control(name, attrs)
        # The first newline is not part of the value (HTML, section 13.2.6.4.7).
        self.form.entries.append((name, self.field_text.removeprefix("\n")))

    def _button(self, name: str, attrs: Attrs) -> None:
        if (attrs.get("type") or "submit").lower() == "submit":
            value = attrs.get("value") or ""
            self.form.buttons.append(Button(name, value, " ".join(self.field_text.split()) or value or name))


def read_forms(html: str) -> list[HtmlForm]:
    """Parse a page and return its HTML forms in order; the first stands for everything outside of forms."""
    reader = _FormReader()
    reader.feed(html)
    reader.close()
    return reader.forms


def unwrapped(widget: Widget) -> Widget:
    """Return the HTML form widget inside the admin's wrapper with links."""
    inner = getattr(widget, "widget", None)
    return inner if isinstance(inner, Widget) else widget


def posted(widget: Widget, name: str, value: Any) -> list[Pair]:
    """Return the entries that an HTML form posts for a widget that shows ``value``. Selects are not rendered, because
    their options can be all rows of a table."""
    widget = unwrapped(widget)
    match widget:
        case FileInput():
            return []
        case CheckboxInput():
            return [(name, "on")] if widget.check_test(value) else []
        case MultiWidget():
            return _posted_parts(widget, name, value)
        case ChoiceWidget():
            shown = widget.format_value(value)
            items = shown if isinstance(shown, (list, tuple)) else [shown]
            return [(name, str(item)) for item in items]
    # Rendering a raw id widget needs the URLs of the admin, which may not be mounted.
    if type(widget).value_from_datadict is Widget.value_from_datadict or isinstance(widget, ForeignKeyRawIdWidget):
        shown = widget.format_value(value)
        return [(name, "" if shown is None else str(shown))]
    return read_forms(str(widget.render(name, value)))[0].entries


def first_choice(widget: Widget, name: str) -> list[Pair]:
    """Return the entry that an HTML form posts for a select without a value: its first option. An autocomplete select,
    which overrides ``optgroups``, has no options until somebody types."""
    widget = unwrapped(widget)
    if not isinstance(widget, Select) or widget.allow_multiple_selected:
        return []
    first = next(iter(widget.choices), None) if type(widget).optgroups is ChoiceWidget.optgroups else None
    while first is not None and isinstance(first[1], (list, tuple)):
        first = next(iter(first[1]), None)
    if first is not None and first[0] is not None:
        return [(name, str(first[0]))]
    return []


def _posted_parts(widget: Any, name: str, value: Any) -> list[Pair]:
    parts = list(value if isinstance(value, (list, tuple)) else widget.decompress(value))
    parts += [None] * (len(widget.widgets) - len(parts))
    suffixed = zip(widget.widgets, widget.widgets_names, parts, strict=False)
    return [pair for part, suffix, item in suffixed for pair in posted(part, name + suffix, item)]


def entered(field: Field, html_name: str, value: Any) -> list[Pair]:
    """Return the entries that an HTML form posts where a Python ``value`` is entered in a field's widget."""
    if isinstance(value, list) and hasattr(field, "base_field") and is_written_as_text(field, value):
        # Post the list itself, which the field accepts too: in its text, commas inside of items would be lost.
        return [(html_name, value)]
    shown = field.prepare_value(value)
    # If the widget posts nothing, a script may create its control in the browser.
    return posted(field.widget, html_name, shown) or ([(html_name, shown)] if shown and value is not False else [])


def shown_entries(item: Field, html_name: str, value: Any) -> list[Pair]:
    """Return the entries that an HTML form posts for a field's value; raise ``Unfit`` if the widget cannot show it."""
    try:
        entries = entered(item, html_name, value)
        data: MultiValueDict[str, Any] = MultiValueDict()
        for name, part in entries:
            data.appendlist(name, part)
        item.widget.value_from_datadict(data, MultiValueDict(), html_name)
    except Exception as error:
        raise Unfit from error
    return entries


def is_written_as_text(field: Field, value: Any) -> bool:
    """Return whether a control of an HTML form shows an object or list as text, as PostgreSQL's widgets do."""
    return isinstance(value, (dict, list)) and isinstance(field.prepare_value(value), str)
