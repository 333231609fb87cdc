"""What came of an operation: the verdict, the fields that were refused, and every row there is afterwards."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Literal
from uuid import UUID

from django.apps import apps
from django.contrib.admin.models import LogEntry
from django.db import connection, transaction
from django.db.models import Model
from django.utils import timezone

Verdict = Literal["done", "refused", "invalid"]
Rows = dict[str, list[tuple[Any, ...]]]


def _touched(model: type[Model]) -> list[type[Model]]:
    """Return the models whose rows may differ when one of the model's does; nothing in the shop touches the places."""
    label = "depot" if model._meta.app_label == "depot" else "shop"
    return list(apps.get_app_config(label).get_models(include_auto_created=True))


@dataclass
class Outcome:
    """`errors` are the names of the fields that were not valid; `shown` is what a list or a page showed."""

    verdict: Verdict
    errors: frozenset[str] = frozenset()
    shown: Any = None
    rows: Rows = field(default_factory=dict)
    history: list[tuple[Any, ...]] = field(default_factory=list)


@contextmanager
def undone() -> Iterator[None]:
    """Undo what is done within."""
    with transaction.atomic():
        yield
        transaction.set_rollback(True)


# The rows of tables as the database has them.
Tables = dict[type[Model], list[tuple[Any, ...]]]
# What `rows` made of each table that an operation left as it was, and of which rows it made that.
_unchanged: dict[type[Model], tuple[list[tuple[Any, ...]], list[tuple[Any, ...]]]] = {}


def tables(model: type[Model]) -> Tables:
    """Return the rows of the model and of those that hang together with it."""
    return {model: _table(model) for model in dict.fromkeys([model, *_touched(model)])}


def _table(model: type[Model]) -> list[tuple[Any, ...]]:
    columns = ", ".join(connection.ops.quote_name(field.column) for field in [model._meta.pk, *_fields(model)])
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT {columns} FROM {connection.ops.quote_name(model._meta.db_table)}")
        return list(cursor.fetchall())


def _fields(model: type[Model]) -> list[Any]:
    return list(model._meta.concrete_fields)


def rows(before: Tables) -> Rows:
    """Return the rows of these models; the key of one that was not there `before` is no part of it.

    Most tables are as they were, which comparing what the database has tells much sooner than reading them does.
    """
    known = {model: frozenset(model._meta.pk.to_python(key) for key, *_ in table) for model, table in before.items()}
    found: Rows = {}
    for model, table in before.items():
        now = _table(model)
        if now != table:
            found[model._meta.label] = _read(model, known)
            continue
        if model not in _unchanged or _unchanged[model][0] != now:
            _unchanged[model] = (now, _read(model, known))
        found[model._meta.label] = _unchanged[model][1]
    return found


def _read(model: type[Model], known: dict[type[Model], frozenset[Any]]) -> list[tuple[Any, ...]]:
    uuids = {key for keys in known.values() for key in keys if isinstance(key, UUID)}
    read = list(model._base_manager.order_by("pk").values_list("pk", *[field.attname for field in _fields(model)]))
    # New rows last: a key that is drawn by chance has no place of its own.
    read.sort(key=lambda row: row[0] not in known[model])
    return [tuple(_rounded(_known(value, pk, known[model], uuids)) for value in (pk, *values)) for pk, *values in read]


def _known(value: Any, pk: Any, keys: frozenset[Any], uuids: set[UUID]) -> Any:
    is_new = (value == pk and pk not in keys) or (isinstance(value, UUID) and value not in uuids)
    return "new" if is_new else value


def _rounded(value: Any) -> Any:
    """Return a time without what no page shows of it; one that was set just now is the same for both sides."""
    if not isinstance(value, datetime):
        return value
    return "now" if abs(timezone.now() - value) < timedelta(hours=1) else value.replace(microsecond=0)


def history() -> list[tuple[Any, ...]]:
    """Return what the admin's history says, without the note that it came through the endpoint."""
    entries = LogEntry.objects.order_by("pk").values_list("user_id", "action_flag", "object_repr", "change_message")
    return [(user, flag, text, _unmarked(message)) for user, flag, text, message in entries]


def _unmarked(message: str) -> str:
    parts = json.loads(message) if message.startswith("[") else message
    kept = [part for part in parts if "via MCP" not in json.dumps(part)]
    return json.dumps(kept) if kept else ""
