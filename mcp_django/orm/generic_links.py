"""Generic relations as lists of rows, of which values such as ``notes.count`` are made."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django.db import connections, router
from django.db.models import CharField, IntegerField, OuterRef, TextField, UUIDField, Value
from django.db.models.functions import Cast, Concat, Substr

from .access import Link, ModelAccess
from .fields import is_generic_relation, is_joinable, stored_field

TEXTS = (CharField, TextField)
# Where the groups of a UUID's digits begin, and how long they are.
GROUPS = ((1, 8), (9, 4), (13, 4), (17, 4), (21, 12))


def list_named(model: ModelAccess, name: str) -> Link | None:
    """Return the accessible relation of this name, also if it is a generic one; None if there is none."""
    return model.link(name) or GenericLink.named(model, name)


@dataclass(frozen=True, slots=True)
class GenericLink(Link):
    """A generic relation that a caller has access to: each related row holds the type and the key of its owner."""

    @classmethod
    def named(cls, model: ModelAccess, name: str) -> "GenericLink | None":
        """Return the accessible generic relation of this name, None if there is none.

        The caller must be able to read the relation and to view the related model. There is none either if the
        database cannot compare the key of this model with the keys that the related rows hold.
        """
        column = model.column(name)
        if column is None or not column.lists_rows or not is_generic_relation(column.field):
            return None
        related = model.access.model_of(column.field.related_model)
        if related is None:
            return None
        link = cls(name, column.field, related)
        if is_joinable(link.field) and is_joinable(link._holder) and link._is_comparable:
            return link
        return None

    def _linked(self, through: Sequence[str]) -> Mapping[str, Any]:
        owner = self.field.model._meta
        if self.field.for_concrete_model:
            owner = owner.concrete_model._meta
        kind = self._holder.name
        # The names of the type, and not its key, which would have to be read first.
        return {
            f"{kind}__app_label": owner.app_label,
            f"{kind}__model": owner.model_name,
            self._remote.attname: self._key(OuterRef("__".join([*through, "pk"]))),
        }

    @property
    def _holder(self) -> Any:
        """The field of the related model that holds the type of the owner."""
        return self.exposure.opts.get_field(self.field.content_type_field_name)

    @property
    def _remote(self) -> Any:
        """The field of the related model that holds the key of the owner."""
        return self.exposure.opts.get_field(self.field.object_id_field_name)

    @property
    def _own(self) -> Any:
        """The field that holds the key of this model."""
        return stored_field(self.field.model._meta.pk)

    @property
    def _is_comparable(self) -> bool:
        """Whether the database can compare the keys on both sides."""
        own = self._own
        remote = self._remote
        # A field of the project's own may store a key otherwise than it shows it.
        if hasattr(own, "from_db_value") or hasattr(remote, "from_db_value"):
            return type(own) is type(remote)
        if isinstance(remote, TEXTS):
            if isinstance(own, TEXTS):
                return own.db_collation == remote.db_collation
            return isinstance(own, (IntegerField, UUIDField))
        if isinstance(remote, UUIDField):
            return isinstance(own, UUIDField)
        return isinstance(own, IntegerField) and isinstance(remote, IntegerField)

    def _key(self, own: Any) -> Any:
        """Return the key of the owner as the related rows hold it."""
        if not isinstance(self._remote, TEXTS) or isinstance(self._own, TEXTS):
            return own
        using = router.db_for_read(self.exposure.model)
        if isinstance(self._own, IntegerField) or connections[using].features.has_native_uuid_field:
            return Cast(own, CharField())
        # The database has its digits alone, and the related rows have hyphens between the groups.
        first, *others = (Substr(own, start, length) for start, length in GROUPS)
        parts: list[Any] = [first]
        for group in others:
            parts += [Value("-"), group]
        return Concat(*parts, output_field=CharField())
