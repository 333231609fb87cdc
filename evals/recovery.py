"""Recovery: each golden call is made wrong in twelve ways, and a mechanical client mends it by what the error says.

:func:`mutations` makes the wrong calls of one call, always the same ones. :func:`measure` sends them; where one is
refused, the client applies what it was told and nothing else: the call in ``next``, or else the only name after "Did
you mean". Then the values of the answer are compared with those of the golden call.
"""

import json
import random
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import date
from typing import Any, Final

Arguments = dict[str, Any]
# Takes a tool and its arguments, and gives the response: ``{"result": ...}``, or ``{"error": ...}``, of JSON-RPC.
Send = Callable[[str, Arguments], Mapping[str, Any]]

WAYS: Final = (
    "misspelt field",
    "label for key",
    "dots",
    "camelCase",
    "SQL operator",
    "wrong type",
    "plural model",
    "date in words",
    "missing required",
    "JSON in a string",
    "too many rows",
    "unknown tool",
)
BAR: Final = 0.95
MANY: Final = 100_000
OPERATORS: Final[Mapping[str, str]] = {"gt": ">", "gte": ">=", "lt": "<", "lte": "<=", "ne": "!="}
LOOKUPS: Final = frozenset(
    {*OPERATORS, "exact", "in", "range", "isnull", "contains", "icontains", "startswith", "istartswith", "endswith"}
)
QUANTIFIERS: Final = frozenset({"some", "none", "every", "count", "where", "and", "or", "not"})
FUNCTIONS: Final = frozenset({"ratio", "difference", "percent_of_total", "change"})
_DAY: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_MONTH: Final = re.compile(r"([0-9]{4})-([0-9]{2})")
_WORD: Final = re.compile(r"[a-z]+(?:_[a-z]+)*")
_MEANT: Final = re.compile(r"Did you mean (.+?)\? ")
MONTHS: Final = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
]


def mutations(call: Mapping[str, Any]) -> Iterator[tuple[str, Arguments]]:
    """Yield the wrong calls that a golden call ``{"tool", "arguments"}`` gives, each with the way it was made wrong.

    A wrong call has the members of the golden one. What a way needs and the call has not is left out: a call without
    dates is not given one in words.
    """
    for number, way in enumerate(WAYS):
        chance = random.Random(f"{number}:{json.dumps(call, sort_keys=True)}")
        copy = json.loads(json.dumps({"tool": call["tool"], "arguments": call["arguments"]}))
        wrong = _MUTATIONS[way](copy, chance)
        if wrong is not None and wrong != {"tool": call["tool"], "arguments": call["arguments"]}:
            yield way, wrong


# Places where a name or a value stands


@dataclass(frozen=True)
class _Place:
    """Something within the arguments: ``text`` as it is, and ``put``, which puts something else there."""

    text: Any
    put: Callable[[Any], None]
    key: str = ""


def _put(container: Any, key: Any) -> Callable[[Any], None]:
    def put(value: Any) -> None:
        container[key] = value

    return put


def _rename(container: dict[str, Any], old: str) -> Callable[[Any], None]:
    def put(new: Any) -> None:
        items = [(new if key == old else key, value) for key, value in container.items()]
        container.clear()
        container.update(items)

    return put


def _conditions(filters: Any) -> Iterator[tuple[dict[str, Any], str]]:
    """Yield each object and key that stands for a condition."""
    if isinstance(filters, list):
        for item in filters:
            yield from _conditions(item)
    elif isinstance(filters, dict):
        for key, value in list(filters.items()):
            if key.partition("__")[0] not in QUANTIFIERS and key not in LOOKUPS and not _is_field(filters):
                yield filters, key
            if isinstance(value, dict | list):
                yield from _conditions(value)


def _is_field(value: dict[str, Any]) -> bool:
    """Return whether an object is no condition but another field that is compared with."""
    return "field" in value


def _all_conditions(arguments: Arguments) -> list[tuple[dict[str, Any], str]]:
    found = list(_conditions(arguments.get("filters")))
    for item in _list(arguments.get("aggregates")):
        if isinstance(item, dict) and isinstance(item.get("where"), dict):
            found += _conditions(item["where"])
    return found


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _fields(arguments: Arguments) -> list[_Place]:
    """Return the places where paths of fields stand."""
    found = [_Place(key, _rename(holder, key)) for holder, key in _all_conditions(arguments)]
    for name in ("fields", "group_by", "ordering"):
        if name == "ordering" and ("aggregates" in arguments or "group_by" in arguments):
            continue
        items = _list(arguments.get(name))
        found += [_Place(text, _put(items, position)) for position, text in enumerate(items) if isinstance(text, str)]
    items = _list(arguments.get("aggregates"))
    for position, item in enumerate(items):
        if isinstance(item, str) and ":" in item and item.partition(":")[0] not in FUNCTIONS:
            found.append(_Place(item, _put(items, position)))
        elif isinstance(item, dict) and isinstance(item.get("field"), str):
            found.append(_Place(item["field"], _put(item, "field")))
    return found


def _words(text: str) -> list[tuple[int, int]]:
    """Return where the names of fields are in a path, an aggregate or an order: no functions, lookups or periods."""
    start = text.index(":") + 1 if re.match(r"[a-z_]+:[^0-9]", text) and text.partition(":")[0] in _AGGREGATES else 0
    found = []
    for match in re.finditer(r"[a-z]+(?:_[a-z]+)*", text[start:]):
        first, last = match.start() + start, match.end() + start
        before = text[:first]
        is_suffix = before.endswith(":") and start == 0
        if text[first:last] not in LOOKUPS and not is_suffix:
            found.append((first, last))
    return found


_AGGREGATES: Final = frozenset(
    {"count", "count_distinct", "sum", "avg", "min", "max", "median", "percentile", "stddev", "variance"}
)


# The twelve ways


def _misspelt(call: Arguments, chance: random.Random) -> Arguments | None:
    places = [
        (place, first, last)
        for place in _fields(call["arguments"])
        for first, last in _words(place.text)
        if last - first >= 5
    ]
    if not places:
        return None
    place, first, last = chance.choice(places)
    word, at = place.text[first:last], chance.randrange(1, last - first - 1)
    kind = chance.randrange(3)
    wrong = (
        word[:at] + word[at + 1 :]
        if kind == 0
        else word[:at] + word[at + 1] + word[at] + word[at + 2 :]
        if kind == 1
        else word[:at] + word[at] + word[at:]
    )
    place.put(place.text[:first] + wrong + place.text[last:])
    return call


def _label(call: Arguments, chance: random.Random) -> Arguments | None:
    """Write the label of a choice, or of a related row, for its key: in capitals, as people see it."""
    places = []
    for holder, key in _all_conditions(call["arguments"]):
        value = holder[key]
        if isinstance(value, str) and _WORD.fullmatch(value) and "__" not in key.replace("__in", ""):
            places.append(_Place(value, _put(holder, key)))
        items = _list(value)
        places += [
            _Place(item, _put(items, position))
            for position, item in enumerate(items)
            if isinstance(item, str) and _WORD.fullmatch(item)
        ]
    if not places:
        return None
    place = chance.choice(places)
    place.put(place.text.replace("_", " ").capitalize())
    return call


def _dots(call: Arguments, chance: random.Random) -> Arguments | None:
    """Write dots for underscores, or underscores for dots, or one underscore for two."""
    places = [
        place for place in _fields(call["arguments"]) if "__" in place.text or re.search(r"[a-z]\.[a-z]", place.text)
    ]
    if not places:
        return None
    place = chance.choice(places)
    dotted = place.text.replace("__", ".")
    place.put(dotted if dotted != place.text else re.sub(r"(?<=[a-z])\.(?=[a-z])", chance.choice(["__", "_"]), dotted))
    return call


def _camel(text: str) -> str:
    return re.sub(r"[_.]+([a-z])", lambda found: found[1].upper(), text)


def _camel_case(call: Arguments, chance: random.Random) -> Arguments | None:
    arguments = call["arguments"]
    places = [_Place(key, _rename(arguments, key)) for key in arguments]
    places += _fields(arguments)
    places = [place for place in places if "*" not in place.text and _camel(place.text) != place.text]
    if not places:
        return None
    place = chance.choice(places)
    head, colon, tail = place.text.partition(":")
    if colon and head in _AGGREGATES:
        place.put(f"{head}:{_camel(tail)}")
    else:
        place.put(f"{_camel(head)}{colon}{tail}")
    return call


def _sql(call: Arguments, chance: random.Random) -> Arguments | None:
    """Write a condition as SQL does: the operator after the name, in an object, before the value, or all as a text."""
    places = [
        (holder, key, lookup)
        for holder, key in _all_conditions(call["arguments"])
        for lookup in [key.rpartition("__")[2]]
        if not isinstance(holder[key], dict | list) and (lookup in OPERATORS or lookup not in LOOKUPS)
    ]
    if not places:
        return None
    holder, key, lookup = chance.choice(places)
    value, name = holder[key], key.removesuffix(f"__{lookup}") if lookup in OPERATORS else key
    operator = OPERATORS.get(lookup, "=")
    filters = call["arguments"].get("filters")
    is_alone = holder is filters and len(filters) == 1 and isinstance(value, str | int | float)
    kind = chance.randrange(4 if is_alone and not isinstance(value, bool) else 3)
    if kind == 0:
        _rename(holder, key)(f"{name} {operator}")
    elif kind == 1:
        items = [(name, {operator: value}) if item == key else (item, holder[item]) for item in holder]
        holder.clear()
        holder.update(items)
    elif kind == 2 and operator != "=" and isinstance(value, str | int | float):
        _rename(holder, key)(name)
        holder[name] = f"{operator}{value}"
    elif kind == 3:
        quoted = f"'{value}'" if isinstance(value, str) else value
        call["arguments"]["filters"] = f"{name} {operator} {quoted}"
    else:
        _rename(holder, key)(f"{name}__{operator}")
    return call


def _wrong_type(call: Arguments, chance: random.Random) -> Arguments | None:
    """Write numbers and booleans as texts, and lists as texts or single values as lists."""
    arguments = call["arguments"]
    places = [_Place(value, _put(arguments, key), key) for key, value in arguments.items()]
    for holder, key in _all_conditions(arguments):
        places.append(_Place(holder[key], _put(holder, key)))
    choices: list[tuple[_Place, Any]] = []
    for place in places:
        value = place.text
        if isinstance(value, bool):
            choices.append((place, chance.choice([str(value).lower(), "yes" if value else "no"])))
        elif isinstance(value, int | float):
            choices.append((place, str(value)))
        elif place.key in ("fields", "group_by", "ordering") and all(isinstance(item, str) for item in value):
            choices.append((place, ",".join(value)))
        elif place.key == "pk" and isinstance(value, str) and value.isdigit():
            choices.append((place, int(value)))
    if not choices:
        return None
    place, wrong = chance.choice(choices)
    place.put(wrong)
    return call


def _plural(call: Arguments, chance: random.Random) -> Arguments | None:
    model = call["arguments"].get("model")
    if not isinstance(model, str) or "." not in model or "," in model:
        return None
    app, _, name = model.partition(".")
    plural = f"{name[:-1]}ies" if name.endswith("y") else f"{name}s"
    forms = [plural, plural.capitalize(), f"{app}.{plural}", name, name.capitalize()]
    call["arguments"]["model"] = chance.choice(forms)
    return call


def _date_in_words(call: Arguments, chance: random.Random) -> Arguments | None:
    """Write a day or a month with its name, and relative dates as people say them."""
    places = []
    for holder, key in _all_conditions(call["arguments"]):
        value = holder[key]
        places.append(_Place(value, _put(holder, key)))
        if isinstance(value, dict):
            places += [_Place(item, _put(value, lookup)) for lookup, item in value.items()]
        items = _list(value)
        places += [_Place(item, _put(items, position)) for position, item in enumerate(items)]
    worded = [(place, text) for place in places if isinstance(place.text, str) for text in _date_words(place.text)]
    if not worded:
        return None
    place, text = chance.choice(worded)
    place.put(text)
    return call


def _date_words(text: str) -> list[str]:
    if _DAY.fullmatch(text):
        day = date.fromisoformat(text)
        month = MONTHS[day.month - 1]
        return [
            f"{month} {day.day}, {day.year}",
            f"{day.day} {month[:3]} {day.year}",
            f"the {day.day}th of {month} {day.year}",
        ]
    if found := _MONTH.fullmatch(text):
        month = MONTHS[int(found[2]) - 1]
        return [f"{month} {found[1]}", f"in {month[:3]} {found[1]}"]
    if found := re.fullmatch(r"(?:today|now)-([0-9]+)([dwmy])", text):
        unit = {"d": "days", "w": "weeks", "m": "months", "y": "years"}[found[2]]
        return [f"{found[1]} {unit} ago"]
    if re.fullmatch(r"(last|this) (week|month|quarter|year)", text):
        return [text.title(), f"in {text}", f"the {text}"]
    if re.fullmatch(r"last [0-9]+ [a-z]+", text):
        return [text.replace("last", "past"), f"in the {text}"]
    return []


def _missing(call: Arguments, chance: random.Random) -> Arguments | None:
    if "model" not in call["arguments"]:
        return None
    del call["arguments"]["model"]
    return call


def _json(call: Arguments, chance: random.Random) -> Arguments | None:
    arguments = call["arguments"]
    places = [_Place(value, _put(arguments, key)) for key, value in arguments.items() if isinstance(value, dict | list)]
    places += [
        _Place(holder[key], _put(holder, key))
        for holder, key in _all_conditions(arguments)
        if isinstance(holder[key], list) and key.endswith("__in")
    ]
    items = _list(arguments.get("aggregates"))
    places += [_Place(item, _put(items, position)) for position, item in enumerate(items) if isinstance(item, dict)]
    if not places:
        return None
    place = chance.choice(places)
    place.put(json.dumps(place.text))
    return call


def _too_many(call: Arguments, chance: random.Random) -> Arguments | None:
    if call["tool"] not in ("query_records", "aggregate_records"):
        return None
    call["arguments"]["limit"] = MANY
    return call


def _unknown_tool(call: Arguments, chance: random.Random) -> Arguments | None:
    name = call["tool"]
    call["tool"] = chance.choice(
        [name.removesuffix("s"), _camel(name), name.replace("_", "-"), f"{name}s", f"shop__{name}"]
    )
    return call if call["tool"] != name else {**call, "tool": _camel(name)}


_MUTATIONS: Final[Mapping[str, Callable[[Arguments, random.Random], Arguments | None]]] = dict(
    zip(
        WAYS,
        (
            _misspelt,
            _label,
            _dots,
            _camel_case,
            _sql,
            _wrong_type,
            _plural,
            _date_in_words,
            _missing,
            _json,
            _too_many,
            _unknown_tool,
        ),
        strict=True,
    )
)


# The mechanical client


def values_of(send: Send, call: Mapping[str, Any]) -> Any:
    """Return the values of a golden call.

    Raises:
        ValueError: it is refused.
    """
    answer = send(call["tool"], call["arguments"])
    if (said := _refusal(answer)) is not None:
        raise ValueError(f"The golden call {json.dumps(call)} is refused: {said}")
    return _values(answer)


def attempt(send: Send, golden: Any, wrong: Mapping[str, Any]) -> str | None:
    """Return why the wrong call does not give the ``golden`` values, None where it does."""
    answer = send(wrong["tool"], wrong["arguments"])
    said = _refusal(answer)
    if said is not None:
        following = _following(wrong, answer, said)
        if following is None:
            return f"nothing to go on: {said}"
        answer = send(following["tool"], following["arguments"])
        again = _refusal(answer)
        if again is not None:
            return f"refused again: {said} / {json.dumps(following)} / {again}"
    found = _values(answer)
    if wrong["arguments"].get("limit") == MANY and isinstance(found, list) and isinstance(golden, list):
        found = found[: len(golden)]
    return None if found == golden else f"other values: {json.dumps(found)[:200]} for {json.dumps(golden)[:200]}"


def _refusal(answer: Mapping[str, Any]) -> str | None:
    """Return what the error says to a model, None for a result."""
    if "error" in answer:
        return str(answer["error"]["message"])
    result = answer["result"]
    return str(result["content"][0]["text"]) if result.get("isError") else None


def _following(wrong: Mapping[str, Any], answer: Mapping[str, Any], said: str) -> Mapping[str, Any] | None:
    """Return the call that the error tells to make, None where it tells none."""
    proposed = answer.get("error", {}).get("data") or {}
    if "next" in proposed:
        return dict(proposed["next"])
    _, found, line = said.rpartition("\nnext: ")
    if found:
        return dict(json.loads(line))
    meant = _MEANT.findall(f"{said} ")
    quoted = re.findall(r"'([^']*)'", said)
    if len(meant) != 1 or " or " in meant[0] or not quoted:
        return None
    text = json.dumps({"tool": wrong["tool"], "arguments": wrong["arguments"]})
    mended = text.replace(f'"{quoted[0]}"', f'"{meant[0]}"')
    return dict(json.loads(mended)) if mended != text else None


def _values(answer: Mapping[str, Any]) -> Any:
    """Return what a result says, without what differs from call to call."""
    content = answer["result"].get("structuredContent") or json.loads(answer["result"]["content"][0]["text"])
    if "rows" in content:
        return [list(row) for row in content["rows"]]
    return {name: value for name, value in content.items() if name not in ("next_cursor", "hint", "version")}


@dataclass
class Score:
    """How many wrong calls there were of each way, how many were mended, and why the others were not."""

    tried: Counter[str] = field(default_factory=Counter)
    right: Counter[str] = field(default_factory=Counter)
    failures: list[tuple[str, Mapping[str, Any], str]] = field(default_factory=list)

    @property
    def share(self) -> float:
        """The share of all that were mended."""
        return self.right.total() / max(1, self.tried.total())


def measure(send: Send, calls: Iterable[Mapping[str, Any]]) -> Score:
    """Return how the wrong calls of golden calls are mended.

    ``send`` takes a tool and its arguments and gives the JSON-RPC response. Of a wrong call with another limit, the
    values that come first are compared.
    """
    score = Score()
    for call in calls:
        golden = values_of(send, call)
        for way, wrong in mutations(call):
            score.tried[way] += 1
            reason = attempt(send, golden, wrong)
            if reason is None:
                score.right[way] += 1
            else:
                score.failures.append((way, wrong, reason))
    return score
