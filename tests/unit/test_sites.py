from datetime import UTC, datetime

import pytest
from django.contrib import admin
from django.contrib.auth.models import User
from django.test import override_settings
from django.urls import reverse
from django.utils import timezone

from mcp_django import AdminExposure, AlreadyRegistered, MCPSite, ModelExposure, NotRegistered
from mcp_django import site as default_site
from mcp_django.orm import relative_dates
from mcp_django.resources.model_resources import Resources
from mcp_django.server.methods import lifecycle_and_subscriptions
from mcp_django.sites import HISTORY
from mcp_django.testing import MCPClient
from tests.factories import make_superuser, make_user
from tests.testapp.admin import BookAdmin
from tests.testapp.models import Author, Book
from tests.tool_calls import request_of

pytestmark = [pytest.mark.postgresql, pytest.mark.one_server, pytest.mark.django_db]


def names(user, **options):
    return [tool["name"] for tool in MCPClient(user, **options).tools()]


def models_of(site):
    """Return the models of the project: the history of their rows comes by itself."""
    return [model for model, exposure in site.exposures.items() if exposure.label != HISTORY]


def test_the_default_site_exposes_the_admin_without_a_line_of_code():
    assert isinstance(default_site.exposures[Book], AdminExposure)
    assert default_site.exposures_by_label["testapp.book"].model is Book


def test_G129_apps_that_hold_credentials_are_never_exposed_by_themselves():
    labels = {model._meta.app_label for model in models_of(default_site)}
    assert labels == {"testapp"}
    assert User not in default_site.exposures


def test_auto_registration_can_be_turned_off():
    with override_settings(MCP_DJANGO={"AUTO_REGISTER": False}):
        assert Book not in default_site.exposures
    assert Book in default_site.exposures


@pytest.mark.parametrize("places", [("site",), ("sites.site",), ("site", "sites.site")], ids=" and ".join)
def test_the_default_site_follows_a_theme_that_puts_its_own_admin_site_in_later(monkeypatch, places):
    reverse("admin:index")  # The URLs of all other tests are those of the admin as it is.
    assert Book in default_site.exposures
    # Django's checks look at each one that there is.
    monkeypatch.setattr("django.contrib.admin.sites.all_sites", set())
    theme = admin.AdminSite()
    theme.register(Author)
    if places == ("sites.site",):
        monkeypatch.setattr(admin, "site", admin.AdminSite())
    for place in places:
        monkeypatch.setattr(f"django.contrib.admin.{place}", theme)
    assert models_of(default_site) == [Author]
    assert default_site.exposures_by_label["testapp.author"].model_admin.admin_site is theme
    # What urls.py registers when it is imported, which may be later than the first call.
    theme.register(Book, BookAdmin)
    assert models_of(default_site) == [Author, Book]
    root = make_superuser()
    assert "testapp.book" in MCPClient(root).call("list_models").text
    monkeypatch.undo()
    assert default_site.exposures[Book].model_admin.admin_site == admin.site


def test_a_model_admin_can_keep_its_model_out(monkeypatch):
    monkeypatch.setattr(BookAdmin, "mcp_expose", False, raising=False)
    default_site._forget()
    try:
        assert Book not in default_site.exposures
    finally:
        monkeypatch.undo()
        default_site._forget()


def test_a_site_of_its_own_has_only_what_is_registered_with_it():
    site = MCPSite("own")
    assert site.exposures == {}
    site.register(Author, fields=["name"])
    assert list(site.exposures) == [Author]
    assert site.exposures[Author].fields == ["name"]


def test_registering_twice_is_an_error():
    site = MCPSite("own")
    site.register(Author)
    with pytest.raises(AlreadyRegistered, match=r"testapp\.Author"):
        site.register(Author)


def test_a_model_without_an_admin_cannot_have_an_admin_exposure():
    site = MCPSite("own")
    site.register(User.groups.through, AdminExposure)
    with pytest.raises(NotRegistered, match="has no ModelAdmin"):
        _ = site.exposures


def test_unregistering_removes_and_a_second_time_is_an_error():
    site = MCPSite("own")
    site.register([Author, Book], ModelExposure)
    site.unregister(Author)
    assert list(site.exposures) == [Book]
    with pytest.raises(NotRegistered):
        site.unregister(Author)


def test_D82_two_tools_or_prompts_or_resources_of_one_name_are_refused():
    site = MCPSite("own")

    def greet(request) -> str:
        """Say hello."""
        return "hello"

    site.add_tool(greet)
    site.add_prompt(greet)
    site.add_resource("greet://", greet)
    for add in (site.add_tool, site.add_prompt, lambda function: site.add_resource("greet://", function)):
        with pytest.raises(AlreadyRegistered):
            add(greet)


def test_what_was_added_can_be_removed_and_a_second_time_is_an_error():
    site = MCPSite("own")

    def greet(request) -> str:
        """Say hello."""
        return "hello"

    site.add_tool(greet)
    site.add_prompt(greet)
    site.add_resource("greet://", greet)
    for remove, name in (
        (site.remove_tool, "greet"),
        (site.remove_tool, "delete_record"),
        (site.remove_prompt, "greet"),
        (site.remove_resource, "greet://"),
    ):
        remove(name)
        with pytest.raises(NotRegistered, match=name):
            remove(name)
    assert site.function_tools() == []
    assert site.prompts == {}
    assert "delete_record" not in site.all_tool_names()
    site.add_tool(greet)


def test_who_walks_through_a_registry_is_not_disturbed_by_a_change_of_it():
    site = MCPSite("own")
    site.add_prompt(lambda request: "", name="first")
    seen = []
    for name in site.prompts:
        seen.append(name)
        site.add_prompt(lambda request: "", name=f"after {name}")
        site.remove_prompt("first")
    assert seen == ["first"]
    assert list(site.prompts) == ["after first"]


def test_completers_are_those_of_prompts_and_of_templates():
    site = MCPSite("own")
    assert site.completers == {}
    site.add_prompt(lambda request, word: "", name="prompt")
    site.add_resource("x://fixed", lambda request: "", name="fixed")
    site.add_resource("x://{word}", lambda request, word: "", name="template")
    assert list(site.completers) == ["prompt", "x://{word}"]


def test_125_templates_of_functions_are_those_that_the_caller_may_read():
    site = MCPSite("own")
    site.add_resource("x://{word}", lambda request, word: "", name="x", permissions=["testapp.view_book"])
    site.add_resource("y://fixed", lambda request: "", name="y")
    reader, nobody = make_user("reader", "testapp.view_book"), make_user("nobody")
    shown, hidden = (Resources(request_of(user, site, scopes={"mcp:read"})).templates() for user in (reader, nobody))
    assert [item["uriTemplate"] for item in shown][:1] == ["x://{word}"]
    assert "x://{word}" not in [item["uriTemplate"] for item in hidden]
    assert "y://fixed" not in [item["uriTemplate"] for item in (*shown, *hidden)]


def test_D81_the_list_of_tools_depends_on_the_authority_alone():
    first, second = make_superuser("a"), make_superuser("b")
    assert names(first) == names(second) == names(first)


def test_H136_a_caller_who_may_write_nothing_sees_no_write_tool():
    found = names(make_user("viewer", "testapp.view_author"))
    assert "query_records" in found
    assert not {"create_record", "update_record", "delete_record"} & set(found)


def test_a_caller_who_may_see_nothing_has_no_tools_for_records():
    assert names(make_user("nobody", staff=False)) == []


def test_a_token_that_may_only_read_sees_no_write_tool():
    found = names(make_superuser(), scopes=["mcp:read"])
    assert "query_records" in found
    assert "create_record" not in found


def test_H152_the_read_only_switch_beats_every_permission():
    with override_settings(MCP_DJANGO={"READ_ONLY": True, "BASE_URL": "http://testserver"}):
        client = MCPClient(make_superuser())
        assert all(tool["annotations"]["readOnlyHint"] for tool in client.tools())
        response = client.send("tools/call", {"name": "create_record", "arguments": {"model": "testapp.tag"}})
        assert response.json()["error"]["message"] == "Unknown tool: create_record. You can only read here."


def test_actions_are_tools_within_the_budget_and_reached_by_run_action_beyond_it():
    root = make_superuser()
    assert "publish_testapp_book" in names(root)
    with override_settings(MCP_DJANGO={"TOOL_BUDGET": 10, "BASE_URL": "http://testserver"}):
        found = names(root)
        assert "publish_testapp_book" not in found
        assert "run_action" in found


def test_R10_every_name_is_short_lower_case_and_unique():
    found = names(make_superuser())
    assert len(found) == len(set(found))
    assert all(len(name) <= 40 and name.replace("_", "").isalnum() and name == name.lower() for name in found)


def test_instructions_name_the_models_that_the_caller_may_see_and_no_others():
    text = MCPClient(make_user("viewer", "testapp.view_author")).request("server/discover")["instructions"]
    assert "testapp.author" in text
    assert "testapp.book" not in text
    assert len(text) <= 2_000


@pytest.mark.parametrize(
    ("zone", "words"),
    [
        (
            "Pacific/Auckland",
            "Today is Sunday, 2026-02-01, in the time zone Pacific/Auckland. Times in records are in UTC;",
        ),
        ("America/New_York", "Today is Saturday, 2026-01-31, in the time zone America/New_York."),
        ("UTC", "Today is Saturday, 2026-01-31. Times are in UTC."),
        (None, "Today is Sunday, 2026-02-01. Times are local, without a time zone."),
    ],
)
@pytest.mark.parametrize("method", ["initialize", "server/discover"])
def test_instructions_name_today_and_the_time_zone(monkeypatch, zone, words, method):
    moment = datetime(2026, 1, 31, 12, tzinfo=UTC)
    monkeypatch.setattr(timezone, "now", lambda: moment)
    monkeypatch.setattr(relative_dates, "datetime", type("Clock", (datetime,), {"now": lambda: datetime(2026, 2, 1)}))
    site = MCPSite(admin_site=admin.site)
    request = request_of(make_superuser(), site)
    found = {
        "initialize": lifecycle_and_subscriptions.initialize,
        "server/discover": lifecycle_and_subscriptions.discover,
    }[method]
    with override_settings(USE_TZ=zone is not None), timezone.override(zone or "UTC"):
        text = found(request, {"protocolVersion": "2025-11-25"})["instructions"]
    assert words in text
    assert len(text) <= 2_000


def test_D87_the_server_says_nothing_of_what_it_runs_on():
    text = str(MCPClient(make_superuser()).request("server/discover")).lower()
    assert not any(word in text for word in ("sqlite", "postgres", "python", "5.2", "/home"))
