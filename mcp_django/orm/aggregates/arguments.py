"""The arguments of an aggregation: groups, measures, their order, and how many groups are shown."""

from typing import Any, Final, NamedTuple

from django.db.models import Q

from ...exceptions import ToolError
from ..access import ModelAccess
from ..alternative_spellings import json_or_text, order_meant, order_texts
from ..tool_arguments import Arguments
from .groups import STRETCHES, Group
from .measure_reader import MeasureReader
from .measures import Measure, find_title, position_of

MAX_GROUPS: Final = 200
DEFAULT_GROUPS: Final = 50
MAX_TOP: Final = 50
MAX_TERMS: Final = 10
NULL_PLACES: Final = ("nulls_first", "nulls_last")


class Way(NamedTuple):
    """Direction of a column in an order, with NULL last unless the caller puts NULL first."""

    descending: bool
    nulls_first: bool = False


UP: Final = Way(False)
DOWN: Final = Way(True)


class Order(NamedTuple):
    """Order of the groups, by the aliases of columns, and the measure by which ``top`` ranks groups."""

    keys: tuple[tuple[str, Way], ...]
    rank: tuple[Measure, Way]


class AggregateArguments:
    """Reads the arguments of ``aggregate_records``. Methods raise ``ToolError`` for those that do not fit together.

    ``terms`` are the columns of the result: groups, then measures.
    """

    def __init__(self, model: ModelAccess, given: Arguments) -> None:
        self.given = given

        # "per" is a group, whether or not "group_by" names it too.
        names = [_path(item) for item in _list(given.get("group_by"), "group_by")]
        per = _path(given.get("per"))
        if "per" in given and per not in names:
            names.insert(0, per)
        self.groups = tuple(Group.read(model, name, position) for position, name in enumerate(names))
        self.per = self.groups[names.index(per)] if "per" in given else None

        aggregates = _list(given.get("aggregates"), "aggregates") or ["count"]
        self.measures = MeasureReader(model).read(aggregates)
        self.terms: tuple[Group | Measure, ...] = (*self.groups, *self.measures)

    def check(self) -> None:
        """Check that the groups, the measures and what is asked of them fit together."""
        given = self.given
        if len({term.title for term in self.terms}) < len(self.terms):
            raise ToolError('Two columns have the same name; rename one with "as".')
        for name in ("having", "top"):
            if name in given and not self.groups:
                raise ToolError(f'"{name}" needs "group_by".')
        if self.per is not None and ("top" not in given or len(self.groups) < 2):
            how = '{"group_by": ["product"], "top": 3, "per": "country"}'
            raise ToolError(f'"per" needs "top" and another field in group_by: {how}.')
        stretches = [group for group in self.groups if group.period in STRETCHES]
        if any(measure.function == "change" for measure in self.measures) and len(stretches) != 1:
            raise ToolError('"change" needs one period in group_by, such as "created:month".')

    def limits(self, most: int | None) -> tuple[int, int | None]:
        """Return how many groups are shown at most, and of how many values of the first group, None for all.

        ``most`` is how many groups are wanted, whatever the argument ``limit`` says; None for what that says.
        """
        top = None
        if "top" in self.given:
            top = self.given.limit(MAX_TOP, MAX_TOP, "top")
        limit = most or self.given.limit(DEFAULT_GROUPS if top is None else MAX_GROUPS, MAX_GROUPS)
        if top is not None and len(self.groups) == 1:
            # The top values of a single group are simply the first rows.
            return min(limit, top), None
        return limit, top

    def order(self) -> Order:
        """Return the order of the groups, which ends with all of them, so that it is total."""
        order = self._ordering()
        rank = next(((term, way) for term, way in order if isinstance(term, Measure)), (self.measures[0], DOWN))

        # What "top" ranks by decides which groups are shown, before the caller's order does.
        if self.per is not None:
            order = [(self.per, UP), rank]
        elif "top" in self.given:
            order = [(term, way) for term, way in order if term is not rank[0]]
            if len(self.groups) == 1:
                order = [rank, *order]

        total: dict[str, Way] = {}
        for term, way in (*order, *((group, UP) for group in self.groups)):
            total.setdefault(term.alias, way)
        return Order(tuple(total.items()), rank)

    def _ordering(self) -> list[tuple[Group | Measure, Way]]:
        """Read the argument ``ordering``: columns of the result and their directions."""
        titles = [term.title for term in self.terms]
        found: list[tuple[Group | Measure, Way]] = []
        for item in _list(order_texts(self.given.get("ordering")), "ordering"):
            text, place = _placed(str(item))
            meant, meant_place = _placed(order_meant(str(item)))
            # An alternative spelling counts only where the text itself names no column.
            if find_title(titles, text.lstrip("+-")) is None and find_title(titles, meant.lstrip("-")) is not None:
                text = meant
                place = meant_place
            name = text.lstrip("+-")
            position = position_of(titles, name, f"The result has no column {name[:60]!r} to order by.", "ordering")
            found.append((self.terms[position], Way(text.startswith("-"), place == "nulls_first")))
        return found

    def check_fill(self, order: Order, having: Q) -> None:
        """Check that ``fill`` can add the periods without rows: one period is grouped by, in its order."""
        is_period = len(self.groups) == 1 and self.groups[0].period in STRETCHES
        if not is_period or order.keys[0][0] != self.groups[0].alias or having:
            raise ToolError('"fill" needs one period in group_by, such as "created:month", its order, and no having.')


def _list(value: Any, what: str) -> list[Any]:
    """Read an argument that is a list, an object that stands for a list of one, or a text with commas."""
    value = json_or_text(value)
    if value is None or value == "":
        return []
    if isinstance(value, str):
        value = value.split(",")
    if isinstance(value, dict):
        value = [value]
    if not isinstance(value, list) or len(value) > MAX_TERMS:
        raise ToolError(f"{what} must be a list of at most {MAX_TERMS}.")
    return [item.strip() if isinstance(item, str) else item for item in value]


def _path(given: Any) -> Any:
    """Read the path of a group: dots become ``__``."""
    if not isinstance(given, str):
        return given
    name, colon, period = given.partition(":")
    return f"{name.replace('.', '__')}{colon}{period}"


def _placed(text: str) -> tuple[str, str]:
    """Split a text such as ``-total:nulls_first`` into the column and the place of NULL, "" for none."""
    name, _, place = text.rpartition(":")
    if place in NULL_PLACES:
        return name, place
    return text, ""
