"""The lists of applications and tokens in the admin."""

import re
from typing import Any

import pytest
from django.contrib.admin.models import DELETION, LogEntry
from django.test import Client
from oauth2_provider.models import AccessToken, Application, Grant

from mcp_django.context.call_restrictions import Narrowing
from mcp_django.models import LinkedIdentity
from mcp_django.oauth.bearer import verify
from mcp_django.oauth.last_use import note_use
from mcp_django.oauth.stored_tokens import create_token
from mcp_django.signin import FactName
from tests.factories import make_superuser, make_user
from tests.oauth_flow import RESOURCE, Flow
from tests.subscribers import listen, tell_at_once

pytestmark = [pytest.mark.postgresql, pytest.mark.one_server, pytest.mark.django_db]
TOKENS = "/admin/oauth2_provider/accesstoken/"
APPLICATIONS = "/admin/oauth2_provider/application/"


@pytest.fixture
def admin() -> Client:
    browser = Client()
    browser.force_login(make_superuser("root"))
    return browser


def test_tokens_are_listed_with_scope_endpoint_client_and_last_use(admin: Client) -> None:
    Flow().tokens()
    token = AccessToken.objects.get()
    text = admin.get(TOKENS).text
    for part in ("ada", "Robot", "mcp:read mcp:write", RESOURCE):
        assert part in text
    assert 'field-last_use">-<' in text
    note_use(token.token_checksum)
    assert 'field-last_use">-<' not in admin.get(TOKENS).text


def test_no_secret_of_a_token_is_shown_or_can_be_written(admin: Client) -> None:
    raw = Flow().tokens()["access_token"]
    token = AccessToken.objects.get()
    for path in (TOKENS, f"{TOKENS}{token.pk}/change/"):
        text = admin.get(path).text
        assert raw not in text
        assert token.token_checksum not in text
    sent = {"scope": "mcp:admin", "resource": "[]", "token": "x", "token_checksum": "x"}
    admin.post(f"{TOKENS}{token.pk}/change/", sent)
    again = AccessToken.objects.get()
    assert (again.scope, again.token_checksum) == (token.scope, token.token_checksum)


def test_tokens_stored_as_they_are_are_not_shown_either(admin: Client) -> None:
    Flow().tokens()
    AccessToken.objects.update(token="a-very-secret-token-of-some-length")
    token = AccessToken.objects.get()
    for path in (TOKENS, f"{TOKENS}{token.pk}/change/", f"{TOKENS}?q=a-very-secret-token-of-some-length"):
        assert "of-some-length" not in admin.get(path).text.replace("q=a-very-secret-token-of-some-length", "").replace(
            'value="a-very-secret-token-of-some-length"', ""
        )


def test_a_token_is_revoked_from_the_list(admin: Client) -> None:
    flow = Flow()
    tokens = flow.tokens()
    chosen = {"action": "revoke_tokens", "_selected_action": AccessToken.objects.get().pk}
    asked = admin.post(TOKENS, chosen)
    assert asked.status_code == 200
    assert AccessToken.objects.exists()
    assert admin.post(TOKENS, chosen | {"post": "yes"}).status_code == 302
    assert flow.refresh(tokens["refresh_token"]).status_code == 400


def test_applications_are_listed_with_host_and_people(admin: Client) -> None:
    Flow(registered=("https://chat.assistant.co.uk/cb",))
    Flow(username="bob").tokens()
    text = admin.get(APPLICATIONS).text
    assert "chat.<strong>assistant.co.uk</strong>" in text
    assert '<td class="field-people">1</td>' in text
    assert '<td class="field-people">0</td>' in text


def test_the_lists_take_no_query_more_for_a_row_more(admin: Client, django_assert_num_queries: Any) -> None:
    from django.db import connection
    from django.test.utils import CaptureQueriesContext

    def queries(path: str) -> int:
        with CaptureQueriesContext(
            connection,
        ) as context:
            admin.get(path)
        return len(context)

    Flow(username="first").tokens()
    before = [queries(path) for path in (TOKENS, APPLICATIONS)]
    for number in range(4):
        Flow(username=f"user{number}").tokens()
    assert [queries(path) for path in (TOKENS, APPLICATIONS)] == before


def test_names_that_lie_are_marked_wherever_applications_are_listed(admin: Client) -> None:
    flow = Flow()
    flow.tokens()
    Application.objects.update(redirect_uris="https://tools.evil.example/cb")
    pk = AccessToken.objects.get().pk
    pages = (TOKENS, f"{TOKENS}{pk}/change/", f"{REVOKE}?user={flow.user.pk}", APPLICATIONS)
    for path in pages:
        assert "⚠" not in admin.get(path).text
    Application.objects.update(name="<i>Сlaude</i>\u202e")
    for path in pages:
        # Django calls the row of a checkbox by the model's own text.
        text = re.sub(r'aria-label="[^"]*"', "", admin.get(path).text)
        assert "tools.evil.example does not belong to the makers" in text, path
        assert "several alphabets" in text
        assert "cannot be seen" in text
        assert "\u202e" not in text
        assert "<i>" not in text
        assert "&lt;i&gt;Сlaude" in text
    assert "⚠ &lt;i&gt;Сlaude" in admin.get(TOKENS).text, "the filter marks it too"
    Application.objects.update(registration_source="manual")
    for path in pages:
        assert "⚠" not in admin.get(path).text


def test_an_application_has_no_view_on_site_that_fails(admin: Client) -> None:
    Flow()
    page = admin.get(f"{APPLICATIONS}{Application.objects.get().pk}/change/")
    assert page.status_code == 200
    assert "View on site" not in page.text


# Revoking

REVOKE = f"{TOKENS}revoke/"
VIEW, CHANGE, DELETE = (f"oauth2_provider.{action}_accesstoken" for action in ("view", "change", "delete"))


def browser_of(name: str, *permissions: str) -> Client:
    browser = Client()
    browser.force_login(make_user(name, *permissions))
    return browser


def issue(name: str, **facts: Any) -> Any:
    user = make_user(name)
    link = LinkedIdentity.objects.create(issuer="https://login.example", subject=name, user=user)
    known = {FactName.LINKED_IDENTITY: link.pk} if facts.pop("linked", False) else {}
    return create_token(user, scopes=["mcp:read"], resources=[RESOURCE], facts=known | facts)


def users() -> set[str]:
    return {token.user.get_username() for token in AccessToken.objects.select_related("user")}


def test_the_list_says_for_which_models_and_from_where(admin: Client) -> None:
    row, _ = issue("ada", **Narrowing.fact(["testapp.author"]))
    note_use(row.token_checksum, "192.0.2.7")
    for path in (TOKENS, f"{TOKENS}{row.pk}/change/"):
        text = admin.get(path).text
        assert "testapp.author" in text
        assert "192.0.2.…" in text


@pytest.mark.parametrize(
    ("query", "left"),
    [
        ("", set()),
        ("user={ada}", {"bob", "eve"}),
        ("application={client}", set()),
        ("application={client}&user={ada}", {"bob", "eve"}),
        ("kind=issuer:https://login.example", {"ada", "eve"}),
        ("kind=issuer:https://other.example", {"ada", "bob", "eve"}),
        ("q=eve", {"ada", "bob"}),
        ("user=0", {"ada", "bob", "eve"}),
        ("state=ended", {"ada", "bob", "eve"}),
    ],
)
def test_all_of_a_user_a_client_an_issuer_or_all_is_revoked_once_it_is_confirmed(
    admin: Client, query: str, left: set[str]
) -> None:
    tokens = {name: issue(name, linked=name == "bob")[0] for name in ("ada", "bob", "eve")}
    path = f"{REVOKE}?{query}".format(ada=tokens["ada"].user_id, client=tokens["ada"].application_id)
    asked = admin.get(path)
    assert asked.status_code == 200
    assert users() == {"ada", "bob", "eve"}
    assert f"<b>{3 - len(left)}</b>" in asked.text
    assert admin.post(path, {"post": "yes"})["Location"] == TOKENS
    assert users() == left


def test_the_list_leads_to_the_page_that_revokes_all_that_it_shows(admin: Client) -> None:
    row, _ = issue("ada")
    issue("bob")
    page = admin.get(TOKENS, {"user": row.user_id, "p": 1}).text
    assert f'href="{REVOKE}?user={row.user_id}"' in page
    assert "Remove all of this access (1)" in page
    assert REVOKE not in admin.get(TOKENS, {"user": 0}).text
    assert REVOKE not in admin.get(TOKENS, {"state": "ended"}).text


@pytest.mark.parametrize("query", ["user__nothing=1", "created__day=x"])
def test_a_query_that_no_list_has_revokes_nothing(admin: Client, query: str) -> None:
    issue("ada")
    assert admin.post(f"{REVOKE}?{query}", {"post": "yes"})["Location"] == TOKENS
    assert users() == {"ada"}


def test_a_code_that_waits_for_its_token_is_worth_nothing_either(admin: Client) -> None:
    flow, other = Flow(), Flow(username="bob")
    flow.tokens()
    code, kept = flow.code(), other.code()
    admin.post(f"{REVOKE}?user={flow.user.pk}", {"post": "yes"})
    assert flow.exchange(code).status_code == 400
    assert other.exchange(kept).status_code == 200
    other.code()
    admin.post(REVOKE, {"post": "yes"})
    assert not Grant.objects.exists()


def test_the_history_says_who_revoked_whose_access(admin: Client) -> None:
    Flow().tokens()
    issue("bob")
    keys = set(map(str, AccessToken.objects.values_list("pk", flat=True)))
    chosen = {"action": "revoke_tokens", "_selected_action": list(keys), "post": "yes"}
    admin.post(TOKENS, chosen)
    entries = LogEntry.objects.filter(content_type__model="accesstoken", action_flag=DELETION)
    assert {entry.object_id for entry in entries} == keys
    assert {entry.object_repr for entry in entries} == {"ada · Robot", "bob · mcp_token"}
    assert {entry.user.get_username() for entry in entries} == {"root"}
    assert f"mcp:read {RESOURCE}" in {entry.get_change_message() for entry in entries}
    assert "ada · Robot" in admin.get("/admin/").text


def test_streams_end_with_the_access_and_the_token_is_refused(admin: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    from mcp_django.exceptions import AuthenticationFailed

    news = tell_at_once(monkeypatch)
    (row, raw), (_, others) = issue("ada"), issue("bob")
    user, auth = verify(raw, RESOURCE)
    ending, staying = listen(user, auth=auth), listen(*verify(others, RESOURCE)[:1], auth=verify(others, RESOURCE)[1])
    admin.post(f"{REVOKE}?user={row.user_id}", {"post": "yes"})
    with pytest.raises(AuthenticationFailed):
        verify(raw, RESOURCE)
    news.process.check()
    assert (ending.ended, staying.ended) == (["the token is no longer valid"], [])


def test_who_may_view_sees_and_who_may_change_or_delete_as_well_revokes() -> None:
    row, _ = issue("ada")
    chosen = {"action": "revoke_tokens", "_selected_action": row.pk, "post": "yes"}
    for name, permissions in {"none": (), "others": ("testapp.view_book",), "only": (DELETE,)}.items():
        browser = browser_of(name, *permissions)
        for path in (TOKENS, REVOKE, f"{TOKENS}{row.pk}/change/"):
            assert browser.get(path).status_code == 403
            assert browser.post(path, chosen).status_code == 403
    viewer = browser_of("viewer", VIEW)
    assert "ada" in viewer.get(TOKENS).text
    assert REVOKE not in viewer.get(TOKENS).text
    assert "revoke_tokens" not in viewer.get(TOKENS).text
    assert viewer.get(REVOKE).status_code == viewer.post(REVOKE).status_code == 403
    viewer.post(TOKENS, chosen)
    assert users() == {"ada"}
    for name, permissions in {"changer": (CHANGE,), "deleter": (VIEW, DELETE)}.items():
        issue(f"of {name}")
        browser = browser_of(name, *permissions)
        assert f'href="{REVOKE}?"' in browser.get(TOKENS).text
        assert browser.post(f"{REVOKE}?q=of", {"post": "yes"}).status_code == 302
        assert users() == {"ada"}


def test_nobody_else_is_let_through() -> None:
    issue("ada")
    for browser in (Client(), browser_of("staff"), Client(enforce_csrf_checks=True)):
        assert browser.post(REVOKE, {"post": "yes"}).status_code in (302, 403)
    strict = Client(enforce_csrf_checks=True)
    strict.force_login(make_superuser("root"))
    assert strict.post(REVOKE, {"post": "yes"}).status_code == 403
    assert users() == {"ada"}


def test_of_many_the_first_are_told_and_the_number_of_all(admin: Client) -> None:
    for number in range(25):
        issue(f"user{number}")
    page = admin.get(REVOKE).text
    assert page.count("<li><bdi>user") == 20
    assert "and 5 more" in page
    for shown in ("Access that ends now: <b>25</b>", "Users: <b>25</b>", "Applications: <b>1</b>"):
        assert shown in page


def test_the_page_of_an_application_leads_to_what_it_wrote(admin: Client) -> None:
    Flow().tokens()
    application = Application.objects.get()
    page = f"{APPLICATIONS}{application.pk}/change/"
    link = f'href="/admin/mcp_django/callentry/client_time/?client={application.client_id}"'
    assert link in admin.get(page).text
    # Who may not take back what others did is not led there.
    reader = Client()
    reader.force_login(make_user("eve", "oauth2_provider.view_application", "mcp_django.view_callentry"))
    assert link not in reader.get(page).text
    assert reader.get(page).status_code == 200
    assert admin.get(f"{APPLICATIONS}add/").status_code == 200
