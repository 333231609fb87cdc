import pytest
from django.contrib.auth import get_user_model
from oauth2_provider.models import AccessToken

from mcp_django import ModelExposure, site
from mcp_django.context.call_restrictions import Narrowing
from mcp_django.models import TokenFacts
from tests.factories import make_author, make_user
from tests.oauth_flow import Flow
from tests.sitesapp.models import KindTotal
from tests.unit.console.conftest import url

pytestmark = [pytest.mark.postgresql, pytest.mark.one_server, pytest.mark.django_db]


def show(browser, **query):
    return browser.get(url("seen"), query)


def test_it_is_for_superusers_alone(browser_of):
    everything = ["mcp_django.view_callentry", "mcp_django.view_bodies"]
    assert show(browser_of("chief", *everything), user="chief").status_code == 403


def test_what_a_user_sees_is_shown_with_what_it_costs(admin):
    make_user("reader", "testapp.view_book")
    answer = show(admin, user="reader")
    view = answer.context["view"]
    assert [model.label for model in view.models] == ["admin.logentry", "testapp.book"]
    assert "query_records" in answer.text
    assert str(view.instruction_tokens) in answer.text
    assert "the user lacks the permission testapp.view_author" in answer.text


def test_a_model_can_have_a_filter_of_any_name(admin):
    site.register(KindTotal, ModelExposure, fields=["items"], filter_fields={"items": ["exact", "in"]})
    try:
        make_user("reader", "sitesapp.view_kindtotal")
        text = show(admin, user="reader").text
    finally:
        site.unregister(KindTotal)
    assert '<li dir="ltr" title="exact, in">items</li>' in text


def test_scopes_count(admin):
    make_user("editor", "testapp.view_book", "testapp.add_book")
    with_write = show(admin, user="editor", scope=["mcp:write"], asked="1").context["view"]
    without = show(admin, user="editor", scope=["mcp:read"], asked="1")
    assert "create_record" in {tool.name for tool in with_write.tools}
    assert "create_record" not in {tool.name for tool in without.context["view"].tools}
    assert "the token needs the scope mcp:write" in without.text
    assert not show(admin, user="editor", asked="1").context["view"].tools


def test_the_access_of_a_client_counts_with_its_scopes_and_records(admin):
    Flow().tokens()
    token = AccessToken.objects.get()
    facts = TokenFacts.objects.get(token=token.token_checksum)
    facts.facts = {**facts.facts, **Narrowing.fact(["testapp.author"])}
    facts.save()
    user = token.user
    user.is_superuser = user.is_staff = True
    user.save()
    answer = show(admin, user=user.get_username(), access=token.pk)
    assert [model.label for model in answer.context["view"].models] == ["testapp.author"]
    assert "the access is only for other records" in answer.text
    assert "Robot" in answer.text
    assert token.token_checksum not in answer.text


def test_the_access_of_another_user_cannot_be_chosen(admin):
    Flow().tokens()
    make_user("reader", "testapp.view_book")
    answer = show(admin, user="reader", access=AccessToken.objects.get().pk)
    assert answer.context["view"] is None
    assert answer.context["form"].errors["access"]


@pytest.mark.parametrize("query", [{"user": "nobody"}, {"user": ""}, {"user": "x\x00"}, {"user": "root", "site": "no"}])
def test_what_cannot_be_shown_is_an_error_of_the_form(admin, query):
    answer = show(admin, **query)
    assert answer.context["view"] is None
    assert answer.context["form"].errors


def test_a_user_who_is_not_active_has_no_view(admin):
    make_user("gone")
    get_user_model().objects.filter(username="gone").update(is_active=False)
    assert "The user is not active." in show(admin, user="gone").text


def test_what_is_given_is_inert(admin):
    assert "<script>alert" not in show(admin, user="<script>alert(1)</script>").text


def test_rows_are_in_no_part_of_it(admin):
    make_author("a-row-that-is-no-part-of-it", secret_token="canary-of-the-secret")
    text = show(admin, user="root").text
    assert "a-row-that" not in text
    assert "canary-of-the-secret" not in text


def test_the_number_of_queries_is_bounded(admin, django_assert_max_num_queries):
    with django_assert_max_num_queries(20):
        show(admin, user="root")


def test_a_budget_that_is_used_up_stands_out(admin, settings):
    settings.MCP_DJANGO = {**settings.MCP_DJANGO, "BUDGETS": {"user": {"calls": 3, "rows_written": 0}}}
    page = show(admin, user="root").content.decode()
    assert 'class="notice bad">Left of the budget today: <code dir="ltr">user.rows_written</code> 0' in page
    assert 'class="notice">Left of the budget today: <code dir="ltr">user.calls</code> 3' in page
