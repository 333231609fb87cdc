"""Prompts made of functions."""

from collections.abc import Callable
from datetime import date
from decimal import Decimal
from enum import Enum
from types import SimpleNamespace
from typing import Any, ClassVar, Literal

import pytest
from django.core.exceptions import ImproperlyConfigured, PermissionDenied

from mcp_django.context.call_record import CallRecord
from mcp_django.exceptions import NotFound, ToolError
from mcp_django.protocol.content import EmbeddedResource, Image
from mcp_django.protocol.errors import InvalidParams
from mcp_django.resources.prompts import Message, Prompt
from tests.testapp.models import Author


class Tone(Enum):
    DRY = "dry"
    KIND = "kind"


class Site:
    exposures: ClassVar[dict[Any, Any]] = {}

    def get_object(self, request: Any, model: Any, pk: Any) -> Any:
        if pk != "7":
            raise NotFound
        return Author(pk=7, name="Ada")


REQUEST: Any = SimpleNamespace(
    mcp=SimpleNamespace(site=Site(), record=CallRecord(), approvals=None),
    user=SimpleNamespace(has_perms=lambda wanted: False),
)


def review(request: Any, author: Author, since: date | None = None, tone: Literal["dry", "kind"] = "kind") -> str:
    """Review an author.

    Args:
        author: Whom.
    """
    return f"{author.name} since {since} in a {tone} tone"


def text_of(function: Callable[..., Any], **arguments: str) -> str:
    result = Prompt(function, name="prompt").get(REQUEST, arguments)
    assert isinstance(result, dict)
    [message] = result["messages"]
    return str(message["content"]["text"])


def test_a_definition_lists_the_arguments_in_words() -> None:
    assert Prompt(review).definition() == {
        "name": "review",
        "title": "Review",
        "description": "Review an author.",
        "arguments": [
            {"name": "author", "required": True, "description": "Whom. (primary key of testapp.author)"},
            {"name": "since", "required": False, "description": "(ISO 8601 date, such as 2026-07-28)"},
            {"name": "tone", "required": False, "description": '(default "kind") One of: dry, kind.'},
        ],
    }


def test_a_prompt_without_texts_and_arguments_has_no_empty_keys() -> None:
    assert Prompt(lambda request: "", name="hello").definition() == {"name": "hello", "title": "Hello"}


def test_strings_are_read_as_the_annotations_say() -> None:
    assert text_of(review, author="7", since="2026-07-28", tone="dry") == "Ada since 2026-07-28 in a dry tone"


@pytest.mark.parametrize(
    ("annotation", "text", "value"),
    [
        (int, "7", 7),
        (float, "1.5", 1.5),
        (Decimal, "12.50", Decimal("12.50")),
        (date, "2026-07-28", date(2026, 7, 28)),
        (bool, "true", True),
        (Literal[1, 2], "2", 2),
        (Literal["dry", "kind"], "dry", "dry"),
        (Tone, "kind", Tone.KIND),
        (int | None, "7", 7),
        (list[int], "[1, 2]", [1, 2]),
        (Author, "7", Author(pk=7)),
    ],
    ids=str,
)
def test_each_type_is_read_from_its_text(annotation: Any, text: str, value: Any) -> None:
    given = []

    def prompt(request: Any, it: Any) -> str:
        given.append(it)
        return ""

    prompt.__annotations__["it"] = annotation
    assert text_of(prompt, it=text) == ""
    assert given == [value]
    assert type(given[0]) is type(value)


def test_what_a_form_left_blank_is_left_to_the_default() -> None:
    assert text_of(review, author="7", since="", tone="") == "Ada since None in a kind tone"


def test_an_argument_without_annotation_is_text() -> None:
    assert text_of(lambda request, word, more="x": f"{word}{more}", word="5") == "5x"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "author: missing"),
        ({"author": ""}, "author: no author with pk"),
        ({"author": "8"}, 'author: no author with pk "8"'),
        ({"author": "7", "tone": "rude"}, 'tone: expected one of "dry", "kind"'),
        ({"author": "7", "self": "x"}, "self: unknown"),
        ({"author": "7", "other": ""}, "other: unknown"),
    ],
)
def test_a_wrong_argument_is_an_error_for_the_client(arguments: dict[str, str], message: str) -> None:
    with pytest.raises(InvalidParams) as caught:
        Prompt(review).get(REQUEST, arguments)
    assert message in caught.value.message
    assert "Valid arguments: author (required), since, tone." in caught.value.message


@pytest.mark.parametrize(("error", "message"), [(ToolError("No."), "No."), (PermissionDenied(), "Permission denied.")])
def test_a_refusal_of_the_function_is_one_too(error: Exception, message: str) -> None:
    def refuse(request: Any) -> str:
        raise error

    with pytest.raises(InvalidParams, match=message):
        Prompt(refuse).get(REQUEST, {})


IMAGE = Image(b"x")


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("text", [("user", "text")]),
        (IMAGE, [("user", "image")]),
        (Message("assistant", "text"), [("assistant", "text")]),
        (["a", IMAGE, Message("assistant", IMAGE)], [("user", "text"), ("user", "image"), ("assistant", "image")]),
        ((EmbeddedResource("x://y", "z"),), [("user", "resource")]),
        ([], []),
    ],
)
def test_what_a_function_returns_is_messages(value: Any, expected: list[tuple[str, str]]) -> None:
    result = Prompt(lambda request: value, name="prompt", description="Text").get(REQUEST, {})
    assert isinstance(result, dict)
    assert result["description"] == "Text"
    assert [(message["role"], message["content"]["type"]) for message in result["messages"]] == expected


@pytest.mark.parametrize("value", [Author(), Author(pk=7), [Author(pk=7)], Message("user", Author(pk=7))])
def test_125_a_row_that_is_not_there_for_the_caller_is_not_embedded(value: Any) -> None:
    with pytest.raises(NotFound):
        Prompt(lambda request: value, name="prompt").get(REQUEST, {})


def test_arguments_are_completed_as_the_function_says() -> None:
    def words(request: Any, value: str, context: Any) -> list[str]:
        return [f"{value}!"]

    prompt = Prompt(review, complete={"since": words})
    assert prompt.completer.complete(REQUEST, "since", "now", {}).values == ("now!",)
    assert prompt.completer.complete(REQUEST, "tone", "d", {}).values == ("dry", "kind")
    with pytest.raises(ImproperlyConfigured, match="nosuch"):
        Prompt(review, complete={"nosuch": words})


@pytest.mark.parametrize("value", [None, 5, [5]])
def test_what_is_no_message_is_a_failure_of_the_prompt(value: Any) -> None:
    with pytest.raises(TypeError):
        Prompt(lambda request: value, name="prompt").get(REQUEST, {})


def test_text_that_is_not_unicode_is_mended() -> None:
    assert text_of(lambda request: "a\ud800") == "a\ufffd"


async def test_an_async_function_gives_an_awaitable() -> None:
    async def hello(request: Any, name: str) -> str:
        return f"Hello {name}"

    prompt = Prompt(hello)
    assert prompt.is_async
    outcome: Any = prompt.get(REQUEST, {"name": "Ada"})
    assert (await outcome)["messages"][0]["content"]["text"] == "Hello Ada"
    refused: Any = prompt.get(REQUEST, {})
    with pytest.raises(InvalidParams, match="name: missing"):
        await refused


def test_permissions_decide_who_sees_the_prompt() -> None:
    assert Prompt(review).has_permission(REQUEST)
    assert not Prompt(review, permissions=["testapp.view_author"]).has_permission(REQUEST)


def test_a_signature_that_clients_cannot_fill_is_refused() -> None:
    with pytest.raises(ImproperlyConfigured):
        Prompt(lambda request, *words: "", name="prompt")
