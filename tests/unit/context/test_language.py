"""The language of a call is the client's, and ends with the call."""

from contextvars import ContextVar
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.urls import get_script_prefix, set_script_prefix
from django.utils import timezone, translation

from mcp_django import MCPSite
from mcp_django.context.language import CallerLanguage
from mcp_django.testing import MCPClient
from mcp_django.tools.describe_model import DescribeModel
from mcp_django.tools.query_records import QueryRecords
from mcp_django.tools.write_tools import CreateRecord, UpdateRecord
from tests.factories import make_superuser
from tests.fieldapp.models import Sample
from tests.library import reader
from tests.tool_calls import call, refusal, request_of, site_with

pytestmark = [pytest.mark.postgresql, pytest.mark.one_server, pytest.mark.django_db]


def german(user: Any, site: MCPSite, header: str = "de-AT, en;q=0.5") -> Any:
    request = reader(user, site)
    request.META["HTTP_ACCEPT_LANGUAGE"] = header
    return request


@pytest.mark.parametrize(
    ("header", "language"),
    [
        ("de", "de"),
        ("de-AT,en;q=0.5", "de"),
        ("xx, fr-CA;q=0.8", "fr-ca"),
        ("en;q=0.2, pt-br", "pt-br"),
        ("", None),
        (None, None),
        ("de," * 300, None),
    ],
)
def test_the_header_decides_among_the_languages_of_the_project(
    header: str | None, language: str | None, settings: Any
) -> None:
    settings.LANGUAGES = [("de", "German"), ("en", "English"), ("fr-ca", "French"), ("pt-br", "Portuguese")]
    request = reader(None, MCPSite())
    if header is not None:
        request.META["HTTP_ACCEPT_LANGUAGE"] = header
    assert CallerLanguage(request).code == language


def test_a_project_without_translations_has_one_language(settings: Any) -> None:
    settings.USE_I18N = False
    assert CallerLanguage(german(None, MCPSite())).code is None


def test_the_language_that_middleware_chose_stays() -> None:
    with translation.override("fr"):
        assert CallerLanguage(german(None, MCPSite())).code is None
        with CallerLanguage(german(None, MCPSite())).for_coroutine():
            assert translation.get_language() == "fr"
        assert translation.get_language() == "fr"


def test_labels_and_errors_are_in_the_language_and_values_are_not() -> None:
    site = site_with(User, Sample, exclude=["password"])
    request = german(make_superuser(), site)
    with CallerLanguage(request).for_coroutine():
        described = call(DescribeModel(), request, model="auth.user", detail=True)
        assert described["title"] == "Benutzer"
        assert "Vorname" in str(described["input_schema"])
        assert "Ja" in str(call(DescribeModel(), request, model="fieldapp.sample", detail=True))
        said = refusal(CreateRecord(), request, model="fieldapp.sample", values={"name": "", "day": "morgen"})
        assert "Dieses Feld ist zwingend erforderlich" in said
        made = call(CreateRecord(), request, model="fieldapp.sample", values={"name": "x", "answer": "ja"})
        assert made["fields"]["answer"] == "y"
        values = {"decimal": "1.5", "number": 0.5, "day": "2026-01-31", "moment": "2026-01-31T10:00:00Z"}
        again = call(UpdateRecord(), request, model="fieldapp.sample", pk=made["pk"], values=values)["fields"]
        assert (again["decimal"], again["number"], again["day"]) == ("1.5000", 0.5, "2026-01-31")
        for answer in ("ja", "Ja", "y"):
            page = call(QueryRecords(), request, model="fieldapp.sample", filters={"answer": answer}, fields=["answer"])
            assert [row[1] for row in page["rows"]] == ["y"]


def test_the_endpoint_speaks_the_language_of_each_call(tools: Any) -> None:
    def told(request: Any) -> str:
        return f"{translation.get_language()} {translation.gettext('Yes')}"

    async def told_later(request: Any) -> str:
        return translation.gettext("Yes")

    tools(told, read_only=True)
    tools(told_later, read_only=True)
    client = MCPClient(make_superuser())
    assert client.call("told").text == "en-us Yes"
    client.headers["Accept-Language"] = "de"
    assert client.call("told").text == "de Ja"
    assert client.call("told_later").text == "Ja"
    del client.headers["Accept-Language"]
    assert client.call("told_later").text == "Yes"


def test_row_155_language_and_time_zone_of_one_call_are_not_those_of_the_next(tools: Any) -> None:
    def careless(request: Any) -> str:
        translation.activate("fr")
        timezone.activate("Asia/Tokyo")
        return "done"

    def seen(request: Any) -> str:
        return f"{translation.get_language()} {timezone.get_current_timezone_name()}"

    async def careless_later(request: Any) -> str:
        return careless(request)

    tools(careless, read_only=True)
    tools(careless_later, read_only=True)
    tools(seen, read_only=True)
    client = MCPClient(make_superuser())
    changed: ContextVar[str] = ContextVar("changed", default="as it was")

    def careless_of_variables(request: Any) -> str:
        set_script_prefix("/elsewhere/")
        changed.set("by a call")
        return "done"

    tools(careless_of_variables, read_only=True)
    assert client.call("careless_of_variables").text == "done"
    assert (get_script_prefix(), changed.get()) == ("/", "as it was")
    for headers in ({}, {"Accept-Language": "de"}):
        client.headers.update(headers)
        assert client.call("careless").text == "done"
        assert client.call("careless_later").text == "done"
        assert (translation.get_language(), timezone.get_current_timezone_name()) == ("en-us", "UTC")
    client.headers.pop("Accept-Language")
    assert client.call("seen").text == "en-us UTC"


def test_row_155_an_error_ends_the_language_too() -> None:
    with pytest.raises(LookupError), CallerLanguage(german(None, MCPSite())).for_coroutine():
        {}[translation.get_language()]
    assert translation.get_language() == "en-us"
    translation.deactivate_all()
    try:
        with CallerLanguage(request_of(None)).for_coroutine():
            translation.activate("fr")
        assert translation.get_language() is None
    finally:
        translation.deactivate()
