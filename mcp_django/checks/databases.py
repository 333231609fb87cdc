"""System checks of databases, which connect to them: `check --database` runs them, and `migrate`."""

import sys
from collections.abc import Collection, Iterator
from typing import Any

from django.apps import apps
from django.core.checks import CheckMessage
from django.db import connections, models, router

from ..conf import faults
from ..context.databases import LocalTimes, engine_without_undo
from ..runtime.missing_migrations import MissingTables, database_of, missing_migrations
from .approvals import check_deciders
from .check_rules import problem
from .declarations import all_sites


def run_checks(*, databases: Collection[str] | None = None, **kwargs: Any) -> list[CheckMessage]:
    """Run the checks of these databases, by their aliases."""
    if faults():
        return []
    return [message for using in databases or () for check in CHECKS for message in check(using)]


def check_time_zones(using: str) -> Iterator[CheckMessage]:
    """Find a server that does not know the time zone of the project."""
    times = LocalTimes(connections[using])
    if not times.are_known:
        text = f"The server of the database {using!r} has no tables of time zones: days, months and hours in "
        yield problem("W166", f"{text}{times.zone} cannot be asked for.", f"{times.REMEDY}.")


def check_uuids(using: str) -> Iterator[CheckMessage]:
    """Find columns of UUIDs that are text, although the database has a type for them, as Django expects."""
    connection = connections[using]
    if not connection.features.has_native_uuid_field:
        return
    tables = connection.introspection.table_names(include_views=True)
    exposures = (exposure for site in all_sites() for exposure in site.exposures.values())
    for model in dict.fromkeys(exposure.model for exposure in exposures):
        fields = {field.column: field for field in model._meta.concrete_fields if isinstance(field, models.UUIDField)}
        expected = {name for name, field in fields.items() if field.db_type(connection) == "uuid"}
        if not expected or router.db_for_read(model) != using:
            continue
        with connection.cursor() as cursor:
            if model._meta.db_table not in tables:
                continue
            columns = connection.introspection.get_table_description(cursor, model._meta.db_table)
        for column in columns:
            # Only MySQL takes a text for the other type, and only its columns have this attribute.
            if column.name in expected and getattr(column, "data_type", "") == "char":
                name = fields[column.name].name
                text = f"{model._meta.label}.{name} is a char in the database, so no value finds its row."
                hint = (
                    "Change the column to uuid, or the field to a UUIDField whose db_type() is char(32): see "
                    '"Migrating existing UUIDField on MariaDB 10.7+" in the release notes of Django 5.0.'
                )
                yield problem("W167", text, hint, model)


def check_engines(using: str) -> Iterator[CheckMessage]:
    """Find tables of exposed models and of this app whose writes MySQL cannot undo."""
    connection = connections[using]
    tables = connection.introspection.table_names()
    exposed = [exposure.model for site in all_sites() for exposure in site.exposures.values()]
    for model in dict.fromkeys([*exposed, *apps.get_app_config("mcp_django").get_models()]):
        table = model._meta.db_table
        if table not in tables or router.db_for_write(model) != using:
            continue
        if engine := engine_without_undo(using, table):
            text = (
                f"The table of {model._meta.label} has the engine {engine}: a write to it cannot be undone if it fails"
            )
            yield problem("W168", f"{text} halfway.", f"ALTER TABLE {table} ENGINE = InnoDB", model)


def check_migrations(using: str) -> Iterator[CheckMessage]:
    """Find migrations of the apps that calls need which were not applied to their database.

    ``migrate`` runs the checks of its database before it applies them: there, they are no problem.
    """
    if sys.argv[1:2] == ["migrate"]:
        return
    for label in filter(apps.is_installed, MissingTables.APPS):
        if database_of(label) == using and (missing := missing_migrations(label)):
            yield problem("W171", f"Not migrated: {label} {missing}.", f"Run {MissingTables.REMEDY}.")


CHECKS = (check_migrations, check_time_zones, check_uuids, check_engines, check_deciders)
