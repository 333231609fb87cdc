"""Saving a row with values that a caller gave: through the form of the admin's page, or the exposure's serializer."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from copy import copy
from functools import cached_property, partial
from types import MappingProxyType
from typing import Any, Final

from django.core.exceptions import ValidationError
from django.db import connections, router
from django.db.models import Model
from django.forms import Field, ModelChoiceField, ModelMultipleChoiceField, all_valid
from django.forms import FileField as FormFileField
from django.utils.choices import flatten_choices
from rest_framework.fields import FileField
from rest_framework.relations import ManyRelatedField, PrimaryKeyRelatedField

from ..context.confirmation import quoted
from ..context.request import MCPRequest
from ..exceptions import ToolError
from ..orm.access import ModelAccess
from ..orm.columns import Column
from ..orm.labels import label_of
from ..orm.nearest_names import Misnamed
from ..orm.row_finder import RowFinder
from ..orm.row_reading import show_rows
from ..orm.suggestions import with_value
from ..orm.undecodable_values import UNDECODABLE, VALUE_ERRORS
from ..schema.secrets import holds_hidden
from .form_filling import FilledForm, bare_key, keep, linked_rows, prepopulated, writable_names
from .history import Journal
from .inline_formsets import InlinePost, management_entries
from .inline_rows import PageInlines
from .page_requests import as_page, has_failed, recording, said
from .shown_pages import ShownPage
from .standing_inlines import can_all_stay
from .uploaded_files import read_file_value
from .uploads import OPENED, uploads_taken
from .validation_errors import HIDDEN_ERROR, duplicate_note, error_lines, row_error

NOT_SAVED: Final = "Nothing was saved:"
NO_LABELS: Final[Mapping[str, str]] = MappingProxyType({})
# Number of nested levels from which Python may fail to write JSON.
DEEP: Final = 200
# Maximum number of rows that a question names.
MAX_LABELS: Final = 20


class RowPage(ShownPage):
    """The page of a saved or new row in the admin, as one caller can save it."""

    def saving(self, values: Mapping[str, Any], tool: str) -> "Saving":
        """Return what saves these values in the row: through the exposure's serializer if it has one, else the page."""
        kind = PageSaving if self.exposure.serializer_class is None else SerializerSaving
        return kind(self.model, self.obj, values, tool)

    @cached_property
    def inlines_can_stay(self) -> bool:
        """Whether an update of the row that names no inline can leave out all inlines of the page."""
        return self.obj is not None and can_all_stay(self.model, self.obj)

    def nameable(self) -> set[str]:
        """Return the fields that a caller can name when saving a row: readable ones, form-only ones, and many-to-many
        fields to models that are not exposed."""
        request = self.request
        exposure = self.exposure
        obj = self.obj
        shown = self.model.fields_of(obj)
        opts = exposure.opts
        names = [*shown]
        names += exposure.options.form_only_fields(request, obj)
        if unlisted := [
            field.name for field in opts.many_to_many if field.related_model not in exposure.site.exposures
        ]:
            declared = exposure.get_fields(request, obj)
            names += [name for name in unlisted if name in declared]
        return set(names)

    def listed_fields(self, form: Any) -> Mapping[str, Field]:
        """Return the fields whose saving needs the admin's list (``list_editable``), if the caller sees them. ``form``
        is the form of the row's own page. An exposure that declares ``fields`` or ``form`` has no such fields."""
        exposure = self.exposure
        admin = self.exposure.model_admin
        if not admin.list_editable or exposure.fields is not None or exposure.form is not None:
            return {}
        on_list = admin.get_list_display(self.request)
        shown = self.model.fields_of(self.obj)
        names = [name for name in admin.list_editable if name in on_list and name in shown and name not in form.fields]
        if not names:
            return {}
        fields: Mapping[str, Field] = admin.get_changelist_formset(self.request).form.base_fields
        return {name: fields[name] for name in names if name in fields and not fields[name].disabled}


class Saving(RowPage):
    """Saves one row with a caller's values. ``messages`` collects what the project's hooks tell the user."""

    def __init__(self, model: ModelAccess, obj: Model | None, values: Mapping[str, Any], tool: str) -> None:
        super().__init__(model, obj)
        self.values = values
        self.tool = tool
        self.messages: list[dict[str, str]] = []

    def check(self) -> Mapping[str, str]:
        """Check the values without saving them; return the labels of rows and choices that they name, by field."""
        return NO_LABELS

    def save(self) -> tuple[Model, list[str]]:
        """Save the values of the row and write the history; return the saved row and the changed fields. Call it in a
        transaction: validation can fail after the row was written."""
        with recording(self.request, self.exposure.model_admin):
            saved, changed = self._save()
        if OPENED in vars(self.request):
            uploads_taken(self.request, router.db_for_write(self.exposure.model))
        return saved, changed

    def _save(self) -> tuple[Model, list[str]]:
        raise NotImplementedError

    def _log(self, saved: Model, message: Any) -> None:
        journal = Journal(self.request, self.tool)
        log = journal.added if self.obj is None else journal.changed
        log(self.exposure, saved, message)

    def _nameable(self) -> set[str]:
        """Return the fields that the values to save can name; a saved row does not change its primary key."""
        names = self.nameable()
        opts = self.exposure.opts
        if self.obj is None:
            return names
        return names - {opts.pk.name, *(part.name for part in opts.pk_fields)}

    def _named(self, writable: Collection[str]) -> dict[str, Any]:
        """Return the values to save in the row by field name; a foreign key can be named by its column. The error is
        the same for hidden, read-only and unknown fields."""
        columns = {field.attname: field.name for field in self.exposure.opts.concrete_fields if field.name in writable}
        named = {name if name in writable else columns.get(name, name): value for name, value in self.values.items()}
        unknown = [name for name in named if name not in writable]
        if unknown:
            names = ", ".join(repr(name[:60]) for name in unknown[:5])
            message = f"You cannot write {names} of {self.exposure.label}."
            near: list[str] | None = None if len(unknown) == 1 else []
            repair = partial(with_value, unknown[0])
            raise Misnamed(message, unknown[0], writable, repair, near, " Nothing was saved.")
        return named


class PageSaving(Saving):
    """Saves a row through the admin's page: fills in its form and posts it as a browser would."""

    def check(self) -> Mapping[str, str]:
        labels: dict[str, str] = {}
        self._fill_in()
        lines = [f"{name}: {' '.join(error.messages)}" for name, error in self.form.wrong.items()]
        lines += self.listed.errors() if self.listed is not None else []
        if not lines:
            with as_page(self.request, "POST", self.entries):
                # Validation assigns the values to its instance, so give it a copy.
                form = self.form.bind(copy(self.obj), self.request.POST, self.request.FILES)
                named = tuple(f"{name}: " for name in self.form.values)
                lines = [line for line in error_lines(form, self.writable) if line.startswith(named)]
                if not lines:
                    labels = self._labels(form)
        if lines:
            raise ToolError("\n".join([NOT_SAVED, *lines]))
        return labels

    def _labels(self, form: Any) -> dict[str, str]:
        """Return the labels of the rows and choices with which a valid form is filled, where they say more than the
        values; of rows, only those that the caller can see: the form also keeps hidden ones."""
        found: dict[str, str] = {}
        for name, value in self.form.values.items():
            cleaned = form.cleaned_data.get(name)
            field = form.fields[name]
            exposure = None
            if isinstance(field, ModelChoiceField):
                offered: Any = field.queryset
                exposure = self.request.mcp.site.exposures.get(offered.model)
            if exposure is not None:
                linked = [cleaned] if isinstance(cleaned, Model) else list(cleaned or ())
                access = self.model.access[exposure]
                seen = RowFinder(access).by_key([row.pk for row in linked]).values()
                labels = [label_of(exposure, row) for row in seen if access.may_row("view", row)]
            elif isinstance(field, ModelChoiceField):
                labels = []
            else:
                # Only the model's own choices: those of a form can be made of rows that the caller cannot see.
                of_model: Any = getattr(self.exposure.options.model_fields.get(name), "choices", None)
                choices: Iterable[tuple[Any, Any]] = flatten_choices(of_model)
                labels = [str(label) for stored, label in choices if str(stored) == str(cleaned)]
            text = ", ".join(label for label in labels[:MAX_LABELS] if label)
            if text and text.lower() != str(value).lower():
                found[name] = text
        return found

    def _fill_in(self) -> None:
        """Prepare saving as on the page that a browser would show: its form, inlines, and ``list_editable`` fields."""
        request = self.request
        exposure = self.exposure
        obj = self.obj
        change = self.obj is not None
        with as_page(request, "GET"):
            # First, open the page: its form, and the fields that the caller can write.
            initial = None if change else exposure.get_changeform_initial_data(request)
            draft = exposure.get_form(request, obj, change=change)(instance=obj, initial=initial)
            self.inlines = PageInlines(self.model, obj)
            self.writable = writable_names(draft, self._nameable())
            listed = self.listed_fields(draft) if change else {}

            # Then its inlines, unless the values leave all of them as they are.
            self.posts = []
            if not self._leaves_inlines({*self.writable, *listed}):
                pairs = self.inlines.formsets(draft.instance)
                known = {inline.admin: inline for inline in self.inlines.all}
                self.posts = [InlinePost(self.model, obj, admin, formset, known.get(admin)) for admin, formset in pairs]
            writable_posts = {post.name for post in self.posts if post.is_writable()}

            # Find what each value is for: the form, an inline, or the admin's list.
            named = self._named([*self.writable, *listed, *writable_posts])
            if change:
                named = {name: value for name, value in named.items() if not self._is_as_shown(draft, name, value)}
            for_list = {name: named.pop(name) for name in listed if name in named}
            self.is_left_out = bool(for_list) and not named

            # Fill in the inlines, the slugs and the form.
            for post in self.posts:
                post.fill(named.pop(post.name, None) if post.name in writable_posts else None)
            if not change:
                named |= prepopulated(exposure.get_prepopulated_fields(request), draft, named, self.writable)
            self.form = FilledForm(request, draft, named)
        self.entries = self.form.data + [entry for post in self.posts for entry in post.entries]
        self.listed = ListedRow(self.model, obj, for_list) if obj is not None and for_list else None

    def _leaves_inlines(self, writable: Collection[str]) -> bool:
        """Return whether saving the row can do without its inlines: the values name fields of the model alone."""
        fields = (*self.exposure.opts.concrete_fields, *self.exposure.opts.many_to_many)
        names = {name for field in fields if field.name in writable for name in (field.name, field.attname)}
        return self.values.keys() <= names and self.inlines_can_stay

    def _is_as_shown(self, draft: Any, name: str, value: Any) -> bool:
        """Return whether saving can skip a field of the row: the value to save equals the one that results show.

        The form may not accept what results show: a file is shown by its URI, tags by key and label, and a foreign key
        can point to a row that the caller cannot see.
        """
        if (item := draft.fields.get(name)) is None:
            return False
        is_key = isinstance(item, ModelChoiceField) and not isinstance(item, ModelMultipleChoiceField)
        column = Column.of(self.exposure, name)
        is_told = is_key or isinstance(value, (list, dict)) or isinstance(item, FormFileField)
        if column is None or not (is_told or column.is_replaced) or holds_hidden(value):
            return False
        assert self.obj is not None
        shown = show_rows(self.model, [self.obj], (column,)).rows[0][0]
        if is_key:
            # Only for hidden rows: the form has to validate visible ones, which it may no longer offer.
            return bool(shown) and shown[1] is None and str(bare_key(value)) == str(shown[0])
        return bool(shown == value)

    def _save(self) -> tuple[Model, list[str]]:
        self._fill_in()
        saved = self.obj
        changed = list[str]()
        if saved is None or not self.is_left_out:
            with as_page(self.request, "POST", self.entries, self.messages):
                saved, changed = self._post()
        if self.listed is not None:
            with as_page(self.request, "POST", self.listed.entries, self.messages):
                saved, form = self.listed.save()
                if form.changed_data:
                    self._log(saved, self.exposure.construct_change_message(self.request, form, (), add=False))
                    changed += [name for name in form.changed_data if name in self.listed.values]
        return saved, changed

    def _post(self) -> tuple[Model, list[str]]:
        """Save the row as its posted page does, in the order of ``ModelAdmin.changeform_view``."""
        request = self.request
        exposure = self.exposure
        change = self.obj is not None
        form = self.form.bind(self.obj, request.POST, request.FILES)
        posted: list[tuple[InlinePost, Any]] = []
        if any(not post.is_left_out for post in self.posts):
            pairs = zip(self.posts, self.inlines.formsets(form.instance), strict=True)
            posted = [(post, formset) for post, (_, formset) in pairs if not post.is_left_out]
        formsets = [formset for _, formset in posted]
        form.full_clean()
        self.form.refuse(form)
        saved = exposure.save_form(request, form, change) if not form.errors else form.instance
        for post, formset in posted:
            post.bind(formset)
        valid = all_valid(formsets) and not form.errors
        lines = error_lines(form, self.writable, partial(duplicate_note, request)) if form.errors else []
        lines += [line for post, _ in posted for line in post.errors()]
        if lines or not valid:
            raise ToolError("\n".join([NOT_SAVED, *dict.fromkeys(lines or [HIDDEN_ERROR])]))
        if change:
            _keep_stored(saved, self.form.values)
        exposure.save_model(request, saved, form, change)
        if saved.pk is None:
            # The project has stored something else, or nothing: there is no row for inlines or the history.
            refuse_unsaved(request)
            return saved, []
        exposure.save_related(request, form, formsets, change)
        written = [post.name for post, _ in posted if post.is_changed()]
        if has_failed(request) and not is_stored(saved, form, change=change, written=written):
            refuse_unsaved(request)
        if not change or written or form.has_changed():
            self._log(saved, exposure.construct_change_message(request, form, formsets, add=not change))
        return saved, [name for name in form.changed_data if name in self.writable] + list(filter(None, written))


def is_stored(saved: Model, form: Any, *, change: bool, written: Sequence[str] = ()) -> bool:
    """Return whether the database holds what a form was to save: a new row, a new value, or ``written`` inlines.

    Asked where a hook of the project reports an error and returns. The admin would say that the row was saved.
    """
    stored = type(saved)._base_manager.using(saved._state.db).filter(pk=saved.pk).first()
    if stored is None or not change:
        return stored is not None
    fields = {field.name: field for field in (*saved._meta.concrete_fields, *saved._meta.many_to_many)}
    changed = [fields[name] for name in form.changed_data if name in fields]
    if not changed:
        return bool(written)
    return any(field.value_from_object(stored) != form.initial.get(field.name) for field in changed)


def refuse_unsaved(request: MCPRequest) -> None:
    """Raise ``ToolError`` with the errors that the project's hooks report, if they report one."""
    if has_failed(request):
        raise ToolError(f"{NOT_SAVED} {quoted(' '.join(message['text'] for message in said(request)))}")


class ListedRow:
    """Saves fields of a row that only the admin's list edits (``list_editable``)."""

    def __init__(self, model: ModelAccess, obj: Model, values: Mapping[str, Any]) -> None:
        self.request = model.request
        self.exposure = model.exposure
        self.values = values
        self.rows = self.exposure.get_queryset(self.request).filter(pk=obj.pk)
        with as_page(self.request, "GET"):
            draft = self._formset()
            self.form = FilledForm(self.request, draft.forms[0], values)
        self.entries = [*management_entries(draft, 1, 1), *self.form.data, ("_save", "Save")]

    def _formset(self, *posted: Any) -> Any:
        return self.exposure.model_admin.get_changelist_formset(self.request)(*posted, queryset=self.rows)

    def errors(self) -> list[str]:
        """Check the row's ``list_editable`` values without saving them; return the errors, a line for each."""
        with as_page(self.request, "POST", self.entries):
            return self._posted()[1]

    def _posted(self) -> tuple[Any, list[str]]:
        formset = self._formset(self.request.POST, self.request.FILES)
        [form] = formset.forms
        self.form.impose(form)
        keep(form, form.instance, {*self.values, form.instance._meta.pk.name})
        valid = formset.is_valid()
        self.form.refuse(form)
        lines = error_lines(form, self.values, partial(duplicate_note, self.request))
        lines += [row_error(" ".join(map(str, error.messages))) for error in formset.non_form_errors().as_data()]
        return form, lines if lines or valid else [HIDDEN_ERROR]

    def save(self) -> tuple[Model, Any]:
        """Save the changed ``list_editable`` fields of the row; return the saved row and its form."""
        form, lines = self._posted()
        if lines:
            raise ToolError("\n".join([NOT_SAVED, *dict.fromkeys(lines)]))
        if not form.has_changed():
            return form.instance, form
        saved = self.exposure.save_form(self.request, form, True)
        self.exposure.save_model(self.request, saved, form, True)
        self.exposure.save_related(self.request, form, [], True)
        if has_failed(self.request) and not is_stored(saved, form, change=True):
            refuse_unsaved(self.request)
        return saved, form


class SerializerSaving(Saving):
    """Saving through the exposure's serializer."""

    def _save(self) -> tuple[Model, list[str]]:
        request = self.request
        exposure = self.exposure
        obj = self.obj
        context = {"request": self.request}
        assert exposure.serializer_class is not None
        visible = self._nameable() - set(exposure.get_readonly_fields(request, obj))
        shown: Any = exposure.serializer_class(obj, context=context)
        writable = [name for name, field in shown.fields.items() if name in visible and not field.read_only]
        named = self._named(writable)
        wrong = []
        for name, value in named.items():
            try:
                named[name] = self._read(shown.fields[name], value)
            except ValidationError as error:
                wrong.append(f"{name}: {' '.join(error.messages)}")
        before = dict(shown.data) if obj is not None else {}
        serializer: Any = exposure.serializer_class(obj, data=named, partial=obj is not None, context=context)
        if wrong or not serializer.is_valid():
            raise ToolError("\n".join([NOT_SAVED, *(wrong or _serializer_lines(serializer.errors))]))
        saved: Model = serializer.save()
        try:
            # Serializers do not call full_clean(). If it fails, the caller's transaction undoes the write.
            saved.full_clean()
        except ValidationError as error:
            lines = [f"{name}: {' '.join(messages)}" for name, messages in error.message_dict.items()]
            raise ToolError("\n".join([NOT_SAVED, *lines])) from None
        after = exposure.serializer_class(saved, context=context).data
        changed = [name for name in writable if name in after and (name not in before or before[name] != after[name])]
        if obj is None:
            self._log(saved, [{"added": {}}])
        elif changed:
            self._log(saved, [{"changed": {"fields": changed}}])
        return saved, changed

    def _read(self, field: Any, value: Any) -> Any:
        """Return a caller's value as saving takes it: a file, or the primary keys of the named rows."""
        if value is None:
            return None
        if isinstance(field, FileField):
            return read_file_value(self.request, value)
        related: Any = field.child_relation if isinstance(field, ManyRelatedField) else field
        if not isinstance(related, PrimaryKeyRelatedField):
            return value
        rows: Any = related.get_queryset()
        exposure = self.request.mcp.site.exposures.get(rows.model)
        if exposure is None:
            return value
        many = isinstance(value, list)
        keys = [row.pk for row in linked_rows(self.model.access[exposure], value if many else [value])]
        return keys if many else keys[0]


def _serializer_lines(errors: Any, path: str = "") -> Iterator[str]:
    if isinstance(errors, Mapping):
        for name, inner in errors.items():
            yield from _serializer_lines(inner, f"{path}.{name}".lstrip("."))
    elif isinstance(errors, (list, tuple)):
        for inner in errors:
            yield from _serializer_lines(inner, path)
    else:
        yield row_error(str(errors)) if path == "non_field_errors" else f"{path}: {errors}"


# Values that could not be read


def _keep_stored(row: Model, written: Collection[str]) -> None:
    """Keep such values of a row that is saved: their columns are deferred, so Django does not write them.

    These are values that could not be read or that the column cannot hold. ``written`` are the fields with a new value.
    """
    connection = connections[row._state.db or router.db_for_write(type(row))]
    for field in row._meta.concrete_fields:
        loaded = field.attname in row.__dict__ and not field.primary_key and not field.generated
        if loaded and field.name not in written and not _is_writable(field, row.__dict__[field.attname], connection):
            del row.__dict__[field.attname]


def _is_writable(field: Any, value: Any, connection: Any) -> bool:
    if value is UNDECODABLE or _is_deep(value):
        return False
    try:
        field.get_db_prep_save(value, connection)
    except VALUE_ERRORS:
        return False
    return True


def _is_deep(value: Any) -> bool:
    """Return whether a JSON value is nested deeper than Python can write it."""
    inner = [value] if isinstance(value, (dict, list)) else []
    levels = DEEP
    while inner and levels:
        parts: list[Any] = []
        for item in inner:
            parts += item.values() if isinstance(item, dict) else item
        inner = [part for part in parts if isinstance(part, (dict, list))]
        levels = levels - 1
    return bool(inner)
