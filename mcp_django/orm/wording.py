"""Read what a client wrote: objects sent as text, and the valid names nearest to a wrong one."""

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from difflib import SequenceMatcher
from functools import cached_property
from typing import Any, Final

from ..exceptions import Repair, ToolError
from ..protocol.errors import ParseError
from ..protocol.messages import MAX_DEPTH, MAX_ITEMS, TooMuch, decode_text
from .fields import TEXTUAL, parse_text

MAX_LISTED: Final = 40
# Characters of the names in a message, and of a text that is compared with names.
MAX_CHARS: Final = 360
MAX_COMPARED: Final = 100
# How alike a name is that may be meant, between 0 and 1; how much less alike one is that is not meant, too.
NEAR: Final = 0.6
CLOSE: Final = 0.06
MAX_NEAR: Final = 3
# How alike two words are of which one is a misspelt other.
TYPO: Final = 0.7
_WORDS: Final = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[^\W_A-Z]+")
COUNTING: Final = frozenset(("count", "counts", "cnt", "num", "number", "nr", "n"))
# What a name may have or not without a difference; and words that ask something of a value, which are never misspelt.
_FILLING: Final = frozenset(("at", "on", "of", "by", "the", "is", "id", "pk", "date", "time", "datetime"))
_ASKING: Final = frozenset(
    {
        *TEXTUAL,
        "endswith",
        "iendswith",
        "exact",
        "iexact",
        "count",
        "year",
        "quarter",
        "month",
        "week",
        "hour",
        "minute",
    }
)
_PLURALS: Final = (("ies", "y"), ("sses", "ss"), ("shes", "sh"), ("ches", "ch"), ("xes", "x"), ("s", ""))


def alternatives(text: Any, names: Iterable[str], near: Sequence[str] | None = None) -> str:
    """Return the names as the end of an error message, after the nearest to ``text``, or those that are ``near``."""
    known = list(names)
    near = nearest(text, known) if near is None else near
    meant = f"Did you mean {' or '.join(near)}? " if near else ""
    shown = known[:MAX_LISTED]
    while len(shown) > 1 and sum(map(len, shown)) + 2 * len(shown) > MAX_CHARS:
        shown.pop()
    more = f" and {len(known) - len(shown)} more" if len(known) > len(shown) else ""
    return f"{meant}Valid: {', '.join(shown)[:MAX_CHARS] or 'none'}{more}."


def nearest(text: Any, names: Iterable[str]) -> list[str]:
    """Return the names that a text may mean, several where none of them stands out.

    They are those that differ in case, signs or number alone; where there is none, those that are most alike.
    """
    known = list(dict.fromkeys(names))
    if not isinstance(text, str) or not letters(text):
        return []
    text = text[:MAX_COMPARED]
    for form in (letters, singular):
        if same := [name for name in known if form(name) == form(text)]:
            return same[:MAX_NEAR]
    return _alike(text.lower(), known)


def letters(text: str) -> str:
    """Return the letters and digits of a text, in lower case."""
    return "".join(filter(str.isalnum, text)).lower()


def singular(text: str) -> str:
    """Return the letters of an English word without the ending of the plural."""
    word = letters(text)
    for ending, instead in _PLURALS:
        if word.endswith(ending) and len(word) > len(ending) + 1 and not word.endswith("ss"):
            return word.removesuffix(ending) + instead
    return word


def words(text: str) -> list[str]:
    """Return the words of a name such as ``customer__name``, ``orderNumber`` or ``order number``, as it has them."""
    return _WORDS.findall(text)


def says_all(text: Any, name: str) -> bool:
    """Return whether a name has each word of a text, which may be misspelt there.

    A name that lacks one says something else: ``orders`` is not ``num_orders``, and ``paid`` not ``unpaid``.
    """
    if not isinstance(text, str) or letters(text[:MAX_COMPARED]) == letters(name):
        return True

    def is_same(word: str, other: str) -> bool:
        if word == other or word in _ASKING or (word.endswith(other) and len(word) > len(other)):
            return word == other
        return SequenceMatcher(a=word, b=other).ratio() >= TYPO

    known, asked = (
        ["count" if word.lower() in COUNTING else singular(word) for word in words(given)]
        for given in (name, text[:MAX_COMPARED])
    )
    return all(word in _FILLING or any(is_same(word, other) for other in known) for word in asked)


def _alike(text: str, names: Sequence[str]) -> list[str]:
    matcher = SequenceMatcher(b=text)
    scores: dict[str, float] = {}
    for name in names:
        matcher.set_seq1(name[:MAX_COMPARED].lower())
        if matcher.real_quick_ratio() >= NEAR and matcher.quick_ratio() >= NEAR:
            scores[name] = matcher.ratio()
    best = max(scores.values(), default=0.0)
    found = [name for name, score in scores.items() if score >= NEAR and score > best - CLOSE]
    return sorted(found, key=lambda name: -scores[name])[:MAX_NEAR]


class Misnamed(ToolError):
    """A name that is none of ``names``; ``repair`` mends the call by the only one that is near.

    It does where that says all that the text says, of the model ``of``; None stands for a name that is known to mean
    the same. What is ``near`` is looked for when the message is asked for: of many calls that are tried, none is told.
    """

    def __init__(
        self,
        lead: str,
        text: Any,
        names: Iterable[str],
        repair: Callable[[str], Repair],
        near: Sequence[str] | Callable[[], Sequence[str]] | None = None,
        more: str = "",
        *,
        of: str | None = "",
    ) -> None:
        Exception.__init__(self, lead)
        self._lead, self._text, self._names, self._repair, self._more, self._of = lead, text, names, repair, more, of
        self._found = near

    @cached_property
    def _known(self) -> list[str]:
        return list(dict.fromkeys(self._names))

    @cached_property
    def _near(self) -> Sequence[str]:
        near = (self._found() or None) if callable(self._found) else self._found
        return nearest(self._text, self._known) if near is None else near

    @cached_property
    def message(self) -> str:  # type: ignore[override]
        """The text for the model."""
        return f"{self._lead} {alternatives(self._text, self._known, self._near)}{self._more}"

    @cached_property
    def repair(self) -> Repair | None:  # type: ignore[override]
        """What mends the call, None where no name is clearly meant."""
        is_meant = len(self._near) == 1 and (self._of is None or says_all(self._text, f"{self._near[0]} {self._of}"))
        return self._repair(self._near[0]) if is_meant else None

    def __str__(self) -> str:
        return self.message


def json_or_text(value: Any) -> Any:
    """Return the JSON object or array that a text holds: some clients send those as text."""
    if isinstance(value, str) and value.lstrip()[:1] in ("{", "["):
        try:
            return decode_text(value)
        except TooMuch:
            # The bounds of messages hold for all JSON that comes in.
            raise ToolError(f"The JSON is nested over {MAX_DEPTH} levels or has over {MAX_ITEMS} items.") from None
        except ParseError:
            return value
    return value


def is_short_text(value: Any, limit: int) -> bool:
    """Return whether the value is a text of at most ``limit`` characters that every database takes."""
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
# What is not understood, and how it is written here.
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


# Other names of arguments, and those of them that could mean something else as well.
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
# Where a page begins, which cursors say here, and the values that mean the first one.
_BEGINNINGS: Final[Mapping[str, int]] = {
    **dict.fromkeys(("offset", "skip", "start", "startindex"), 0),
    **dict.fromkeys(("page", "pagenumber", "pageno"), 1),
}


def argument_meant(name: str, known: Collection[str]) -> tuple[str | None, bool]:
    """Return the argument of ``known`` that another name means, None for no such, and whether there is no doubt."""
    plain = letters(name[:MAX_NAME])
    for form in (letters, singular):
        same = [item for item in known if form(item) == form(plain)]
        if same:
            return same[0], len(same) == 1 and plain not in _DOUBTFUL
    found = next((item for item, others in _ARGUMENTS.items() if item in known and plain in others), None)
    return found, plain not in _DOUBTFUL


def starts_at_the_beginning(name: str, value: Any) -> bool:
    """Return whether an argument says where a page begins and means the first one; any page for None."""
    first = _BEGINNINGS.get(letters(name[:MAX_NAME]))
    return first is not None and (value is None or str(value) == str(first))


def lookup_meant(word: str, value: Any, lookups: Collection[str]) -> tuple[str, Any, bool] | None:
    """Return the lookup among ``lookups`` that a word means, its value, and whether it is denied; None for no such.

    A pattern of SQL becomes the lookup that its ``%`` at the ends mean.
    """
    word = _CAMEL.sub("_", word).lower().removeprefix("$").replace(" ", "_")
    lookup, denied = OPERATORS.get(word, word), False
    if word in _DENIED:
        lookup, denied = _DENIED[word], True
    elif word.startswith("not_"):
        lookup, denied = OPERATORS.get(word[4:], word[4:]), True
    if lookup == "like":
        lookup, value = _pattern(value)
    elif lookup == "exact" and isinstance(value, list):
        lookup = "in"
    elif lookup == "isnull" and word in _DENIED and value is False:
        # "Not null: false" is null.
        value, denied = True, False
    elif lookup == "isnull" and word in _DENIED:
        value = True
    allowed = lookup in lookups or (lookup == "exact" and value is None and "isnull" in lookups)
    return (lookup, value, denied) if allowed else None


def _pattern(value: Any) -> tuple[str, Any]:
    if not isinstance(value, str) or "%" in value.strip("%"):
        return "", value
    begins, ends, text = value.startswith("%"), value.endswith("%"), value.strip("%")
    if begins and ends:
        return "icontains", text
    return ("iendswith" if begins else "istartswith" if ends else "iexact"), text


def name_meant(text: str) -> str | None:
    """Return the filter that ``"total >"`` or ``"customer.name"`` means, None where it is spelt as here."""
    if len(text) > MAX_NAME:
        return None
    found = _COMPARED.fullmatch(text) or _SPOKEN.fullmatch(text)
    name, operator = (found[1], f"__{'_'.join(found[2].lower().split())}") if found is not None else (text, "")
    # A bare day compared with a datetime is the whole day.
    name = name.replace(".", "__").replace("__date__", "__") + operator
    return name if name != text else None


def without_value(path: str, value: Any) -> str:
    """Return the column that a filter wants to be null, in whichever of its spellings."""
    column, _, lookup = path.rpartition("__")
    if value is None or value == {"isnull": True}:
        return path
    return column if lookup == "isnull" and str(value).lower() in ("true", "1") else ""


# A comparison within a value or within a whole text, as in SQL or in words.
_WORDED: Final = (
    r"(?:is\s+)?(?P<operator>>=|<=|!=|<>|==|=|>|<|!|before|after|since|until|from|not|at\s+least|at\s+most|"
    r"(?:more|greater|less)\s+than|over|under|like|ilike)"
)
_VALUE: Final = re.compile(rf"{_WORDED}\s*(?P<value>\S.*)", re.IGNORECASE | re.DOTALL)
_BETWEEN: Final = re.compile(
    r"(?:between\s+|from\s+)?(?P<first>\S+)(?:\s+(?:and|to|until)\s+|\s*\.\.+\s*|\s*/\s*)(?P<last>\S+)", re.IGNORECASE
)
_TERM: Final = re.compile(
    r"\s*\(?\s*(?P<name>[\w.]+)\s*(?P<operator>>=|<=|!=|<>|==|=|>|<|\s(?:not\s+)?(?:like|ilike|in)\b|\sis(?:\s+not)?\b)"
    r"\s*(?P<value>'[^']*'|\"[^\"]*\"|\([^()]*\)|[^\s()'\"]+)\s*\)?\s*",
    re.IGNORECASE,
)
_AMOUNT: Final = re.compile(
    r"[$€£]?\s*(?P<number>-?(?:[0-9]{1,3}(?:,[0-9]{3})+(?:\.[0-9]+)?|[0-9]+(?:\.[0-9]+)?|[0-9]+,[0-9]{1,2}))\s*"
    r"(?:[$€£%]|[A-Za-z]{3})?"
)
_TRUTH: Final[Mapping[str, bool]] = {
    **dict.fromkeys(("true", "yes", "y", "on", "1", "t"), True),
    **dict.fromkeys(("false", "no", "n", "off", "0", "f"), False),
}
_COUNTED: Final = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")


def values_meant(value: Any) -> Iterator[tuple[str, Any]]:
    """Yield what a value that does not fit may say: a lookup, "" for that of the filter, and the value for it."""
    if not isinstance(value, str) or len(value) > MAX_NAME:
        return
    text = value.strip()
    opened = json_or_text(text.replace("'", '"') if text[:1] in ("[", "{") else text)
    if isinstance(opened, list):
        yield "in", opened
    elif isinstance(opened, dict) and len(opened) == 1:
        yield next(iter(opened.items()))
    if found := _VALUE.fullmatch(text):
        operator = "_".join(found["operator"].lower().split())
        yield "!=" if operator == "!" else operator, _unquoted(found["value"])
    if found := _BETWEEN.fullmatch(text):
        yield "range", [found["first"], found["last"]]
    if ((found := _AMOUNT.fullmatch(text)) and found["number"] != text) or (found and "," in text):
        number = found["number"]
        yield "", number.replace(",", ".") if re.fullmatch("-?[0-9]+,[0-9]{1,2}", number) else number.replace(",", "")
    elif "," in text:
        yield "in", [part.strip() for part in text.split(",")]
    if text.lower() in _TRUTH:
        yield "", _TRUTH[text.lower()]
    if text.lower() in _COUNTED:
        yield "", _COUNTED.index(text.lower())
    if text.lower() in ("null", "none", "nil", "empty"):
        yield "isnull", True
    if len(text) > 1 and text[0] == text[-1] and text[0] in "'\"":
        yield "", text[1:-1]
    if text.endswith("()"):
        yield "", text[:-2]


def _unquoted(text: str) -> str:
    return text[1:-1] if len(text) > 1 and text[0] == text[-1] and text[0] in "'\"" else text


def filters_meant(given: Any) -> dict[str, Any] | None:
    """Return the object that filters of another form mean: ``total > 5 and status = 'paid'``, or ``["total", ">", 5]``.

    None stands for anything else, and for what has ``or`` or brackets within it.
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
        name, operator, value = term["name"], "_".join(term["operator"].lower().split()), term["value"]
        if value.startswith("("):
            values: Any = [_unquoted(item.strip()) for item in value[1:-1].split(",")]
        elif value.lower() == "null" and operator in ("is", "is_not"):
            operator, values = "isnull", operator == "is"
        else:
            values = _unquoted(value)
        key = _named(name, operator)
        if key in found:
            return None
        found[key] = values
    return found or None


# Members of an aggregate as an object, and its functions, in other words.
_MEMBERS: Final[Mapping[str, str]] = {
    **dict.fromkeys(("func", "fn", "op", "operation", "operator", "agg", "aggregate", "type"), "function"),
    **dict.fromkeys(("column", "expression", "of", "on"), "field"),
    **dict.fromkeys(("alias", "name", "title", "label"), "as"),
    **dict.fromkeys(("filter", "filters", "condition"), "where"),
}
_FUNCTIONS: Final[Mapping[str, str]] = {
    **dict.fromkeys(("average", "mean"), "avg"),
    **dict.fromkeys(("total", "add", "sum_of"), "sum"),
    **dict.fromkeys(("maximum", "largest", "highest", "latest"), "max"),
    **dict.fromkeys(("minimum", "smallest", "lowest", "earliest"), "min"),
    **dict.fromkeys(
        ("countdistinct", "distinct", "distinct_count", "unique", "nunique", "count_unique"), "count_distinct"
    ),
    **dict.fromkeys(("num", "number", "rows", "size"), "count"),
    **dict.fromkeys(("std", "stdev", "standard_deviation"), "stddev"),
    **dict.fromkeys(("var",), "variance"),
}


_GROUP: Final = re.compile(r"(?P<period>\w+)\((?P<name>[\w.]+)\)|(?P<field>[\w.]+)\s+(?:by|per)\s+(?P<unit>\w+)")


def group_meant(text: str, periods: Collection[str]) -> str:
    """Return ``created:month`` for ``month(created)`` or ``created by month``; any other text as it is."""
    found = _GROUP.fullmatch(text.strip()) if len(text) <= MAX_NAME else None
    if found is None:
        return text
    name, period = found["name"] or found["field"], (found["period"] or found["unit"]).lower()
    return f"{name}:{period}" if period in periods else text


def aggregate_meant(name: str) -> str:
    """Return the function of an aggregate that another name means, or the name itself."""
    return _FUNCTIONS.get(name, name)


def as_aggregate(given: Mapping[str, Any], functions: Collection[str]) -> Mapping[str, Any]:
    """Return ``{"function": "sum", "field": "total"}`` for ``{"sum": "total"}`` or ``{"op": "sum", "of": "total"}``."""
    found: dict[str, Any] = {}
    for key, value in given.items():
        if key in functions and isinstance(value, str) and "function" not in given:
            found |= {"function": key, "field": value}
        else:
            name = _MEMBERS.get(key, key)
            found[key if name in given or name in found else name] = value
    return found


def as_conditions(value: Any) -> Any:
    """Return the object that a list of conditions means, all of which have to hold; anything else as it is."""
    if isinstance(value, list) and value and all(isinstance(item, dict) for item in value):
        return {"and": value} if len(value) > 1 else value[0]
    return value


def order_texts(value: Any) -> Any:
    """Return the names that objects such as ``{"created": "desc"}`` mean, in a list; anything else as it is."""
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
    return f"{name} {way}" if isinstance(way, str) and way.lower() in WAYS else None


def order_meant(text: str) -> str:
    """Return ``-created:nulls_last`` for ``"created DESC NULLS LAST"``; a text that says nothing so as it is."""
    found = _ORDER.fullmatch(text) if len(text) <= MAX_NAME else None
    if found is None:
        return text
    down = found["sign"] == "-" or (found["way"] or "").lower().startswith("desc")
    place = f":nulls_{found['place'].lower()}" if found["place"] else ""
    return f"{'-' if down else ''}{found['name'].replace('.', '__')}{place}"
