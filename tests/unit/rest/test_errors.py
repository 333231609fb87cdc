import pytest
from django.http import HttpResponse, HttpResponseRedirect
from rest_framework import exceptions
from rest_framework.response import Response

from mcp_django import ToolError
from mcp_django.exceptions import NotFound
from tests.restapp.calling import answering, raising
from tests.writing import refusal

pytestmark = [pytest.mark.django_db, pytest.mark.urls("tests.restapp.urls")]


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: Response({"a": ["Wrong.", "Bad."], "b": {"c": ["No."]}}, 400), "Refused:\na: Wrong. Bad.\nb.c: No."),
        (lambda: Response({"rows": [{}, {"n": ["No."]}]}, 400), "Refused:\nrows[1].n: No."),
        (lambda: Response({"non_field_errors": ["Both."]}, 400), "Refused:\nBoth."),
        (lambda: Response(["First.", "Second."], 400), "Refused:\nFirst. Second."),
        (raising(exceptions.ParseError()), "Refused:\nMalformed request."),
        (raising(exceptions.PermissionDenied("Not today.")), "Permission denied. Not today."),
        (raising(exceptions.NotAuthenticated()), "Permission denied. Authentication credentials were not provided."),
        (raising(exceptions.NotFound("No such page.")), "No such page."),
        (raising(exceptions.MethodNotAllowed("GET")), 'Refused with HTTP status 405:\nMethod "GET" not allowed.'),
        (raising(exceptions.Throttled(12)), "Too many calls. Wait 12 seconds, then repeat the call."),
        (raising(exceptions.Throttled()), "Too many calls. Wait a while, then repeat the call."),
        (lambda: Response({"trace": "secret"}, 503), "The view failed with HTTP status 503."),
        (lambda: HttpResponse("<h1>secret</h1>", status=400), "Refused:\n"),
        (
            lambda: HttpResponseRedirect("http://internal/"),
            "The view leads on to another page, which cannot be followed here.",
        ),
    ],
)
def test_a_refusal_is_told_in_words(make, text):
    assert refusal(*answering(make)) == text


def test_what_is_missing_forbidden_and_filtered_is_one_answer_where_the_url_names_a_row():
    for make in (raising(exceptions.NotFound("Row 3 of Bob")), lambda: Response({"detail": "secret"}, 404)):
        tool, request = answering(make, detail=True)
        with pytest.raises(NotFound):
            tool.call(request, {"pk": 3})


def test_a_refusal_is_bounded():
    lines = {f"field{number}": ["x" * 5_000] for number in range(100)}
    text = refusal(*answering(lambda: Response(lines, 400)))
    assert len(text) < 1_300
    assert text.count("\n") <= 9


def test_problems_are_raised_as_tool_errors():
    tool, request = answering(raising(exceptions.ValidationError({"a": "Wrong."})))
    with pytest.raises(ToolError, match="a: Wrong"):
        tool.call(request, {})
