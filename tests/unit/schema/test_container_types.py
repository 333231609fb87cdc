"""Arrays, objects, alternatives and rows."""

import json
from types import SimpleNamespace
from typing import Any

import pytest
from django.core.exceptions import ImproperlyConfigured, ValidationError

from mcp_django.exceptions import NotFound
from mcp_django.schema.container_types import MISSING, AnyOf, Array, Dictionary, Nullable, Object, Parameter, Row, Tuple
from mcp_django.schema.value_types import Anything, Choice, Integer, Invalid, String, Type
from tests.testapp.models import Author, Profile, Section, Shelf

POINT = Object((Parameter("x", Integer()), Parameter("y", Integer(), False, 0)))
FLAG = Choice((("a", "A"),))


class Site:
    """Knows one author, and which keys it was asked for."""

    def __init__(self) -> None:
        self.asked: list[Any] = []

    def get_object(self, request: Any, model: Any, pk: Any) -> Any:
        self.asked.append(pk)
        if pk not in (7, "7"):
            raise NotFound
        return Author(pk=7, name="Ada")


@pytest.fixture
def request_() -> Any:
    return SimpleNamespace(mcp=SimpleNamespace(site=Site()))


def convert(kind: Type, value: Any, request: Any = None) -> Any:
    return kind.convert(value, request)


def problems(kind: Type, value: Any, request: Any = None) -> list[tuple[str, str]]:
    with pytest.raises(Invalid) as caught:
        kind.convert(value, request)
    return caught.value.problems


@pytest.mark.parametrize(
    ("kind", "value", "expected"),
    [
        (Array(Integer()), [1, "2"], [1, 2]),
        (Array(Integer()), "[1, 2]", [1, 2]),
        (Array(Integer(), set), [1, 1], {1}),
        (Array(Integer(), tuple), [], ()),
        (Tuple((Integer(), String())), [1, "a"], (1, "a")),
        (Dictionary(Integer()), {"a": "1"}, {"a": 1}),
        (Dictionary(Integer()), ' {"a": 1}', {"a": 1}),
        (Dictionary(Anything()), {"__proto__": 1, "self": 2}, {"__proto__": 1, "self": 2}),
        (POINT, {"x": 1}, {"x": 1}),
        (POINT, '{"x": 1, "y": 2}', {"x": 1, "y": 2}),
        (POINT, {"x": 1, "y": None}, {"x": 1}),
        (Nullable(Integer()), None, None),
        (Nullable(Integer()), "1", 1),
        (AnyOf((Integer(), String())), "5", "5"),
        (AnyOf((String(), Integer())), 5, 5),
        (AnyOf((Integer(), Array(Integer()))), "[1]", [1]),
    ],
)
def test_values_are_read(kind: Type, value: Any, expected: Any) -> None:
    found = convert(kind, value)
    assert found == expected
    assert type(found) is type(expected)


@pytest.mark.parametrize(
    ("kind", "value", "expected"),
    [
        (Array(Integer()), [1, "x", True], [("[1]", "expected an integer"), ("[2]", "expected an integer")]),
        (Array(Integer()), "1,2", [("", "expected an array")]),
        (Array(Integer()), "[1", [("", "expected an array")]),
        (Array(Integer()), "[NaN]", [("", "expected an array")]),
        (Array(Integer()), "[" * 100_000, [("", "expected an array")]),
        (Array(Integer()), '["\ud800"]', [("", "expected an array")]),
        (Array(Integer(), min_items=2), [1], [("", "must have at least 2 items, got 1")]),
        (Array(Integer(), max_items=1), [1, 2], [("", "must have at most 1 items, got 2")]),
        (Tuple((Integer(),)), [1, 2], [("", "expected an array of 1 items")]),
        (Tuple((Integer(), Integer())), [1, "x"], [("[1]", "expected an integer")]),
        (Dictionary(Integer()), {"a": "x"}, [('["a"]', "expected an integer")]),
        (Dictionary(Integer()), [1], [("", "expected an object")]),
        (Dictionary(Anything()), '{"a": 1, "a": 2}', [("", "expected an object")]),
        (POINT, {}, [("x", "missing")]),
        (POINT, {"x": None}, [("x", "expected an integer, got null")]),
        (POINT, {"x": 1, "yy": 2}, [("yy", "unknown, did you mean y?")]),
        (POINT, {"x": 1, "__class__": 2}, [("__class__", "unknown")]),
        (Array(POINT), [{"x": "a"}], [("[0].x", "expected an integer")]),
        (Object((Parameter("p", POINT),)), {"p": {"x": "a"}}, [("p.x", "expected an integer")]),
        (AnyOf((Integer(), FLAG)), "b", [("", 'expected an integer or one of "a", got "b"')]),
        (Nullable(Integer()), "x", [("", "expected an integer")]),
    ],
)
def test_85_everything_wrong_is_named_with_its_place(kind: Type, value: Any, expected: list[tuple[str, str]]) -> None:
    found = problems(kind, value)
    assert [path for path, _ in found] == [path for path, _ in expected]
    for (_, text), (_, start) in zip(found, expected, strict=True):
        assert text.startswith(start)


def test_many_and_long_unknown_names_are_reported_in_short() -> None:
    found = problems(POINT, {"x": 1, **{f"{'n' * 10_000}{number}": 1 for number in range(1000)}})
    assert len(found) == 5
    assert all(len(path) <= 64 for path, _ in found)


def failing(error: Exception) -> Object:
    def build(**values: Any) -> Any:
        raise error

    return Object((), build)


@pytest.mark.parametrize("error", [ValueError("x is too far"), ValidationError("x is too far")])
def test_a_class_may_refuse_its_members(error: Exception) -> None:
    assert problems(failing(error), {}) == [("", "x is too far")]


@pytest.mark.parametrize(
    ("kind", "schema", "words"),
    [
        (
            Array(Integer(1), max_items=3),
            {"type": "array", "items": {"type": "integer", "minimum": 1}, "maxItems": 3},
            "at most 3 items; each: at least 1",
        ),
        (
            Tuple((Integer(), Integer())),
            {"type": "array", "items": {"type": "integer"}, "minItems": 2, "maxItems": 2},
            "an array of 2 items (an integer, an integer)",
        ),
        (
            Tuple((Integer(), String())),
            {
                "type": "array",
                "items": {"anyOf": [{"type": "integer"}, {"type": "string"}]},
                "minItems": 2,
                "maxItems": 2,
            },
            "an array of 2 items (an integer, a string)",
        ),
        (Dictionary(Anything()), {"type": "object", "additionalProperties": True}, ""),
        (Nullable(Integer(1)), {"anyOf": [{"type": "integer", "minimum": 1}, {"type": "null"}]}, "at least 1"),
        (Nullable(FLAG), {"anyOf": [{"type": "string", "enum": ["a"]}, {"type": "null"}]}, ""),
        (Nullable(Anything()), {}, ""),
        (
            Nullable(AnyOf((Integer(), String(max_length=2)))),
            {"anyOf": [{"type": "integer"}, {"type": "string", "maxLength": 2}, {"type": "null"}]},
            "at most 2 characters",
        ),
        (
            POINT,
            {
                "type": "object",
                "properties": {
                    "x": {"type": "integer"},
                    "y": {"type": "integer", "default": 0, "description": "(default 0)"},
                },
                "required": ["x"],
                "additionalProperties": False,
            },
            "",
        ),
        (Row(Author), {"type": "integer"}, "primary key of testapp.author"),
        (Row(Profile), {"type": "integer"}, "primary key of testapp.profile"),
        (Row(Shelf), {"type": "string"}, "primary key of testapp.shelf"),
        (Row(Section), {"type": "string"}, "primary key of testapp.section"),
        (
            Array(Row(Author)),
            {"type": "array", "items": {"type": "integer"}, "maxItems": 100},
            "at most 100 items; each: primary key of testapp.author",
        ),
    ],
)
def test_R18_schemas_are_inline_and_arrays_have_items(kind: Type, schema: dict[str, Any], words: str) -> None:
    assert (kind.schema(), kind.words()) == (schema, words)


def test_a_parameter_says_its_constraints_and_default_in_words() -> None:
    described = Parameter("n", Integer(1, 100), False, 20, "Rows of a page.", {"x-mcp-header": "N"})
    assert described.schema() == {
        "type": "integer",
        "minimum": 1,
        "maximum": 100,
        "default": 20,
        "x-mcp-header": "N",
        "description": "Rows of a page. (1 to 100, default 20)",
    }
    assert Parameter("n", Nullable(Integer()), False, None).schema() == {"type": "integer"}
    assert Parameter("n", Nullable(Integer()), False, 5).schema()["anyOf"] == [{"type": "integer"}, {"type": "null"}]
    assert Parameter("n", String(), False, MISSING, "Text.").schema() == {"type": "string", "description": "Text."}


@pytest.mark.parametrize("value", [7, "7"])
def test_a_row_is_found_through_the_site(request_: Any, value: Any) -> None:
    assert convert(Row(Author), value, request_).name == "Ada"
    assert request_.mcp.site.asked == [value]


@pytest.mark.parametrize("value", [8, "x", "1; DROP TABLE", "9" * 5000])
def test_a_row_that_the_caller_may_not_see_is_not_there(request_: Any, value: Any) -> None:
    [(path, text)] = problems(Row(Author), value, request_)
    assert path == ""
    assert text.startswith("no author with pk ")
    assert len(text) < 100


@pytest.mark.parametrize("value", [True, None, 1.5, [7], {"pk": 7}])
def test_what_is_no_key_is_not_looked_up(request_: Any, value: Any) -> None:
    [(_, text)] = problems(Row(Author), value, request_)
    assert text.startswith("expected the primary key of a author")
    assert request_.mcp.site.asked == []


def test_no_more_rows_are_looked_up_than_a_call_may_cost(request_: Any) -> None:
    assert problems(Array(Row(Author)), list(range(101)), request_) == [("", "must have at most 100 items, got 101")]
    assert request_.mcp.site.asked == []


@pytest.mark.parametrize(
    "kind",
    [
        Row(Author),
        Array(Row(Author)),
        Tuple((Integer(), Row(Author))),
        Dictionary(Row(Author)),
        Nullable(Row(Author)),
        AnyOf((Integer(), Row(Author))),
        Object((Parameter("a", Row(Author)),)),
    ],
)
def test_rows_need_the_database_wherever_they_stand(kind: Type) -> None:
    assert kind.needs_database
    assert not Array(Integer()).needs_database


def test_limits_reach_the_type_that_may_be_null() -> None:
    assert Nullable(Integer()).limited({"minimum": 1}) == Nullable(Integer(1))
    assert Array(Integer()).limited({"max_items": 2}) == Array(Integer(), max_items=2)
    with pytest.raises(ImproperlyConfigured):
        Nullable(Integer()).limited({"max_length": 1})
    with pytest.raises(ImproperlyConfigured):
        AnyOf((Integer(), String())).limited({"minimum": 1})


def test_json_text_of_a_string_is_left_alone_where_text_is_wanted() -> None:
    assert convert(String(), json.dumps({"a": 1})) == '{"a": 1}'
