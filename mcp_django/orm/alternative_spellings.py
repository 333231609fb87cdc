"""Alternative spellings that clients write: JSON as text, synonyms of arguments, operators, values, orderings."""

import re
from collections.abc import Collection, Iterator, Mapping
from typing import Any, Final, NamedTuple

from ..exceptions import ToolError
from ..protocol.errors import ParseError
from ..protocol.messages import TooMuch, decode
from .fields import parse_text
from .nearest_names import letters, singular


def json_or_text(value: Any) -> Any:
    """Decode a text that holds a JSON object or array, and return any other value unchanged.

    Raises ``ToolError`` if the JSON is deeper or longer than a message can be.
    """
    if isinstance(value, str) and value.lstrip()[:1] in ("{", "["):
        try:
            return decode(value)
        except TooMuch:
            # JSON within a text has the same limits as a whole message.
            raise ToolError(
                f"The JSON is nested over {TooMuch.MAX_DEPTH} levels deep or has over {TooMuch.MAX_ITEMS} items."
            ) from None
        except ParseError:
            return value
    return value


def is_short_text(value: Any, limit: int) -> bool:
    """Return whether a value is a text of at most ``limit`` characters that every database takes."""
    try:
        return len(parse_text(None, value)) <= limit and isinstance(value, str)
    except ValueError:
        return False


OPERATORS: Final[Mapping[str, str]] = {
    **dict.fromkeys(("=", "==", "eq", "equal", "equals", "is"), "exact"),
    **dict.fromkeys((">", "after", "greater_than", "more_than", "over"), "gt"),
    **dict.fromkeys((">=", "ge", "since", "from", "min", "start", "at_least"), "gte"),
    **dict.fromkeys(("<", "before", "less_than", "under"), "lt"),
    **dict.fromkeys(("<=", "le", "until", "to", "max", "end", "at_most"), "lte"),
    **dict.fromkeys(("any", "any_of", "one_of"), "in"),
    **dict.fromkeys(("like", "ilike"), "like"),
    **dict.fromkeys(("null", "is_null"), "isnull"),
    "between": "range",
    "includes": "contains",
    "starts_with": "startswith",
    "ends_with": "endswith",
}
_DENIED: Final[Mapping[str, str]] = {
    **dict.fromkeys(("!=", "<>", "ne", "neq", "not", "is_not", "exclude"), "exact"),
    **dict.fromkeys(("nin", "notin", "none_of"), "in"),
    **dict.fromkeys(("notnull", "isnotnull", "is_not_null"), "isnull"),
}
# Examples of the right syntax, for errors about filters that were not understood.
MISSPELT: Final = (
    'Q(a=1) | Q(b__gt=2) is {"or": [{"a": 1}, {"b__gt": 2}]}, ~Q(a=1) is {"not": {"a": 1}}, a != 1 is {"a__ne": 1}.'
)
MAX_NAME: Final = 200
MAX_TEXT: Final = 500
WAYS: Final = frozenset({"asc", "ascending", "desc", "descending"})

_COMPARED: Final = re.compile(r"([\w.]+?)(?:__|\s)*(>=|<=|!=|<>|==|=|>|<)")
_SPOKEN: Final = re.compile(
    r"([\w.]+)\s+(not\s+in|in|not\s+like|like|ilike|contains|between|is\s+not|is|startswith|endswith)", re.IGNORECASE
)
_CAMEL: Final = re.compile("(?<=[a-z])(?=[A-Z])")
_ORDER: Final = re.compile(
    r"(?P<sign>[+-]?)(?P<name>\S+?)(?:(?:[\s:.]+|__)(?P<way>asc|ascending|desc|descending))?"
    r"(?:[\s:]+nulls?[\s_]?(?P<place>first|last))?",
    re.IGNORECASE,
)


# Synonyms of arguments, and the synonyms among them that could also mean something else.
_ARGUMENTS: Final[Mapping[str, tuple[str, ...]]] = {
    "filters": ("where", "filter", "conditions", "condition", "criteria"),
    "ordering": ("orderby", "order", "sort", "sortby", "sorting"),
    "fields": ("columns", "select", "field", "cols", "attributes"),
    "limit": ("pagesize", "perpage", "maxresults", "maxrows", "take", "size", "first"),
    "search": ("q", "query", "searchterm", "keyword", "keywords", "term", "text"),
    "query": ("q", "search", "searchterm", "keyword", "keywords", "term", "text", "name"),
    "model": ("modelname", "modellabel", "models", "table", "tablename", "entity", "objecttype", "from", "label"),
    "pk": ("id", "primarykey", "key", "objectid", "recordid", "pks"),
    "pks": ("ids", "primarykeys", "keys"),
    "group_by": ("group", "groupby", "groups", "dimensions", "by"),
    "aggregates": ("aggregate", "aggregation", "aggregations", "metrics", "measures", "functions"),
    "related": ("relations", "include", "includes", "expand", "with"),
    "cursor": ("nextcursor", "pagetoken", "nextpagetoken", "after"),
    "count": ("includecount", "withcount", "includetotal"),
    "values": ("data", "fields", "attributes", "changes", "record", "set"),
    "action": ("actionname", "name"),
    "arguments": ("args", "params", "parameters", "kwargs"),
    "detail": ("details", "verbose", "full"),
}
_DOUBTFUL: Final = frozenset({"first", "size", "query", "text", "name", "from", "label", "key", "pks", "by"})
# Arguments that say where a page begins, which is the cursor's task here, with the value that means the first page.
_BEGINNINGS: Final[Mapping[str, int]] = {
    **dict.fromkeys(("offset", "skip", "start", "startindex"), 0),
    **dict.fromkeys(("page", "pagenumber", "pageno"), 1),
}


def argument_meant(name: str, known: Collection[str]) -> tuple[str | None, bool]:
    """Return the argument that another spelling of its name, such as ``orderBy``, means, and whether that is sure."""
    plain = letters(name[:MAX_NAME])
    for form in (letters, singular):
        same = [item for item in known if form(item) == form(plain)]
        if same:
            return same[0], len(same) == 1 and plain not in _DOUBTFUL
    found = next((item for item, others in _ARGUMENTS.items() if item in known and plain in others), None)
    return found, plain not in _DOUBTFUL


def starts_at_the_beginning(name: str, value: Any) -> bool:
    """Return whether an argument such as ``offset`` asks for the first page; with None, whether it is about paging."""
    first = _BEGINNINGS.get(letters(name[:MAX_NAME]))
    return first is not None and (value is None or str(value) == str(first))


class Meant(NamedTuple):
    """The lookup that an alternative spelling such as ``>=`` means, its value, and whether it is negated."""

    lookup: str
    value: Any
    is_denied: bool


def lookup_meant(word: str, value: Any, lookups: Collection[str]) -> Meant | None:
    """Return the lookup that an alternative spelling such as ``>=`` means, None for none of ``lookups``.

    An SQL pattern becomes the lookup that the ``%`` at its ends mean.
    """
    word = _CAMEL.sub("_", word).lower().removeprefix("$").replace(" ", "_")

    # The lookup that the word means, and whether it is negated.
    lookup = OPERATORS.get(word, word)
    denied = False
    if word in _DENIED:
        lookup = _DENIED[word]
        denied = True
    elif word.startswith("not_"):
        lookup = OPERATORS.get(word[4:], word[4:])
        denied = True

    # What the value makes of it.
    if lookup == "like":
        lookup, value = _pattern(value)
    elif lookup == "exact" and isinstance(value, list):
        lookup = "in"
    elif lookup == "isnull" and word in _DENIED and value is False:
        # "Not null: false" means null.
        value = True
        denied = False
    elif lookup == "isnull" and word in _DENIED:
        value = True

    if lookup in lookups or (lookup == "exact" and value is None and "isnull" in lookups):
        return Meant(lookup, value, denied)
    return None


def _pattern(value: Any) -> tuple[str, Any]:
    if not isinstance(value, str) or "%" in value.strip("%"):
        return "", value
    begins = value.startswith("%")
    ends = value.endswith("%")
    text = value.strip("%")
    if begins and ends:
        return "icontains", text
    if begins:
        return "iendswith", text
    if ends:
        return "istartswith", text
    return "iexact", text


def name_meant(text: str) -> str | None:
    """Return the filter that an alternative spelling such as ``"total >"`` or ``"customer.name"`` means."""
    if len(text) > MAX_NAME:
        return None
    name = text
    operator = ""
    found = _COMPARED.fullmatch(text) or _SPOKEN.fullmatch(text)
    if found is not None:
        name = found[1]
        operator = f"__{'_'.join(found[2].lower().split())}"
    # Drop ``__date``: a bare day compared with a datetime means the whole day anyway.
    name = name.replace(".", "__").replace("__date__", "__") + operator
    return name if name != text else None


def without_value(path: str, value: Any) -> str:
    """Return the column that a filter wants to be null, "" if it wants something else."""
    column, _, lookup = path.rpartition("__")
    if value is None or value == {"isnull": True}:
        return path
    if lookup == "isnull" and str(value).lower() in ("true", "1"):
        return column
    return ""


# Comparisons within a value or within a whole text, as in SQL or in words.
_WORDED: Final = (
    r"(?:is\s+)?(?P<operator>>=|<=|!=|<>|==|=|>|<|!|before|after|since|until|from|not|at\s+least|at\s+most|"
    r"(?:more|greater|less)\s+than|over|under|like|ilike)"
)
_VALUE: Final = re.compile(rf"{_WORDED}\s*(?P<value>\S.*)", re.IGNORECASE | re.DOTALL)
_RANGES: Final = (
    re.compile(r"between\s+(?P<first>\S+)\s+and\s+(?P<last>\S+)", re.IGNORECASE),
    re.compile(r"(?:from\s+)?(?P<first>\S+)(?:\s+(?:to|until)\s+|\s*\.\.+\s*)(?P<last>\S+)", re.IGNORECASE),
    # Two days, as in ISO 8601.
    re.compile(r"(?P<first>[0-9]{4}-\S+)\s*/\s*(?P<last>[0-9]{4}-\S+)"),
)
_LISTED: Final = re.compile(r"\s*[,|;]\s*")
_TERM: Final = re.compile(
    r"\s*\(?\s*(?P<name>[\w.]+)\s*(?P<operator>>=|<=|!=|<>|==|=|>|<|\s(?:not\s+)?(?:like|ilike|in)\b|\sis(?:\s+not)?\b)"
    r"\s*(?P<value>'[^']*'|\"[^\"]*\"|\([^()]*\)|[^\s()'\"]+)\s*\)?\s*",
    re.IGNORECASE,
)
_CURRENCY: Final = "[$€£¥]|USD|EUR|GBP|JPY|CNY|CHF|AUD|CAD|NZD|INR|SEK|NOK|DKK|PLN|CZK|HUF|BRL|MXN|ZAR|KRW|TRY"
_AMOUNT: Final = re.compile(rf"(?:{_CURRENCY})?\s*(?P<number>-?[0-9][0-9.,' ]*?)\s*(?:{_CURRENCY})?", re.IGNORECASE)
TRUTH: Final[Mapping[str, bool]] = {
    **dict.fromkeys(("true", "yes", "y", "on", "1", "t"), True),
    **dict.fromkeys(("false", "no", "n", "off", "0", "f"), False),
}
_COUNTED: Final = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")


def values_meant(value: Any, lookup: str, *, is_key: bool = False) -> Iterator[tuple[str, Any]]:
    """Yield the lookups and values that an alternative spelling of a filter's value can mean, "" for its own lookup.

    Another lookup is only meant in place of ``exact``: ``{"total__gt": "< 5"}`` says two things. A list is also meant
    in place of ``in``. A number with a comma is that number, and with ``is_key``, where there are none, a list.
    """
    if not isinstance(value, str) or len(value) > MAX_NAME:
        return
    text = value.strip()
    is_plain = lookup == "exact"
    takes_lists = lookup in ("exact", "in")

    # JSON, maybe in single quotes.
    opened = json_or_text(text.replace("'", '"') if text[:1] in ("[", "{") else text)
    if isinstance(opened, list) and takes_lists:
        yield "in", opened
    elif isinstance(opened, dict) and len(opened) == 1 and is_plain:
        yield next(iter(opened.items()))

    # A comparison in signs or in words, or a range.
    comparison = _VALUE.fullmatch(text) if is_plain else None
    if comparison is not None:
        operator = "_".join(comparison["operator"].lower().split())
        yield "!=" if operator == "!" else operator, _unquoted(comparison["value"])
    if lookup in ("exact", "range"):
        ranges = (pattern.fullmatch(text) for pattern in _RANGES)
        yield from (("range", [found["first"], found["last"]]) for found in ranges if found is not None)

    # A number as people write it, or several values.
    number = None if is_key else number_meant(text)
    if number is not None and number != text:
        yield "", number
    if number is None and takes_lists and _LISTED.search(text):
        yield "in", _LISTED.split(text)

    # A word for a value, or a value with signs around it.
    if text.lower() in TRUTH and is_plain:
        yield "", TRUTH[text.lower()]
    if text.lower() in _COUNTED:
        yield "", _COUNTED.index(text.lower())
    if text.lower() in ("", "null", "none", "nil", "empty") and is_plain:
        yield "isnull", True
    if len(text) > 1 and text[0] == text[-1] and text[0] in "'\"":
        yield "", text[1:-1]
    if text.endswith("()"):
        yield "", text[:-2]


def number_meant(text: str) -> str | None:
    """Return the number that a text means: with a currency, groups of three, or a decimal comma.

    Returns None for anything else. The last of a comma and a point that both occur is the decimal sign.
    """
    found = _AMOUNT.fullmatch(text)
    if found is None:
        return None
    number = found["number"]
    for decimal, grouping in ((".", ","), (",", "."), (".", " "), (",", " "), (".", "'"), (",", "'")):
        whole, point, rest = number.partition(decimal)
        is_whole = re.fullmatch(rf"-?(?:[0-9]+|[1-9][0-9]{{0,2}}(?:{re.escape(grouping)}[0-9]{{3}})+)", whole)
        if is_whole and (rest.isdigit() or not point):
            return whole.replace(grouping, "") + ("." + rest if point else "")
    return None


def _unquoted(text: str) -> str:
    if len(text) > 1 and text[0] == text[-1] and text[0] in "'\"":
        return text[1:-1]
    return text


def filters_meant(given: Any) -> dict[str, Any] | None:
    """Return the filters that SQL text means, or a list of name, operator and value.

    Returns None for anything else, and for a text with ``or``, or with brackets other than around conditions and lists.
    """
    if isinstance(given, str):
        return _of_text(given) if len(given) <= MAX_TEXT else None
    if not isinstance(given, list) or not given:
        return None
    if len(given) == 3 and isinstance(given[0], str) and isinstance(given[1], str):
        word = "_".join(given[1].lower().split()).removeprefix("$")
        if word in OPERATORS or word in _DENIED or word in OPERATORS.values():
            return {_named(given[0], given[1]): given[2]}
    found: dict[str, Any] = {}
    for item in given:
        part = item if isinstance(item, dict) else filters_meant(item)
        if part is None or not found.keys().isdisjoint(part):
            return None
        found |= part
    return found


def _named(name: str, operator: str) -> str:
    word = "_".join(operator.lower().split()).removeprefix("$")
    lookup = "ne" if word in ("!=", "<>") else OPERATORS.get(word, word)
    return name if lookup == "exact" else f"{name}__{lookup}"


def _of_text(text: str) -> dict[str, Any] | None:
    text = re.sub(r"^\s*(select\b.*?\bwhere|where)\s", "", text, flags=re.IGNORECASE | re.DOTALL)
    found: dict[str, Any] = {}
    for part in re.split(r"\s+and\s+|\s*&&\s*|;", text, flags=re.IGNORECASE):
        term = _TERM.fullmatch(part)
        if term is None:
            return None
        name = term["name"]
        operator = "_".join(term["operator"].lower().split())
        value = term["value"]
        if value.startswith("("):
            values: Any = [_unquoted(item.strip()) for item in value[1:-1].split(",")]
        elif value.lower() == "null" and operator in ("is", "is_not"):
            values = operator == "is"
            operator = "isnull"
        else:
            values = _unquoted(value)
        key = _named(name, operator)
        if key in found:
            return None
        found[key] = values
    return found or None


def as_conditions(value: Any) -> Any:
    """Return the filters that a list of conditions means, an alternative spelling of ``and``; others as they are."""
    if isinstance(value, list) and value and all(isinstance(item, dict) for item in value):
        return {"and": value} if len(value) > 1 else value[0]
    return value


def order_texts(value: Any) -> Any:
    """Return the ordering that alternative spellings such as ``{"created": "desc"}`` mean."""
    value = json_or_text(value)
    items = [value] if isinstance(value, dict) else value
    if not isinstance(items, list) or not any(isinstance(item, dict) for item in items):
        return value
    texts: list[Any] = []
    for item in items:
        name = item.get("field", item.get("column")) if isinstance(item, dict) else None
        if isinstance(name, str):
            way = next((item[key] for key in ("direction", "order", "dir") if key in item), "asc")
            texts.append(_directed(name, way))
        elif isinstance(item, dict):
            texts += [_directed(key, way) for key, way in item.items()]
        else:
            texts.append(item)
    return value if None in texts else texts


def _directed(name: str, way: Any) -> str | None:
    if isinstance(way, str) and way.lower() in WAYS:
        return f"{name} {way}"
    return None


def order_meant(text: str) -> str:
    """Return ``-created:nulls_last`` for the alternative spelling ``"created DESC NULLS LAST"``."""
    found = _ORDER.fullmatch(text) if len(text) <= MAX_NAME else None
    if found is None:
        return text
    is_descending = found["sign"] == "-" or (found["way"] or "").lower().startswith("desc")
    sign = "-" if is_descending else ""
    name = found["name"].replace(".", "__")
    place = f":nulls_{found['place'].lower()}" if found["place"] else ""
    return f"{sign}{name}{place}"
