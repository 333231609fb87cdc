"""The overview of a model in few words: what an AI model needs to query and write its records."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

from django.forms import BaseModelForm

from ..conf import settings
from ..context.databases import Collation
from ..context.request import MCPRequest
from ..differences.action_trials import TriableActionCall
from ..emulation.admin_exposure import AdminExposure
from ..emulation.inline_rows import PageInlines
from ..emulation.writable_forms import WritableForm
from ..orm.access import ModelAccess, access_of
from ..orm.allowed_filters import AllowedFilter
from ..orm.columns import Column
from ..orm.fields import kind_of
from ..orm.named_filters import NamedFilter
from ..orm.path import computed_target
from ..orm.search import TextSearch
from ..runtime.failing_hooks import call_hook
from ..schema.secrets import clean_text
from ..scopes import Scope

MAX_LINE: Final = 120
MAX_CHOICES: Final = 12
# Minimum characters of a stored choice that is shown without its label.
SPEAKING: Final = 4


def may_write(request: MCPRequest) -> bool:
    """Return whether the caller may write anything, for the model overview: token, site and switches decide."""
    off = request.mcp.off
    return Scope.WRITE in request.mcp.scopes and not settings.READ_ONLY and (off is None or off.writes is None)


def type_words(request: MCPRequest, column: Column) -> Sequence[str]:
    """Return the words for a column's type in the model overview, none for text."""
    if column.field is None or column.is_made:
        return ["computed"]
    if column.kind == "generic":
        return ["any record"]
    if column.kind != "field":
        related = access_of(request).model_of(column.field.related_model)
        single = column.is_foreign_key or column.field.one_to_one
        return [*([] if single else ["list"]), related.exposure.label if related is not None else "key"]
    kind = kind_of(column.field)
    if getattr(column.field, "choices", None):
        pairs = [(str(stored), str(label)) for stored, label in kind.choices if stored not in (None, "")]
        return [*(["list"] if kind.holds_many else []), choice_words(pairs)]
    return [] if kind.word == "text" else [kind.word]


def computed_word(model: ModelAccess, name: str) -> str:
    """Return the type of what the admin computes for the column, if the database can compute it too; "" if not."""
    target = computed_target(model, name, lambda column: True)
    if target is not None:
        return kind_of(target.column.field).word
    return ""


def choice_words(pairs: Iterable[tuple[str, str]]) -> str:
    """Return choices for the model overview, with labels where the values do not speak for themselves."""
    shown = []
    for value, label in pairs:
        speaks = (len(value) >= SPEAKING and not value.isdecimal()) or value.lower() == label.lower()
        shown.append(value if speaks else f"{value}={label}")
    return "|".join(shown[:MAX_CHOICES] + ["…"] * (len(shown) > MAX_CHOICES))


@dataclass(frozen=True, slots=True)
class Use:
    """How the model overview describes writing a field: required, "create only" or "update only"."""

    required: bool
    only: str = ""


class Overview:
    """One model, described for one caller."""

    def __init__(self, model: ModelAccess) -> None:
        self.model = model
        self.request = model.request
        self.exposure = model.exposure

    @property
    def may(self) -> str:
        """The caller's permissions: "view", with "add change delete" as far as the caller has them."""
        writing = ("add", "change", "delete") if may_write(self.request) else ()
        return " ".join(["view", *filter(self.model.may, writing)])

    @cached_property
    def columns(self) -> Sequence[Column]:
        """What the caller may read, in display order."""
        return Column.all(self.exposure, self.model.fields)

    def in_short(self) -> dict[str, Any]:
        """Return the model overview in few words: text unless a type is given, ``*`` required, ``ro`` read-only.

        The type of a relation is the label of the related model; ``write`` stands for add, change and delete together.
        """
        request = self.request
        exposure = self.exposure
        may = self.may.replace("view add change delete", "write")
        may += " search" if exposure.get_search_fields(request) else ""
        may += f", no search in {' '.join(left)}" if (left := TextSearch(self.model).left_out()) else ""
        payload: dict[str, Any] = {"model": exposure.label, "may": may}
        if exposure.description:
            payload["description"] = clean_text(exposure.description.strip().partition("\n")[0], MAX_LINE)
        payload["fields"] = ", ".join(map(self._field, self.columns))
        if comparing := self.comparing():
            payload["comparing"] = comparing
        own_names = {column.name for column in self.columns}
        if extra := [
            f"{name}{'*' * use.required} {use.only}".strip() for name, use in self.uses.items() if name not in own_names
        ]:
            payload["write_only"] = ", ".join(extra)
        if inlines := list(self._inline_names()):
            payload["inlines"] = ", ".join(inlines)
        if related := self.related():
            payload["related"] = ", ".join(related)
        # Filters that are not simply the fields, and filters that the project wrote.
        own = {column.path for column in self.columns}
        narrowed = exposure.get_filter_fields(request) is not None
        filters = []
        for name, allowed in AllowedFilter.all(self.model):
            if narrowed or allowed.path.column not in own:
                filters.append(name)
        for offer in NamedFilter.offers_of(self.model, described=True):
            filters.append(f"{offer.name} {choice_words(offer.choices)}" if offer.choices else offer.name)
        if filters:
            payload["filters"] = ", ".join(filters)
        calls = []
        for name, action in self.model.actions.items() if may_write(request) else ():
            required = action.schema.get("required", ())
            arguments = []
            for key in action.schema.get("properties", {}):
                arguments.append(f"{key}*" if key in required else key)
            call = f"{name}({', '.join(arguments)})" if arguments else name
            if TriableActionCall.fits(action):
                call += " with dry_run"
            calls.append(f"{call} asks for {' and '.join(action.asks_for)}" if action.asks_for else call)
        if calls:
            payload["actions"] = ", ".join(calls)
        return payload

    def comparing(self) -> str:
        """Return how the database compares texts of the model, "" if it tells all of them apart."""
        words = Collation.of(self.exposure.model).overlooked()
        if not words or all(column.field is None or kind_of(column.field).word != "text" for column in self.columns):
            return ""
        return f"exact, in, groups and distinct counts ignore {' and '.join(words)} in texts"

    def _field(self, column: Column) -> str:
        use = self.uses.get(column.name)
        words = [column.name + "*" * (use is not None and use.required), *type_words(self.request, column)]
        if column.is_computed and (word := computed_word(self.model, column.name)):
            # Computed columns that can only be shown have no type.
            words.append(word)
        if column.name == self.exposure.opts.pk.name:
            if words[1:] == ["integer"]:
                return words[0]
            return " ".join(words)
        if use is not None:
            words += [use.only] if use.only else []
        elif self.uses and not column.is_computed:
            words.append("ro")
        return " ".join(words)

    def related(self) -> list[str]:
        """Return the model overview's relations from other models, which filters and aggregates can follow.

        They stand beside the columns; each has its name and the label of the model that it leads to.
        """
        request = self.request
        exposure = self.exposure
        if exposure.get_filter_fields(request) is not None:
            return []
        singles = (rel.get_accessor_name() for rel in exposure.opts.related_objects if rel.one_to_one)
        links = [*self.model.links, *(self.model.link(name) for name in singles if name)]
        shown = set(self.model.fields)
        return [f"{link.name} {link.exposure.label}" for link in links if link is not None and link.name not in shown]

    # Writable fields

    @cached_property
    def forms(self) -> tuple[WritableForm | None, WritableForm | None]:
        """The forms that the model overview describes: add form and change form, None for one that callers may not use.

        The change form is that of an empty row, or of a sample row where the caller can set more. Sample rows are tried
        if the empty row's form has nothing to set, or lacks fields of the add form, and the project decides by row.
        """
        if not may_write(self.request):
            return None, None
        exposure = self.exposure
        (may_add, may_change) = map(self.model.may, ("add", "change"))
        add = (
            call_hook(exposure.label, "The add page", WritableForm.of, self.model, None, default=None)
            if may_add
            else None
        )
        if add is not None and may_change and self._is_one_page(add.form):
            return add, add
        added = {*add.names} if add is not None else set()
        best: WritableForm | None = None
        for row in self.model.sample_rows() if may_change else ():
            found = call_hook(exposure.label, "The change page", WritableForm.of, self.model, row, default=None)
            if found is not None and (best is None or len(found.names) > len(best.names)):
                best = found
            if best is not None and (not exposure.options.has_own_pages or (best.names and added <= {*best.names})):
                break
        return add, best

    def _is_one_page(self, form: Any) -> bool:
        """Return whether the add page and the change page have the same form, because all of their hooks are Django's.

        ``form`` is that of the add page.
        """
        exposure = self.exposure
        if not isinstance(exposure, AdminExposure) or exposure.options.has_own_pages:
            return False
        is_stock = type(form).__init__ is BaseModelForm.__init__ and not exposure.overrides(
            *exposure.options.FORM_HOOKS
        )
        return is_stock and not exposure.model_admin.list_editable

    @cached_property
    def uses(self) -> Mapping[str, Use]:
        """How the caller writes each field in the model overview, by the field's name."""
        add, change = self.forms
        if add is None or change is None:
            return {name: Use(form.requires(name)) for form in (add, change) if form for name in form.names}

        uses = {}
        for name in change.names:
            uses[name] = Use(False, "" if name in add.names else "update only")
        for name in add.names:
            uses[name] = Use(add.requires(name), "" if name in change.names else "create only")
        return uses

    # Inlines

    def _inline_names(self) -> Iterator[str]:
        page = PageInlines.of_any_row(self.model)
        for inline in page.all:
            fields = page.form_fields(inline)
            key = inline.admin.opts.pk.name
            names = [f"{key}*"] if key in fields else []
            for column in Column.all(self.exposure.options.of_inline(inline.admin), inline.fields):
                field = fields.get(column.name)
                words = [column.name + "*" * _is_required(field), *type_words(self.request, column)]
                names.append(" ".join([*words, "ro"] if field is None and words[-1] != "computed" else words))
            yield f"{inline.name}({', '.join(names)})"

    def inline_lines(self) -> Iterator[str]:
        """Yield an overview line for each inline: name, model, fields, and the caller's permissions on its rows."""
        page = PageInlines.of_any_row(self.model)
        for inline in page.all:
            admin = inline.admin
            label = self.exposure.label
            obj = None if self.model.may("add") else page.obj
            may = {
                "view": admin.has_view_or_change_permission,
                "add": admin.has_add_permission,
                "change": admin.has_change_permission,
                "delete": admin.has_delete_permission,
            }
            verbs = [
                verb
                for verb, verdict in may.items()
                if (verb == "view" or may_write(self.request))
                and call_hook(label, f"{inline.name} may {verb}", verdict, self.request, obj, default=False)
            ]
            rows = self.exposure.options.of_inline(admin)
            fields = page.form_fields(inline)
            words = [f"{admin.opts.pk.name} required in a new row"] if admin.opts.pk.name in fields else []
            for column in Column.all(rows, inline.fields):
                field = fields.get(column.name)
                use = "read-only"
                if field is not None:
                    use = "required" if _is_required(field) else "optional"
                words.append(" ".join([column.name, *(type_words(self.request, column) or ["text"]), use]))
            yield f"{inline.name}: rows of {rows.label}, may {' '.join(verbs) or 'nothing'}: {', '.join(words)}"


def _is_required(field: Any) -> bool:
    return field is not None and field.required and field.initial in (None, "")
