"""Check the arguments of a tool, and read those that many tools share: model, names, limit, flags, keys.

Names that a client sends are looked up in the caller's allow-lists. A name that is not there is refused by a
``ToolError`` with the valid names, and a hidden name gets the same answer as one that does not exist.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, ClassVar, Final

from ..conf import settings
from ..context.request import MCPRequest
from ..exceptions import NotFound, NotPermitted, ToolError
from ..schema.arguments import ArgumentSchema
from ..schema.value_types import is_empty
from .access import Access, ModelAccess, access_of
from .alternative_spellings import (
    TRUTH,
    argument_meant,
    json_or_text,
    starts_at_the_beginning,
)
from .nearest_names import Misnamed, alternatives, nearest
from .suggestions import (
    nearest_models,
    with_argument,
    with_model,
    with_name,
    without_argument,
)

# Maximum number of models suggested for a call without a model.
MAX_FITTING: Final = 5
# Maximum number of characters of model labels in a message.
MAX_LABELS: Final = 360
# Maximum number of names in a list, unless another is given.
MAX_NAMES: Final = 200
# Arguments whose text is searched for as it is, even if it looks like JSON.
SEARCHED: Final = frozenset({"search", "query"})
# Arguments that limit the number of rows.
BOUNDS: Final = frozenset({"limit", "top"})
# Maximum number of unknown arguments whose meaning is looked for, and how many an error names if there are more.
MAX_UNKNOWN: Final = 20
FIRST_UNKNOWN: Final = 5
# Maximum number of characters of a text that may spell an empty list or object.
MAX_EMPTY: Final = 16


class Arguments(dict[str, Any]):
    """The arguments of a tool's call that are set, by name. A method reads the value of one of them.

    The methods raise ``ToolError`` for a value that the argument does not take.
    """

    # Maximum number of characters and of words of a text to search for.
    MAX_SEARCH: ClassVar = 200
    MAX_SEARCH_WORDS: ClassVar = 12

    @classmethod
    def read(
        cls, arguments: Mapping[str, Any], known: Iterable[str], *, keeping: Collection[str] = (), strict: bool = False
    ) -> "Arguments":
        """Return the arguments of a call, all of which must be ``known``, without those that are not set.

        An empty text, list or object counts as left out, and never as everything: some language models write something
        for every argument. Arguments in ``keeping`` may be empty. Unless it is ``strict``, synonyms such as ``orderBy``
        or ``where`` are understood, and a limit of 0 rows counts as left out.

        Raises ``ToolError``, with the argument that may be meant, for an unknown one.
        """
        known = list(known)
        unknown = _unknown_names(arguments, known)
        if len(unknown) > MAX_UNKNOWN:
            first = ", ".join(repr(name[:60]) for name in unknown[:FIRST_UNKNOWN])
            more = len(unknown) - FIRST_UNKNOWN
            raise ToolError(f"Unknown arguments: {first} and {more} more. {alternatives(None, known)}")
        if not strict:
            arguments = cls.understood(arguments, known)
        for name in arguments:
            if name not in known and name not in ArgumentSchema.IGNORED:
                raise _unknown_argument(name, known)

        # Leave out what is empty, and a limit of 0.
        found = cls()
        for name, value in arguments.items():
            if value is None or name in ArgumentSchema.IGNORED:
                continue
            if name not in keeping and _is_left_out(name, value):
                continue
            if not strict and name in BOUNDS and str(value) == "0":
                continue
            found[name] = value
        return found

    @classmethod
    def of_write(
        cls,
        arguments: Mapping[str, Any],
        known: Iterable[str],
        required: Collection[str] = (),
        keeping: Collection[str] = (),
    ) -> "Arguments":
        """Return the arguments of a call that writes. Synonyms are not understood, and only arguments in ``required``
        or ``keeping`` may be empty. Raises ``ToolError`` for an unknown argument, and without a required one."""
        names = list(known)
        found = cls.read(arguments, names, keeping={*required, *keeping}, strict=True)
        missing = [name for name in required if name not in found]
        if missing:
            raise ToolError(f"Missing argument: {', '.join(missing)}. {alternatives(None, names)}")
        return found

    @staticmethod
    def understood(arguments: Mapping[str, Any], known: Collection[str]) -> Mapping[str, Any]:
        """Return the arguments, the misnamed ones by their ``known`` names where there is no doubt."""
        if not 0 < len(_unknown_names(arguments, known)) <= MAX_UNKNOWN:
            # With very many unknown names, none is looked up: each is compared with all synonyms.
            return arguments
        found: dict[str, Any] = {}
        for name, value in arguments.items():
            if "cursor" in known and starts_at_the_beginning(name, value):
                continue
            if name not in known and name not in ArgumentSchema.IGNORED:
                meant, is_sure = argument_meant(name, known)
                if meant is not None and is_sure and meant not in arguments:
                    name = meant
            found[name] = value
        return found

    def model(self, request: MCPRequest, fits: Callable[[str], bool] = lambda label: False) -> ModelAccess:
        """Return the caller's access to the model that ``model`` names.

        An error can name the models that the rest of the call ``fits``.
        """
        access = access_of(request)
        label = self.get("model")
        try:
            model = access.get_model(label)
        except NotFound:
            raise _no_model(access, label, fits) from None
        request.mcp.record.model = model.exposure.label
        return model

    def names(self, name: str, most: int = MAX_NAMES) -> list[str]:
        """Return the names in a list of at most ``most``, or in one text with commas."""
        value = json_or_text(self.get(name))
        if isinstance(value, str):
            value = [part.strip() for part in value.split(",")]
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value) or len(value) > most:
            raise ToolError(f"{name} must be a list of at most {most} names.")
        return [item for item in value if item]

    def limit(self, default: int, most: int | None = None, name: str = "limit") -> int:
        """Return a number of rows, at most ``most`` (the setting ``MAX_PAGE_SIZE``)."""
        value = self.get(name)
        most = settings.MAX_PAGE_SIZE if most is None else most
        if value is None:
            return max(1, min(default, most))
        return min(_whole_number(value, most), most)

    def limit_hint(self, most: int | None = None, name: str = "limit") -> Iterator[str]:
        """Yield a hint if a number of rows is above its maximum."""
        value = self.get(name)
        most = settings.MAX_PAGE_SIZE if most is None else most
        if value is not None and _whole_number(value, most) > most:
            yield f"{name} is at most {most}"

    def flag(self, name: str) -> bool:
        """Return a value that is true or false, false for none."""
        value = self.get(name)
        if isinstance(value, str):
            value = {"true": True, "false": False}.get(value.lower(), value)
        if value is not None and not isinstance(value, bool):
            meant = TRUTH.get(str(value).lower())
            repair = with_argument(name, meant) if meant is not None else None
            raise ToolError(f"{name} must be true or false.", repair=repair)
        return bool(value)

    def object(self, name: str) -> dict[str, Any]:
        """Return a JSON object, an empty one for none."""
        value = self.get(name)
        if not isinstance(value, dict):
            value = {} if value is None else json_or_text(value)
        if isinstance(value, list) and name == "values":
            raise ToolError("values is an object: write one row a call, or name rows that get the same values by pks.")
        if not isinstance(value, dict):
            raise ToolError(f"{name} must be an object, such as {{'field': value}}.")
        return value

    def pks(self) -> list[str | int]:
        """Return the list of primary keys ``pks``."""
        value = json_or_text(self.get("pks"))
        most = settings.MAX_BULK_ROWS
        if not isinstance(value, list) or not 1 <= len(value) <= most:
            raise ToolError(f"pks must be a list of 1 to {most} primary keys, as query_records shows them.")
        if not all(isinstance(item, (str, int, list)) and not isinstance(item, bool) for item in value):
            raise ToolError("Each of pks must be a string or an integer, as query_records shows it.")
        return value


def _unknown_argument(name: str, known: Sequence[str]) -> ToolError:
    message = f"Unknown argument {name[:60]!r}."
    if "cursor" in known and starts_at_the_beginning(name, None):
        text = f"{message} Pages are by cursor: call without it, then repeat the call with next_cursor as cursor."
        return ToolError(text, repair=without_argument(name))
    repair = partial(with_name, name)
    meant, _ = argument_meant(name, known)
    if meant is not None:
        return Misnamed(message, name, known, repair, [meant], of=None)
    return Misnamed(message, name, known, repair, nearest(name, known))


def _unknown_names(arguments: Mapping[str, Any], known: Collection[str]) -> list[str]:
    return [name for name in arguments if name not in known and name not in ArgumentSchema.IGNORED]


def _is_left_out(name: str, value: Any) -> bool:
    holds_json = name not in SEARCHED and (not isinstance(value, str) or len(value) <= MAX_EMPTY)
    found = json_or_text(value) if holds_json else value
    return not found and is_empty(found)


def _no_model(access: Access, label: Any, fits: Callable[[str], bool]) -> ToolError:
    """Return the error for a call whose argument ``model`` is missing, or is no model of the caller's."""
    labels = [exposure.label for exposure in access.exposures]
    if label is None or label == "":
        fitting = list(filter(fits, labels))
        if len(fitting) > MAX_FITTING or 1 < len(fitting) == len(labels):
            fitting = []
        which = f"One of: {', '.join(labels)[:MAX_LABELS]}. list_models describes them."
        if len(fitting) > 1:
            which = f"Models with all these names: {', '.join(fitting)}."
        repair = with_model(label, fitting[0], is_spelling=False) if len(fitting) == 1 else None
        return ToolError(f"The argument model is missing. {which}", repair=repair)

    text = label[0] if isinstance(label, list) and len(label) == 1 else label
    is_label = isinstance(text, str) and text.lower() in labels
    near = [text.lower()] if is_label else nearest_models(access, text)
    more = " list_models describes them."
    error = Misnamed("No such model.", text, labels, lambda right: with_model(text, right), near, more, of=None)

    # Operators see in the log which model it was, though the caller is not told that it exists.
    if isinstance(text, str) and text.lower() in access.request.mcp.site.exposures_by_label:
        error.outcome = NotPermitted.outcome
        access.request.mcp.record.model = text.lower()
    return error


def _whole_number(value: Any, most: int) -> int:
    is_integer_of_json = isinstance(value, float) and value.is_integer()
    if is_integer_of_json or (isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 20):
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ToolError(f"limit must be a whole number from 1 to {most}.")
    return value
