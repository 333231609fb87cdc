"""Write the rows of inlines as the admin's page does: it posts all rows, and rows that are not named do not change.

``{"pk": 17, "quantity": 5}`` changes a row, ``{"pk": 17, "delete": true}`` deletes it, and a row without ``pk`` is
added. The formset of the inline validates and saves the rows; errors give the position of a row in the caller's list.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final

from django.contrib.admin.utils import NestedObjects
from django.core.exceptions import ValidationError
from django.db import connections, router
from django.db.models import Model, QuerySet, prefetch_related_objects
from django.forms import BaseForm, BaseFormSet, ModelChoiceField
from django.forms.formsets import (
    DELETION_FIELD_NAME,
    INITIAL_FORM_COUNT,
    MAX_NUM_FORM_COUNT,
    MIN_NUM_FORM_COUNT,
    TOTAL_FORM_COUNT,
)
from django.forms.utils import ErrorDict

from ..context.request import MCPRequest
from ..exceptions import ToolError
from ..exposures.model_exposure import is_djangos
from ..orm.access import ModelAccess
from ..orm.alternative_spellings import json_or_text
from ..orm.column_values import pk_text, plain_key
from ..orm.labels import is_key
from ..orm.undecodable_values import all_readable
from .deleting import blockers
from .form_filling import FilledForm, keep, parse_truth, prepopulated, writable_names
from .html_forms import Pair
from .inline_rows import Inline, narrowing_of
from .standing_inlines import can_stay
from .validation_errors import HIDDEN_ERROR, duplicate_note, error_lines

# Maximum number of rows of an inline on a page, and of rows that one call can name.
MAX_ON_PAGE: Final = 500
MAX_GIVEN: Final = 200
NOT_SAVED: Final = "Nothing was saved."
EMPTY: Final = "it is the same as an empty row, so there is nothing to add; give its values"


class Row:
    """A row of an inline formset: the form for it on the page, and the values given for it."""

    entered: FilledForm

    def __init__(self, path: str, form: Any, *, exists: bool) -> None:
        self.path = path
        self.form = form
        self.exists = exists
        self.values: dict[str, Any] = {}
        self.writable: Collection[str] = ()
        self.given = self.delete = False


class InlinePost:
    """Fills in and posts one inline formset: call :meth:`fill`, then :meth:`bind`, then :meth:`errors`.

    ``draft`` is the formset as the page shows it. ``inline`` is None if the caller cannot see the inline: then it posts
    what it shows. An inline is not posted, and its rows do not change, if it has more rows than a page can hold, or if
    no row is named and only Django's code would see the others.
    """

    formset: Any

    def __init__(self, model: ModelAccess, obj: Model | None, admin: Any, draft: Any, inline: Inline | None) -> None:
        self.model = model
        self.request = model.request
        self.exposure = model.exposure
        self.obj = obj
        self.admin = admin
        self.draft = draft
        self.inline = inline
        self.name = inline.name if inline is not None else ""
        self.problems: list[str] = []
        self.entries: list[Pair] = []
        self.rows: list[Row] = []
        self.is_left_out = False
        # The rows that are posted, if the inline has too many for a page, and the number of the others.
        self.narrowed: QuerySet[Any] | None = None
        self.unposted = 0

    def permits(self, verb: str) -> bool:
        """Return whether the caller can add, change or delete rows of the inline formset."""
        verdict: bool = getattr(self.admin, f"has_{verb}_permission")(self.request, self.obj)
        return verdict

    def is_writable(self) -> bool:
        """Return whether the caller can write any rows of the inline formset."""
        return self.inline is not None and any(map(self.permits, ("change", "add", "delete")))

    # Filling in

    def fill(self, value: Any) -> None:
        """Fill in the inline formset with a list of rows, or with None to leave it as it is."""
        if value is None and self.obj is not None and can_stay(self.exposure, type(self.admin)):
            self.is_left_out = True
            return
        is_too_long = self._is_too_long()
        if is_too_long and value is None:
            self.is_left_out = True
            return
        value = [] if value is None else json_or_text(value)
        if not isinstance(value, list) or len(value) > MAX_GIVEN:
            raise ToolError(f"{self.name} must be a list of at most {MAX_GIVEN} rows. {NOT_SAVED}")
        items = [json_or_text(item) for item in value]
        if is_too_long:
            self._narrow(items)
        for form in self.draft.initial_forms:
            self.rows.append(Row(f"{self.name} (pk {pk_text(form.instance.pk)})", form, exists=True))
        known = self._named_rows(items)
        for index, item in enumerate(items):
            path = f"{self.name}[{index}]"
            if isinstance(item, dict):
                self._take(path, item, known)
            else:
                self.problems.append(f"{path}: give an object, such as {{'pk': 1, 'field': value}}")
        self._check_deletions()
        new = sum(not row.exists for row in self.rows)
        left = sum(not row.delete for row in self.rows) + self.unposted
        if new and left > self.draft.max_num and self.permits("add"):
            self.problems.append(f"{self.name}: at most {self.draft.max_num} rows are allowed, not {left}")
        while len(self.rows) < self.draft.min_num:
            self._new_row(f"{self.name}[{len(items)}]")
        self.entries = management_entries(self.draft, len(self.rows), sum(row.exists for row in self.rows))
        for row in self.rows:
            row.entered = FilledForm(self.request, row.form, row.values)
            self.entries += [*row.entered.data, *_deeper_entries(self.request, row.form)]
            if row.delete:
                self.entries.append((row.form.add_prefix(DELETION_FIELD_NAME), "on"))

    def _is_too_long(self) -> bool:
        """Return whether the inline formset has more rows than a page can hold."""
        if self.obj is None:
            return False
        rows = self.draft.get_queryset()
        with all_readable():
            if not isinstance(rows, QuerySet) or rows._result_cache is not None or rows.query.is_sliced:
                return bool(rows[MAX_ON_PAGE : MAX_ON_PAGE + 1])
            first = list(rows[: MAX_ON_PAGE + 1])
        if len(first) <= MAX_ON_PAGE:
            rows._result_cache = first
        return len(first) > MAX_ON_PAGE

    def _narrow(self, items: Sequence[Any]) -> None:
        """Let the inline formset hold only the rows that the caller names, if no code of the project has to see all."""
        rows = self.draft.get_queryset()
        if not isinstance(rows, QuerySet) or rows.query.is_sliced or not can_stay(self.exposure, type(self.admin)):
            own = self.exposure.site.exposures.get(self.admin.model)
            has_own = own is not None and self.model.access[own].may("change")
            way = f"Write them as rows of {own.label}" if own and has_own else "They cannot be written here"
            raise ToolError(f"{self.name} has more than {MAX_ON_PAGE} rows, too many for its page. {way}. {NOT_SAVED}")
        given = self._given_keys(items)
        self.narrowed = rows.filter(pk__in=[key for key in given if is_key(self.admin.opts.pk, key)])
        self.draft._queryset = self.narrowed.all()
        # The page has made forms of all rows already if the caller may not change them.
        vars(self.draft).pop("forms", None)
        with all_readable():
            self.unposted = rows.count() - len(self.draft._queryset)

    def _given_keys(self, items: Sequence[Any]) -> list[Any]:
        """Return the keys of the inline rows that the caller names, without the labels that are shown beside them."""
        return [self._bare(item["pk"]) for item in items if isinstance(item, dict) and item.get("pk") is not None]

    def _bare(self, key: Any) -> Any:
        if self.admin.opts.is_composite_pk:
            return key
        return plain_key(key)

    def _named_rows(self, items: Sequence[Any]) -> dict[str, Row]:
        """Return the rows of the inline formset that the caller can name by keys, and lock the named ones."""
        known = {pk_text(row.form.instance.pk): row for row in self.rows}
        named = set(map(str, self._given_keys(items)))
        pks = [row.form.instance.pk for key, row in known.items() if key in named]
        if (own := narrowing_of(self.exposure, self.admin)) is not None:
            seen = set(own.get_queryset(self.request).filter(pk__in=pks).values_list("pk", flat=True))
            known = {key: row for key, row in known.items() if row.form.instance.pk in seen}
        using = router.db_for_write(self.admin.model)
        if pks and connections[using].features.has_select_for_update:
            list(self.admin.model._base_manager.using(using).select_for_update().filter(pk__in=pks))
        return known

    def _take(self, path: str, item: Mapping[str, Any], known: Mapping[str, Row]) -> None:
        """Find or add the form in the inline formset for a caller's item, and check the values given for it."""
        values = dict(item)
        pk = self._bare(values.pop("pk", None))
        delete = values.pop(self._deletion_name(), False)
        if pk is None:
            row: Row | None = self._new_row(path)
        else:
            row = None if isinstance(pk, bool) else known.get(str(pk))
        if row is None:
            self.problems.append(f"{path}: {self.name} has no row with this pk; get_record shows its rows")
            return
        if row.given:
            self.problems.append(f"{path}: this row is given twice")
            return
        row.path = path
        row.given = True
        try:
            row.delete = parse_truth(delete)
        except ValidationError:
            self.problems.append(f"{path}.{self._deletion_name()}: give true or false")
        row.writable = self._writable(row)
        columns = {f.attname: f.name for f in self.admin.opts.concrete_fields if f.name in row.writable}
        given = {columns.get(name, name): value for name, value in values.items()}
        unknown = [name for name in given if name not in row.writable]
        for name in unknown[:5]:
            self.problems.append(f"{path}: you cannot write {name[:60]!r}; valid: {', '.join(row.writable)}")
        row.values = {name: value for name, value in given.items() if name not in unknown}
        if not row.exists:
            sources = self.admin.get_prepopulated_fields(self.request, self.obj)
            row.values |= prepopulated(sources, row.form, row.values, row.writable)
        if row.delete:
            allowed = row.exists and self.draft.can_delete and self.permits("delete")
            what = "delete"
        elif row.exists:
            allowed = not row.values or self.permits("change")
            what = "change"
        else:
            allowed = self.permits("add")
            what = "add"
        if not allowed:
            self.problems.append(f"{path}: you may not {what} {'this row' if row.exists else 'such a row'}")

    def _deletion_name(self) -> str:
        """Return the name by which callers delete a row of the inline formset, ``DELETE`` if a field is ``delete``."""
        fields = self.inline.fields if self.inline is not None else ()
        return DELETION_FIELD_NAME if "delete" in fields else "delete"

    def _new_row(self, path: str) -> Row:
        """Add a row to the inline formset, as the page's script would."""
        index = len(self.rows)
        if index < len(self.draft.forms):
            form = self.draft.forms[index]
        else:
            form = self.draft.empty_form
            form.prefix = self.draft.add_prefix(index)
            for formset in deeper_formsets(form):
                formset.prefix = formset.prefix.replace("__prefix__", str(index))
        self.rows.append(Row(path, form, exists=False))
        return self.rows[-1]

    def _writable(self, row: Row) -> Collection[str]:
        """Return the fields that the caller can fill in, for a form in the inline formset."""
        if self.inline is None:
            return ()
        names = writable_names(row.form, self.inline.fields)
        key = self.admin.opts.pk.name
        # A primary key that people enter can only be set when the row is added.
        chosen = key in row.form.fields and not row.form.fields[key].widget.is_hidden
        return [key, *names] if chosen and not row.exists else names

    def _check_deletions(self) -> None:
        for row in self.rows:
            if row.delete and row.exists:
                collector = NestedObjects(using=router.db_for_write(self.admin.model), origin=[row.form.instance])
                collector.collect([row.form.instance])
                if collector.protected:
                    who = blockers(self.request, collector.protected)
                    self.problems.append(
                        f"{row.path}: it cannot be deleted, because rows that refer to it are protected: {who}"
                    )

    # Validation

    def bind(self, formset: Any) -> None:
        """Prepare the posted inline formset for validation: every row keeps the fields that were not named."""
        self.formset = formset
        link = _link(formset)
        if self.narrowed is not None:
            formset._queryset = self.narrowed.all()
        elif self.obj is not None and not any(row.given for row in self.rows) and is_djangos(formset.get_queryset):
            # No row was named: reuse the rows that the page has read.
            formset._queryset = self.draft.get_queryset()
        with all_readable():
            rows = list(formset.get_queryset())
        if rows:
            fields = (*self.admin.opts.concrete_fields, *self.admin.opts.many_to_many)
            shown = [field for field in fields if field.name in formset.form.base_fields and field.name != link]
            # Read what validation needs with one query for each relation, not for each row.
            prefetch_related_objects(rows, *(field.name for field in shown if field.is_relation))
        for row, form in zip(self.rows, formset.forms, strict=False):
            row.entered.impose(form)
            _keep_deeper(form)
            # The admin does not validate rows that the caller can only view: it has set their errors already.
            if row.exists and form._errors is None and not form.instance._state.adding:
                _keep_row(form, {link, *row.values}, changed=bool(row.values))

    def errors(self) -> list[str]:
        """Return what is wrong with the posted inline formset, a line for each error."""
        lines = list(self.problems)
        for error in self.formset.non_form_errors().as_data():
            # _check_deletions() has reported these, naming only rows that the caller can see.
            if error.code != "deleting_protected":
                lines.append(f"{self.name}: {' '.join(map(str, error.messages))}")
        for row, form in zip(self.rows, self.formset.forms, strict=False):
            # For rows that the caller can only view, the admin sets errors to a plain dict.
            if not row.delete and isinstance(form.errors, ErrorDict):
                lines += self._row_errors(row, form)
        if self.inline is not None or not lines:
            return lines
        return [HIDDEN_ERROR]

    def _row_errors(self, row: Row, form: Any) -> Iterator[str]:
        row.entered.refuse(form)
        lines = error_lines(form, self._writable(row), partial(duplicate_note, self.request))
        refused = any(problem.startswith(f"{row.path}:") for problem in self.problems)
        if row.given and not (row.exists or refused or lines or form.has_changed()):
            yield f"{row.path}: {EMPTY}"
        for line in lines:
            name, _, text = line.partition(": ")
            yield f"{row.path}: {text}" if name == "(row)" else f"{row.path}.{line}"

    def is_changed(self) -> bool:
        """Return whether the saved inline formset wrote any rows."""
        return any(getattr(self.formset, f"{kind}_objects", ()) for kind in ("new", "changed", "deleted"))


def management_entries(draft: Any, total: int, initial: int) -> list[Pair]:
    """Return the entries of a formset's management form."""
    counts = {
        TOTAL_FORM_COUNT: total,
        INITIAL_FORM_COUNT: initial,
        MIN_NUM_FORM_COUNT: draft.min_num,
        MAX_NUM_FORM_COUNT: draft.max_num,
    }
    return [(f"{draft.prefix}-{name}", str(count)) for name, count in counts.items()]


def _link(formset: Any) -> str:
    """Return the foreign key from an inline formset's rows to their parent, "" for other formsets."""
    name: str = getattr(getattr(formset, "fk", None), "name", "")
    return name


def _keep_row(form: Any, mentioned: Collection[str], *, changed: bool) -> None:
    key = form.instance._meta.pk.name
    if isinstance(form.fields.get(key), ModelChoiceField):
        # The formset has already looked the row up among its own.
        form.fields[key].clean = lambda value: form.instance
    keep(form, form.instance, {*mentioned, key})
    if not changed:
        names = {field.name for field in form.instance._meta.get_fields()}
        form._get_validation_exclusions = lambda: set(names)


# Nested formsets, whose rows never change


def deeper_formsets(form: BaseForm) -> Sequence[Any]:
    """Return formsets nested in a form of an inline formset; some packages keep them as attributes."""
    found: list[Any] = []
    for value in vars(form).values():
        items = value if isinstance(value, (list, tuple)) else [value]
        found += [item for item in items if isinstance(item, BaseFormSet)]
    row = getattr(form, "instance", None)
    return [formset for formset in found if row is not None and getattr(formset, "instance", None) is row]


def _deeper_entries(request: MCPRequest, form: Any) -> list[Pair]:
    entries: list[Pair] = []
    for formset in deeper_formsets(form):
        number = len(formset.initial_forms)
        entries += management_entries(formset, number, number)
        for row in formset.initial_forms:
            entries += [*FilledForm(request, row, {}).data, *_deeper_entries(request, row)]
    return entries


def _keep_deeper(form: Any) -> None:
    for formset in deeper_formsets(form):
        for row in formset.initial_forms:
            _keep_row(row, {_link(formset)}, changed=False)
            _keep_deeper(row)
