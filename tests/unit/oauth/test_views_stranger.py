"""The consent view sends nobody to a website that anyone could have registered, unless they click."""

from typing import Any
from urllib.parse import parse_qsl, urlsplit

import pytest
from django.test import Client
from oauth2_provider.models import get_application_model

from tests.oauth_flow import REDIRECT_URI, RESOURCE, Flow

pytestmark = pytest.mark.django_db
WEB = "https://evil.example/cb?a=1"
# Whatever makes the view answer the client without asking the user.
ERRORS: list[dict[str, Any]] = [
    {"scope": "offline_access"},
    {"code_challenge": None},
    {"code_challenge": "x"},
    {"code_challenge_method": "plain"},
    {"resource": "https://evil.example/"},
    {"resource": "http://["},
    {"resource": RESOURCE + "#x"},
    {"response_type": "token"},
    {"response_type": "code id_token"},
    {"prompt": "none", "scope": "offline_access"},
    {"prompt": "none login"},
]
ANONYMOUS: list[dict[str, Any]] = [{"prompt": "none"}, *(change for change in ERRORS if "prompt" in change)]


def flow_of(uri: str) -> Flow:
    return Flow(registered=(uri,))


def ask(flow: Flow, browser: Client, uri: str, changes: dict[str, Any]) -> Any:
    return browser.get("/oauth/authorize/", flow.query(redirect_uri=uri, **changes))


CASES = [(True, change) for change in ERRORS if "prompt" not in change] + [(False, change) for change in ANONYMOUS]


@pytest.mark.parametrize(("is_signed_in", "changes"), CASES)
def test_a_website_that_nobody_has_verified_is_a_link_on_a_page(is_signed_in: bool, changes: dict[str, Any]) -> None:
    flow = flow_of(WEB)
    answer = ask(flow, flow.browser if is_signed_in else Client(), WEB, changes)
    assert answer.status_code == 400
    assert "Location" not in answer
    assert answer.context["leads_to"].startswith(f"{WEB}&error=")
    assert urlsplit(answer.context["leads_to"]).netloc == "evil.example"
    assert ">evil.example</a>" in answer.text


@pytest.mark.parametrize(("is_signed_in", "changes"), CASES)
def test_a_program_on_the_device_gets_its_answer(is_signed_in: bool, changes: dict[str, Any]) -> None:
    flow = Flow()
    answer = ask(flow, flow.browser if is_signed_in else Client(), REDIRECT_URI, changes)
    assert answer.status_code == 302
    assert answer["Location"].startswith(REDIRECT_URI)


@pytest.mark.parametrize(("is_signed_in", "changes"), CASES)
def test_an_application_that_administrators_registered_gets_its_answer(
    is_signed_in: bool, changes: dict[str, Any]
) -> None:
    flow = flow_of(WEB)
    get_application_model().objects.update(registration_source="manual")
    answer = ask(flow, flow.browser if is_signed_in else Client(), WEB, changes)
    assert answer.status_code == 302
    assert answer["Location"].startswith(WEB)


def test_an_application_that_this_user_has_connected_before_gets_its_answer_and_others_the_page() -> None:
    flow = flow_of(WEB)
    code = dict(parse_qsl(urlsplit(flow.answer(redirect_uri=WEB)["Location"]).query))["code"]
    assert flow.exchange(code, redirect_uri=WEB).status_code == 200
    assert ask(flow, flow.browser, WEB, {"code_challenge": None})["Location"].startswith(WEB)
    other = Flow(username="eve")
    assert ask(flow, other.browser, WEB, {"code_challenge": None}).status_code == 400
    assert ask(flow, Client(), WEB, {"prompt": "none"}).status_code == 400


def test_who_allows_or_denies_has_clicked_and_goes_there() -> None:
    for deny in (True, False):
        flow = flow_of(WEB)
        answer = flow.answer(redirect_uri=WEB, deny=deny)
        assert answer.status_code == 302
        assert answer["Location"].startswith(WEB)
