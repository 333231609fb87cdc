"""Who may decide a request for approval, and whether they see what it is about."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field
from typing import Any, Final

import orjson
from django.apps import apps
from django.conf import settings as django_settings
from django.contrib.admin.utils import flatten_fieldsets
from django.contrib.auth import get_permission_codename, get_user_model
from django.core.exceptions import FieldDoesNotExist, ValidationError
from django.db.models import Exists, Model, OuterRef, Q
from django.http import HttpRequest
from django.utils.module_loading import import_string

from ..context.request import local_request
from ..differences.difference_tables import ShownCall
from ..differences.kept_changes import KeptChange
from ..emulation.inline_rows import PageInlines
from ..models import ApprovalRequest, Change, ServiceAccount
from ..orm.access import ModelAccess, access_of
from ..orm.column_values import plain_key
from ..orm.row_finder import RowFinder
from ..runtime.failing_hooks import call_hook
from ..scopes import Scope, expand
from ..signin import SignIn

# Methods that decide on permissions: where a project has its own, Django's ``with_perm`` does not know who holds one.
DECIDING: Final = ("has_perm", "get_all_permissions", "_get_permissions", "_get_user_permissions")
LISTING: Final = ("with_perm",)
DJANGOS: Final = "django.contrib.auth."


class Deciders:
    """Who may decide: active staff with a permission, which superusers hold in any case, or in a group.

    Nobody decides what they have asked for, and no user of a service account decides. ``group`` is the group's key, or
    its name.
    """

    def __init__(self, permission: str, group: Any = None) -> None:
        self.permission = permission
        self.group = group

    @classmethod
    def of(cls, rule: Any) -> "Deciders":
        """Return those who decide by a rule, or by a request that was made of one."""
        if isinstance(rule, ApprovalRequest):
            return cls(rule.permission, rule.group_id)
        return cls(rule.permission, rule.group if rule.group_key is None else rule.group_key)

    def may_decide(self, user: Any, change: Change) -> bool:
        """Return whether a user may decide this change."""
        return KeptChange.owner_of(user) != change.user and self.include(user)

    def include(self, user: Any) -> bool:
        """Return whether a user is among them, whoever asks."""
        if not isinstance(user, get_user_model()) or not (user.is_active and getattr(user, "is_staff", False)):
            return False
        is_named = user.has_perm(self.permission) if self.permission else self._has_member(user)
        return bool(is_named) and not ServiceAccount.objects.filter(user=user).exists()

    def somebody_besides(self, requester: Any) -> bool:
        """Return whether anybody but the requester can decide; True where only code of the project knows."""
        found = list(self.candidates())
        if None in found:
            return True
        own = requester.pk if isinstance(requester, get_user_model()) else None
        return any(users.exclude(pk=own).exists() for users in found)

    def candidates(self) -> Iterator[Any]:
        """Yield querysets of users who may decide; None for users whom only code of the project knows."""
        model: Any = get_user_model()
        rows = model._default_manager
        if not self.permission:
            if self.group and hasattr(model, "groups"):
                yield _fit(rows.filter(self._named("groups__")))
            return
        if not _is_djangos(model, DECIDING) or not hasattr(rows, "with_perm"):
            yield None
            return
        for name in django_settings.AUTHENTICATION_BACKENDS:
            backend = import_string(name)
            if hasattr(backend, "with_perm") and (_is_djangos(backend, DECIDING) or not _is_djangos(backend, LISTING)):
                yield _fit(rows.with_perm(self.permission, backend=name))
            elif hasattr(backend, "has_perm"):
                yield None

    def _has_member(self, user: Any) -> bool:
        return bool(self.group) and hasattr(user, "groups") and user.groups.filter(self._named()).exists()

    def _named(self, path: str = "") -> Q:
        column = "name" if isinstance(self.group, str) else "pk"
        return Q(**{f"{path}{column}": self.group})


def _is_djangos(owner: Any, names: Iterable[str]) -> bool:
    """Return whether Django's own code has those of these methods that there are."""
    methods = [getattr(owner, name) for name in names if hasattr(owner, name)]
    return all(method.__module__.startswith(DJANGOS) for method in methods)


def _fit(users: Any) -> Any:
    """Return those of these users who are active staff, and no service accounts."""
    names = {field.name for field in users.model._meta.concrete_fields}
    flags = {name: True for name in ("is_active", "is_staff") if name in names}
    accounts = ServiceAccount.objects.filter(user=OuterRef("pk"))
    return users.filter(~Exists(accounts), **flags)


@dataclass(slots=True)
class ShownParts:
    """What a kept difference shows, by label of the model: keys of rows as JSON, names of columns, labels of related
    rows, and the inlines of rows."""

    rows: dict[str, list[Any]] = field(default_factory=dict)
    columns: dict[str, set[str]] = field(default_factory=dict)
    related: list[tuple[str, str, Any]] = field(default_factory=list)
    inlines: list[tuple[str, Any, Mapping[str, Any]]] = field(default_factory=list)

    @classmethod
    def of(cls, difference: Mapping[str, Any]) -> "ShownParts":
        """Return the parts of a difference, which is ``Difference.to_wire()`` as it was kept."""
        parts = cls()
        for label, counts in difference.get("counts", {}).items():
            if not isinstance(counts, int):
                parts.rows.setdefault(label, [])
        for label, deleted in difference.get("deleted", {}).items():
            parts.rows[label] += [key for key, _label in deleted]
        for kind in ("changed", "added"):
            for label, rows in difference.get(kind, {}).items():
                for row in rows:
                    parts._add(kind, label, row)
        return parts

    def _add(self, kind: str, label: str, row: Mapping[str, Any]) -> None:
        # A row that the call adds is not there yet.
        key = row["pk"] if kind == "changed" else None
        if key is not None:
            self.rows[label].append(key)
        self.columns.setdefault(label, set()).update(row["columns"])
        for name, value in row["columns"].items():
            for each in value if kind == "changed" else [value]:
                self.related.append((label, name, each))
        if "inlines" in row:
            self.inlines.append((label, key, row["inlines"]))


class DeciderSight:
    """What somebody who is signed in to the admin sees of the rows and columns that calls touch.

    The exposures of the ``site`` say it, and for columns that these hide from everybody, the row's page in the
    ``admin_site``. Of models that the site does not expose, Django's view permission does. What cannot be found, or
    fails, is not seen. ``request`` is the page's.
    """

    def __init__(self, request: HttpRequest, site: Any, admin_site: Any = None) -> None:
        self.site = site
        self.admin_site = admin_site
        self.page_request = request
        made = local_request(site)
        made.mcp.facts = SignIn(request).facts()
        made.mcp.record.kind = "person"
        # A copy: sign-in facts are restored on it.
        SignIn(made).act_as(copy(request.user), expand([Scope.WRITE]))
        self.request = made
        self.access = access_of(made)
        # The rows that were looked for, by label and key; None for those that are not seen.
        self._rows: dict[tuple[str, str], Model | None] = {}

    def look_up(self, approvals: Iterable[ApprovalRequest]) -> None:
        """Look for the rows of several requests at once, by one query for each model."""
        keys: dict[str, list[Any]] = {}
        for approval in approvals:
            for label, texts in approval.rows.items():
                keys.setdefault(label, []).extend(texts)
        for label, texts in keys.items():
            self._see_rows_safely(label, texts)

    def sees_rows(self, approval: ApprovalRequest) -> bool:
        """Return whether they see all rows that the call touches."""
        return all(self._see_rows_safely(label, texts) for label, texts in approval.rows.items())

    def sees_models(self, labels: Iterable[str]) -> bool:
        """Return whether they may view all of these models."""
        return all(self._see_rows_safely(label, []) for label in labels)

    def sees(self, kept: KeptChange, approval: ApprovalRequest) -> bool:
        """Return whether they see all rows that the call touches, and every column that the condition reads or that
        the kept difference shows."""
        return call_hook("approvals", "sees", self._see_all, kept, approval, default=False)

    def rows_of(self, approval: ApprovalRequest) -> list[tuple[type[Model], str, Model]]:
        """Return those rows of a request that were found: model, key and row."""
        found = []
        for label, texts in approval.rows.items():
            for text, row in zip(texts, self._seen(label, texts), strict=True):
                if row is not None:
                    found.append((type(row), text, row))
        return found

    def _see_all(self, kept: KeptChange, approval: ApprovalRequest) -> bool:
        shown = kept.shown
        if not isinstance(shown, Mapping):
            return False
        parts = ShownParts.of(shown.get("difference") or {})
        keys: dict[str, list[Any]] = {label: list(texts) for label, texts in approval.rows.items()}
        for label, shown_keys in parts.rows.items():
            keys.setdefault(label, []).extend(shown_keys)
        if not all(self._see_rows(label, texts) for label, texts in keys.items()):
            return False
        columns = {label: set(names) for label, names in approval.reads.items()}
        for label, names in parts.columns.items():
            columns.setdefault(label, set()).update(names)
        for label, names in columns.items():
            rows = [row for row in self._seen(label, keys.get(label, ())) if row is not None]
            if not all(self._shows(label, name, rows) for name in names):
                return False
        return all(self._see_related(*each) for each in parts.related) and all(
            self._see_inlines(*each) for each in parts.inlines
        )

    # Rows

    def _see_rows_safely(self, label: str, given: Iterable[Any]) -> bool:
        """Return the same as ``_see_rows``, False if the project's code fails."""
        return call_hook(label, "get_queryset", self._see_rows, label, given, default=False)

    def _see_rows(self, label: str, given: Iterable[Any]) -> bool:
        """Return whether they see the rows of a model with these keys, and remember the rows."""
        exposure = self.site.exposures_by_label.get(label)
        if exposure is None:
            return self._may_view(apps.get_model(label))
        model = self.access[exposure]
        if not model.is_there:
            return False
        new = {text: raw for raw in given if (label, text := self._text(label, raw)) not in self._rows}
        self._rows.update(dict.fromkeys((label, text) for text in new))
        keys = {text: _key(model, raw) for text, raw in new.items()}
        rows = RowFinder(model).by_key([key for key in keys.values() if key is not None]) if new else {}
        for text, key in keys.items():
            row = rows.get(key)
            if row is not None and model.may_row("view", row):
                self._rows[label, text] = row
        return None not in self._seen(label, given)

    def _seen(self, label: str, given: Iterable[Any]) -> list[Model | None]:
        """Return the rows with these keys that were looked for, None for each that is not seen."""
        return [self._rows.get((label, self._text(label, raw))) for raw in given]

    def _text(self, label: str, raw: Any) -> str:
        """Return a key as text, from its text or from its JSON value."""
        exposure = self.site.exposures_by_label.get(label)
        if exposure is not None and not exposure.opts.is_composite_pk:
            raw = plain_key(raw)
        return raw if isinstance(raw, str) else orjson.dumps(raw).decode()

    def _see_related(self, label: str, name: str, value: Any) -> bool:
        """Return whether they see the related rows whose labels the value of a column shows."""
        exposure = self.site.exposures_by_label[label]
        column = exposure.options.model_fields.get(name)
        if column is None or column.related_model is None or not isinstance(value, list):
            return True
        pairs = value if column.many_to_many else [value]
        # A row that the call adds has no key yet, and is shown by itself.
        keys = [key for key, text in pairs if text and key != ShownCall.SET_WHEN_WRITTEN]
        if not keys:
            return True
        related = column.related_model
        there = self.access.model_of(related)
        if there is None:
            return related._meta.label_lower not in self.site.exposures_by_label and self._may_view(related)
        if column.many_to_many or column.target_field.primary_key:
            return self._see_rows(related._meta.label_lower, keys)
        return there.sees_every_row

    def _see_inlines(self, label: str, key: Any, shown: Mapping[str, Any]) -> bool:
        """Return whether they see the rows of inlines that a difference shows, and their columns."""
        model = self.access[self.site.exposures_by_label[label]]
        row = None if key is None else self._rows[label, self._text(label, key)]
        inlines = PageInlines(model, row)
        found = {inline.name: inline for inline in inlines.all}
        if not found.keys() >= shown.keys():
            return False
        children: Mapping[str, Any] = {}
        if row is not None:
            children, _notes = inlines.show(inlines.shown_rows(list(shown)))
        for name, items in shown.items():
            seen = {str(child["pk"]) for child in children.get(name, ())}
            for item in items:
                columns = item.get("changed") or item.get("added") or ()
                if not set(columns) <= set(found[name].fields) or ("pk" in item and str(item["pk"]) not in seen):
                    return False
        return True

    # Columns

    def _shows(self, label: str, path: str, rows: Sequence[Model]) -> bool:
        """Return whether they see a column of these rows, or one at the end of a path over relations."""
        exposure = self.site.exposures_by_label.get(label)
        table = apps.get_model(label) if exposure is None else exposure.model
        name, _, rest = path.partition("__")
        column = _field_named(table, name)
        if exposure is None:
            is_shown = column is not None and self._may_view(table)
        else:
            is_shown = self._is_readable(self.access[exposure], name, column, rows)
        related = getattr(column, "related_model", None)
        if not (is_shown and rest and related):
            return is_shown
        return self._shows(related._meta.label_lower, rest, ())

    def _is_readable(self, model: ModelAccess, name: str, column: Any, rows: Sequence[Model]) -> bool:
        if not model.is_there:
            return False
        if model.link(name) is not None and name not in model.fields:
            return True
        known = model.field_named(name)
        pages = rows if model.exposure.options.has_own_pages else ()
        if known is not None and all(known in model.fields_of(row) for row in pages):
            return True
        return column is not None and self._is_in_admin(model.exposure.model, column.name, rows)

    def _is_in_admin(self, table: type[Model], name: str, rows: Sequence[Model]) -> bool:
        """Return whether the admin's pages of these rows show them a column."""
        model_admin: Any = self.admin_site._registry.get(table) if self.admin_site is not None else None
        request = self.page_request
        return model_admin is not None and all(
            model_admin.has_view_permission(request, row)
            and name in flatten_fieldsets(model_admin.get_fieldsets(request, row))
            for row in rows or (None,)
        )

    def _may_view(self, table: type[Model]) -> bool:
        opts = table._meta
        user: Any = self.request.user
        names = (f"{opts.app_label}.{get_permission_codename(deed, opts)}" for deed in ("view", "change"))
        return any(map(user.has_perm, names))


def _key(model: ModelAccess, raw: Any) -> Any:
    """Return a key from how it was kept, as text or as its JSON value; None if there can be no such row."""
    fields = model.exposure.opts.pk_fields
    try:
        if len(fields) == 1:
            return fields[0].to_python(plain_key(raw))
        parts = orjson.loads(raw) if isinstance(raw, str) else raw
        return tuple(field.to_python(part) for field, part in zip(fields, parts, strict=True))
    except (ValidationError, ValueError, TypeError):
        return None


def _field_named(table: type[Model], name: str) -> Any:
    """Return a field by its name, "pk" or the name of its column; None if there is none."""
    opts = table._meta
    if name == "pk":
        return opts.pk
    try:
        return opts.get_field(name)
    except FieldDoesNotExist:
        return next((item for item in opts.concrete_fields if item.attname == name), None)
