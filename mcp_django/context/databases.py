"""The database that the queries of a call go to: a call that writes reads where it writes.

A replica may be behind. A row that is read there and then saved would take back what others have changed meanwhile.
"""

from typing import Any, Final

from django.db import DEFAULT_DB_ALIAS, router
from django.db.models import Model

from .record import CURRENT


class Primary:
    """A database router in front of the project's own. Django asks it for each queryset without ``using()``."""

    def db_for_read(self, model: type[Model], **hints: Any) -> str | None:
        """Return where the model is written, during a call that writes."""
        record = CURRENT.get()
        return _written(model, **hints) if record is not None and record.writes else None


PRIMARY: Final = Primary()


def heed_writes() -> None:
    """Have calls that write read where they write, from now on; a project without routers has one place for both."""
    if router.routers and router.routers[0] is not PRIMARY:
        router.routers = [PRIMARY, *router.routers]


def home_of(model: type[Model]) -> str:
    """Return where the model is written, whichever of its replicas reads go to; or where it is read, if only that."""
    return _written(model) or router.db_for_read(model)


def _written(model: type[Model], **hints: Any) -> str | None:
    """Return where the model is written, None where it is only read."""
    try:
        found = (one.db_for_write(model, **hints) for one in router.routers if hasattr(one, "db_for_write"))
        alias = next(filter(None, found), None)
    except Exception:
        # Routers of projects refuse so to write what is another application's.
        return None
    if alias is not None:
        return str(alias)
    # Django would write it, but a router that names only where it is read may know of no table there.
    is_there = model._meta.managed and router.allow_migrate_model(DEFAULT_DB_ALIAS, model)
    return router.db_for_write(model, **hints) if is_there else None
