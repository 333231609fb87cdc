"""The admin's own history page of a row leads to what can be taken back of it, and stays as it is otherwise."""

from types import SimpleNamespace
from typing import Any

import pytest
from django.apps import apps
from django.contrib import admin
from django.contrib.admin.sites import AdminSite
from django.contrib.auth.models import Permission
from django.db import DatabaseError
from django.http import HttpResponse
from django.template import engines
from django.template.response import TemplateResponse
from django.test import override_settings

from mcp_django.console import object_history
from mcp_django.console.call_log_admin import CallEntryAdmin
from mcp_django.models import CallEntry
from mcp_django.tools.write_tools import UpdateRecord
from tests import settings as project
from tests.factories import make_author, make_superuser, make_user
from tests.testapp.models import Author
from tests.tool_calls import call, request_of
from tests.unit.console.conftest import url
from tests.unit.console.test_call_log_admin import CALLS, log
from tests.unit.console.test_undo_page import browser_of

pytestmark = pytest.mark.django_db
UPDATE = UpdateRecord()
LISTED = 'id="mcp-changes"'
OWN = (
    """{% extends "admin/object_history.html" %}{% block content %}{{ block.super }}<p>Our own page</p>{% endblock %}"""
)


def renamed(user: Any, author: Author, name: str = "Ida") -> int:
    request = request_of(user)
    number: int = call(UPDATE, request, model="testapp.author", pk=str(author.pk), values={"name": name})["change"]
    return number


def history_of(author: Author) -> str:
    return f"/admin/testapp/author/{author.pk}/history/"


def apps_in_order(*, first: bool) -> list[str]:
    others = [name for name in project.INSTALLED_APPS if name != "mcp_django"]
    return ["mcp_django", *others] if first else [*others, "mcp_django"]


@pytest.mark.parametrize("first", [True, False])
def test_the_page_leads_to_what_can_be_taken_back_whatever_the_order_of_the_apps(first: bool) -> None:
    root = make_superuser()
    author, other = make_author("Frank"), make_author("Jane")
    number = renamed(root, author)
    browser = browser_of(root)
    with override_settings(INSTALLED_APPS=apps_in_order(first=first)):
        order = [config.name for config in apps.get_app_configs()]
        assert (order.index("mcp_django") < order.index("django.contrib.admin")) is first
        text = browser.get(history_of(author)).text
        assert LISTED in text
        assert "Changed Name" in text
        link = f'href="{url("undo")}?change={number}&amp;back={history_of(author).replace("/", "%2F")}"'
        assert link in text
        assert LISTED not in browser.get(history_of(other)).text


def test_what_was_taken_back_is_offered_no_more_and_the_undo_is() -> None:
    root = make_superuser()
    author = make_author("Frank")
    number = renamed(root, author)
    browser = browser_of(root)
    shown = browser.get(f"{url('undo')}?change={number}")
    answer = browser.post(url("undo"), {"change": number, "pin": shown.context["pin"], "back": history_of(author)})
    text = browser.get(answer["Location"]).text
    assert f"?change={number}&" not in text
    assert f"?change={number + 1}&" in text


@pytest.mark.parametrize("first", [True, False])
def test_the_template_of_a_project_stays(first: bool, tmp_path: Any) -> None:
    root = make_superuser()
    author = make_author("Frank")
    renamed(root, author)
    for name in ("admin", "admin/testapp", "admin/testapp/author"):
        for path in tmp_path.rglob("*.html"):
            path.unlink()
        folder = tmp_path / name
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "object_history.html").write_text(OWN)
        templates = [{**project.TEMPLATES[0], "DIRS": [tmp_path]}]
        with override_settings(INSTALLED_APPS=apps_in_order(first=first), TEMPLATES=templates):
            text = browser_of(root).get(history_of(author)).text
        assert text.count("Our own page") == 1
        assert text.count(LISTED) == 1


@pytest.mark.parametrize("text", ["All of the page", "{% block content %}All of the page{% endblock %}"])
def test_a_template_of_another_package_stays(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    root = make_superuser()
    author = make_author("Frank")
    renamed(root, author)
    made = engines["django"].from_string(text)
    monkeypatch.setattr(TemplateResponse, "resolve_template", lambda self, name: _named(name, made))
    shown = browser_of(root).get(history_of(author)).text
    assert shown.startswith("All of the page")
    assert (LISTED in shown) is (text != "All of the page")


def _named(name: Any, other: Any) -> Any:
    """Our own template by its name, and another one for the page itself."""
    return engines["django"].get_template(name) if isinstance(name, str) else other


def test_a_template_of_another_engine_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    root = make_superuser()
    author = make_author("Frank")
    renamed(root, author)
    made = engines["django"].from_string("All of the page")
    other = SimpleNamespace(template=object(), render=made.render)
    monkeypatch.setattr(TemplateResponse, "resolve_template", lambda self, name: other)
    assert browser_of(root).get(history_of(author)).text == "All of the page"


def test_a_view_that_renders_by_itself_stays_as_it_is() -> None:
    answer = HttpResponse("rendered")
    home: Any = admin.site._registry[CallEntry]
    assert object_history.with_changes(home, None, answer) is answer  # type: ignore[arg-type]


def test_only_those_who_may_take_it_back_are_led_there() -> None:
    author = make_author("Frank")
    renamed(make_superuser(), author)
    reader = make_user("eve", "testapp.view_author", "mcp_django.view_callentry", "mcp_django.view_change")
    assert LISTED not in browser_of(reader).get(history_of(author)).text
    reader.user_permissions.add(Permission.objects.get(codename="undo_change"))
    assert LISTED in browser_of(reader).get(history_of(author)).text
    # Without the console, its page is not theirs.
    other = make_user("bob", "testapp.view_author", "mcp_django.undo_change")
    assert LISTED not in browser_of(other).get(history_of(author)).text
    assert browser_of(make_user("ann")).get(history_of(author)).status_code == 403


def test_nothing_is_looked_for_where_the_console_may_not_be_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    root = make_superuser()
    author = make_author("Frank")
    renamed(root, author)
    looked: list[Any] = []
    monkeypatch.setattr(object_history, "changes_of_calls", lambda *args: looked.append(args) or [])
    browser_of(make_user("bob", "testapp.view_author")).get(history_of(author))
    assert not looked
    browser_of(root).get(history_of(author))
    assert looked


def test_without_the_tables_of_the_app_the_page_works(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*args: Any) -> Any:
        raise DatabaseError

    root = make_superuser()
    author = make_author("Frank")
    renamed(root, author)
    monkeypatch.setattr(object_history, "changes_of_calls", fail)
    response = browser_of(root).get(history_of(author))
    assert (response.status_code, LISTED in response.text) == (200, False)


def test_a_site_is_changed_once_and_keeps_a_view_of_its_own() -> None:
    seen = []

    class Own(AdminSite):
        def admin_view(self, view: Any, cacheable: bool = False) -> Any:
            seen.append(view.__name__)
            return super().admin_view(view, cacheable)

    own = Own()
    CallEntryAdmin(CallEntry, own)
    wrapped = own.admin_view
    CallEntryAdmin(CallEntry, own)
    assert own.admin_view is wrapped
    own.admin_view(own.index)
    assert seen == ["index"]


READ = "q=model%3Atestapp.author+row%3A{}"


def test_the_page_leads_to_the_calls_about_the_row() -> None:
    author, other = make_author("Frank"), make_author("Jane")
    for row in (author, other):
        log(tool="get_record", model="testapp.author", keys={("testapp.author", str(row.pk))})
    browser = browser_of(make_user("eve", "testapp.view_author", "mcp_django.view_callentry"))
    text = browser.get(history_of(author)).text
    link = f"{CALLS}?{READ.format(author.pk)}"
    assert f'href="{link}">Who read it' in text
    assert browser.get(link).context["cl"].result_count == 1
    # Who may not view calls is not led there.
    text = browser_of(make_user("bob", "testapp.view_author")).get(history_of(author)).text
    assert "Who read it" not in text


@pytest.mark.parametrize("options", [False, {"rows": False}])
def test_where_no_keys_are_kept_nobody_asks_for_them(options: Any, settings: Any) -> None:
    settings.MCP_DJANGO = {**settings.MCP_DJANGO, "CALL_LOG": options}
    assert "Who read it" not in browser_of(make_superuser()).get(history_of(make_author("Frank"))).text


def test_of_a_model_that_nobody_can_reach_no_calls_are_shown() -> None:
    user = make_superuser()
    assert "Who read it" not in browser_of(user).get(f"/admin/auth/user/{user.pk}/history/").text
