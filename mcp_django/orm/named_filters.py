"""Filters that a project wrote itself, such as those of the admin's sidebar: known by their names, run as they are."""

import logging
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from django.db.models import QuerySet

from ..context.request import Exposure, MCPRequest
from .kinds import choice_of

__all__ = ["MAX_CHOICES", "NamedFilter", "Offer", "named_filters_of"]

logger = logging.getLogger("mcp_django")

MAX_CHOICES: Final = 200


@dataclass(frozen=True, slots=True)
class Offer:
    """A name to filter by: its title, and the values with their labels; without choices any text may be tried."""

    name: str
    title: str
    choices: tuple[tuple[str, str], ...] = ()

    def value_of(self, text: str) -> str | None:
        """Return the value that a client means by it or by its label, None if it is none of the choices."""
        if not self.choices:
            return text
        found: str | None = choice_of(self.choices, text)
        return found


class NamedFilter(ABC):
    """A filter that the project wrote: some names, each of which takes values, and what it makes of a queryset."""

    # Whether it stands before a field of the same name.
    comes_first = False
    # Whether a name takes more than one value.
    takes_lists = True

    @abstractmethod
    def names(self) -> Sequence[str]:
        """Return the names that the filter may have, without asking the database."""

    @abstractmethod
    def offers(self) -> Sequence[Offer]:
        """Return what the caller may use of it now; nothing where the filter itself would not be shown."""

    def told(self) -> Sequence[Offer]:
        """Return what the caller is told of it: the same, with choices made of rows as far as they may see those."""
        return self.offers()

    def value_of(self, offer: Offer, text: str) -> str | None:
        """Return the value of an offer that a client means, None if the caller may know of no such choice."""
        return offer.value_of(text)

    @abstractmethod
    def narrow(self, queryset: QuerySet[Any], values: Mapping[str, tuple[str, ...]]) -> QuerySet[Any]:
        """Return the rows that pass.

        Raises:
            ToolError: the filter does not take the values.
        """


def named_filters_of(request: MCPRequest, exposure: Exposure, *, told: bool = False) -> list[Offer]:
    """Return every named filter that the caller may use. One that fails is left out: it is the project's code.

    With ``told`` they have the choices that the caller is told.
    """
    found: dict[str, Offer] = {}
    for item in exposure.get_named_filters(request):
        try:
            for offer in item.told() if told else item.offers():
                found.setdefault(offer.name, offer)
        except Exception:
            logger.warning("A filter of %s failed: %s", exposure.label, ", ".join(item.names()), exc_info=True)
    return list(found.values())
