"""Parameters of functions, completed by what the project says or by their annotations."""

import enum
from types import SimpleNamespace
from typing import Annotated, Any, Literal

import pytest
from django.core.exceptions import ImproperlyConfigured, ObjectDoesNotExist, PermissionDenied

from mcp_django import ToolError
from mcp_django import site as default_site
from mcp_django.functions.project_function import ProjectFunction
from mcp_django.resources.completions import Completer
from mcp_django.schema.annotations import Param
from tests.factories import make_author, make_book, make_superuser, make_user
from tests.library import reader, site_with
from tests.testapp.models import Author, Book, Section, Tag

pytestmark = pytest.mark.postgresql

NOBODY: Any = SimpleNamespace()


def completer(function, **hooks):
    return Completer(ProjectFunction(function, name="review", untyped=str), hooks)


def values(request, function, name, value="", context=None, **hooks):
    return list(completer(function, **hooks).complete(request, name, value, context or {}).values)


# Annotations


class Tone(enum.Enum):
    DRY = "dry"
    KIND = "kind"


@pytest.mark.parametrize(
    ("annotation", "value", "expected"),
    [
        (Literal["dry", "kind"], "", ["dry", "kind"]),
        (Literal["dry", "kind"], "k", ["kind"]),
        (Literal[1, 2, True, 1.5], "", ["1", "2", "true", "1.5"]),
        (Literal["a", None], "", ["a"]),
        (Tone, "D", ["dry", "kind"]),
        (Book.Status, "in prep", ["draft"]),
        (Annotated[Tone | None, Param("How")], "dr", ["dry"]),
        (bool, "", ["true", "false"]),
        (bool, "F", ["false"]),
        (Literal["a"] | bool, "", ["a", "true", "false"]),
        (str, "a", []),
        (int, "1", []),
        (list[Tone], "d", []),
    ],
)
def test_the_annotation_says_what_there_is(annotation, value, expected):
    def review(request, tone): ...

    review.__annotations__["tone"] = annotation
    assert values(NOBODY, review, "tone", value) == expected


def test_what_is_completed_is_read_as_an_argument():
    def review(request, tone: Literal[1, True, 2.5, "x"]): ...

    function = ProjectFunction(review)
    for value in Completer(function).complete(NOBODY, "tone", "", {}).values:
        assert function.arguments.validate({"tone": value}, NOBODY)["tone"] in (1, True, 2.5, "x")


def test_only_parameters_are_taken():
    found = completer(lambda request, word: "")
    assert found.takes("word")
    assert not found.takes("request")
    assert not found.takes("other")


def review(request, author: Author, book: Book, tag: Tag | None = None, section: Section | None = None): ...


@pytest.mark.django_db
def test_a_row_is_completed_by_its_key():
    author = make_author("Ursula")
    make_author("Somebody")
    request = reader(make_superuser(), default_site)
    assert values(request, review, "author", "urs") == [str(author.pk)]
    assert values(request, review, "author", str(author.pk))[0] == str(author.pk)


@pytest.mark.django_db
def test_125_a_row_of_a_model_that_the_caller_may_not_view_is_not_completed():
    make_author("Ursula")
    request = reader(make_user("viewer", "testapp.view_book"), default_site)
    assert values(request, review, "author", "") == []
    assert values(request, review, "author", "urs") == []


@pytest.mark.django_db
def test_a_row_that_is_chosen_already_narrows_those_that_refer_to_it():
    first, second = make_book("First"), make_book("Second")
    request = reader(make_superuser(), default_site)
    assert values(request, review, "book") == [str(first.pk), str(second.pk)]
    context = {"author": str(first.author_id), "section": "x", "tone": "x"}
    assert values(request, review, "book", context=context) == [str(first.pk)]
    assert values(request, review, "book", "second", context) == []
    assert values(request, review, "author", context={"book": str(first.pk)}) != []


@pytest.mark.django_db
@pytest.mark.parametrize("chosen", ["", "x", "1.5"])
def test_what_is_no_row_narrows_nothing(chosen):
    book = make_book("First")
    request = reader(make_superuser(), default_site)
    assert values(request, review, "book", context={"author": chosen}) == [str(book.pk)]


@pytest.mark.django_db
def test_a_row_of_another_model_than_the_field_of_that_name_narrows_nothing():
    book = make_book("First")

    def compare(request, owner: Author, book: Book): ...

    request = reader(make_superuser(), default_site)
    assert values(request, compare, "book", context={"owner": "7"}) == [str(book.pk)]


@pytest.mark.django_db
def test_135_a_row_narrows_by_no_field_that_the_caller_may_not_filter_on():
    first, second = make_book("First"), make_book("Second")
    request = reader(make_superuser(), site_with(Author, Book, fields=["id"]))
    context = {"author": str(first.author_id)}
    assert values(request, review, "book", context=context) == [str(first.pk), str(second.pk)]


# Hooks


def plain(request, word: str = "", other: str = ""): ...


def test_a_function_of_the_project_says_what_there_is_and_in_which_order():
    def words(request, value, context):
        return [f"{value}b", f"{value}a", context["other"]]

    found = completer(plain, word=words)
    assert found.is_slow("word")
    assert not found.is_slow("other")
    assert values(NOBODY, plain, "word", "x", {"other": "y"}, word=words) == ["xb", "xa", "y"]


def test_an_async_function_does_too():
    async def words(request, value, context):
        return ["a"]

    assert values(NOBODY, plain, "word", word=words) == ["a"]


@pytest.mark.django_db
def test_values_of_a_function_become_text():
    author = make_author(pk=77)

    def words(request, value, context):
        return [author, 1, True, 1.5, Book.Status.DRAFT, "a\ud800", None]

    expected = ["77", "1", "true", "1.5", "draft", "a\ufffd"]
    assert values(NOBODY, plain, "word", word=words) == expected


@pytest.mark.django_db
def test_a_queryset_is_read_no_further_than_is_shown(django_assert_num_queries):
    Tag.objects.bulk_create(Tag(name=f"tag {index:03}") for index in range(120))

    def words(request, value, context):
        return Tag.objects.values_list("name", flat=True)

    with django_assert_num_queries(1) as queries:
        found = completer(plain, word=words).complete(NOBODY, "word", "", {})
    assert len(found.values) == 100
    assert found.more
    assert "LIMIT 101" in queries.captured_queries[0]["sql"]


@pytest.mark.parametrize("error", [ToolError("No."), PermissionDenied("No."), ObjectDoesNotExist("No.")])
def test_a_refusal_of_the_function_is_a_text(error):
    def words(request, value, context):
        raise error

    with pytest.raises(ToolError, match="No\\."):
        values(NOBODY, plain, "word", word=words)


@pytest.mark.django_db
def test_a_field_says_what_there_is():
    request = reader(make_superuser(), default_site)
    assert values(request, plain, "word", "with", word="testapp.book.status") == ["withdrawn"]
    assert not completer(plain, word="testapp.book.status").is_slow("word")
    assert list(completer(plain, word="testapp.Book.status").fields) == [("word", "testapp.book", "status")]


@pytest.mark.parametrize("hooks", [{"nosuch": lambda request, value, context: []}, {"word": "status"}, {"word": 5}])
def test_a_hook_that_cannot_be_used_is_refused(hooks):
    with pytest.raises(ImproperlyConfigured, match="review"):
        completer(plain, **hooks)
