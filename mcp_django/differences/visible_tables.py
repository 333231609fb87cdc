"""Tables of the database, told to a caller: those with rows of models that the caller does not see have no name."""

from collections.abc import Sequence
from typing import Any, Final

from django.db import connections, router
from django.utils.translation import gettext_noop

from ..orm.access import access_of
from .cascades import with_parents
from .rehearsals import OTHER_STATEMENTS, Rehearsal
from .statements import table_name

OTHER_TABLES: Final = gettext_noop("other tables")


def told_tables(rehearsal: Rehearsal, names: Sequence[str]) -> list[str]:
    """Return which of these tables the caller of a rehearsal's request sees, and once "other tables" for the rest."""
    request = rehearsal.request
    if not names or request is None:
        return list(names)
    quote = connections[router.db_for_write(rehearsal.model)].ops.quote_name
    seen = {OTHER_STATEMENTS}
    for model in access_of(request).models:
        links: list[Any] = [field for field in model.exposure.opts.many_to_many if field.name in model.fields]
        tables = [*with_parents(model.exposure.model), *(field.remote_field.through for field in links)]
        seen.update(".".join(table_name(quote(table._meta.db_table))) for table in tables)
    known = [name for name in names if name in seen]
    return known if len(known) == len(names) else [*known, OTHER_TABLES]
