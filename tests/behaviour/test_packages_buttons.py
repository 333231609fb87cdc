"""Buttons that packages add to a change page, as actions on rows: django-object-actions and django-fsm-2."""

from collections.abc import Iterator
from typing import Any

import pytest
from django.apps import apps
from django.contrib import admin, messages
from django.contrib.auth.models import Permission, User
from django.contrib.contenttypes.models import ContentType
from django.db import connection, models
from django.http import HttpResponse
from django.urls import include, path

from mcp_django import MCPSite
from mcp_django.testing import MCPClient
from tests.factories import make_superuser, make_user

django_fsm = pytest.importorskip("django_fsm")
fsm_admin = pytest.importorskip("django_fsm.admin")
object_actions = pytest.importorskip("django_object_actions")

pytestmark = [pytest.mark.urls(__name__), pytest.mark.django_db(transaction=True)]


class Article(models.Model):
    title = models.CharField(max_length=20)
    state = django_fsm.FSMField(default="draft", protected=True)

    class Meta:
        app_label = "buttons"

    @django_fsm.transition(field=state, source="draft", target="published", custom={"admin": True, "label": "Publish"})
    def publish(self) -> None:
        pass

    @django_fsm.transition(
        field=state, source="published", target="gone", permission=lambda row, user: user.is_superuser
    )
    def withdraw(self) -> None:
        pass

    @django_fsm.transition(field=state, source="*", target="gone", custom={"admin": True})
    def destroy(self) -> None:
        raise RuntimeError("SELECT secret")

    @django_fsm.transition(field=state, source="*", target="hidden", custom={"admin": False})
    def hide(self) -> None:
        pass

    publish.mcp_destructive = False
    destroy.mcp_destructive = False


class ArticleAdmin(object_actions.DjangoObjectActions, fsm_admin.FSMAdminMixin, admin.ModelAdmin):  # type: ignore[name-defined,misc,type-arg]
    fsm_fields = ["state"]
    change_actions = ["shout", "erase", "preview"]

    def get_change_actions(self, request: Any, object_id: Any, form_url: Any) -> list[str]:
        quiet = Article.objects.filter(pk=object_id, title="Quiet").exists()
        return ["erase"] if quiet else ["shout", "erase", "preview"]

    @object_actions.action(label="Shout", description="Write the title in capitals")
    def shout(self, request: Any, obj: Any) -> None:
        obj.title = obj.title.upper()
        obj.save()
        self.message_user(request, f"{obj.title}!", messages.SUCCESS)

    shout.mcp_destructive = False

    def erase(self, request: Any, obj: Any) -> None:
        obj.delete()

    @object_actions.action(methods=("GET",), permissions=["view"])
    def preview(self, request: Any, obj: Any) -> HttpResponse:
        assert request.method == "GET"
        return HttpResponse(f"<p>{obj.title}</p>")


admin_site = admin.AdminSite(name="admin")
admin_site.register(Article, ArticleAdmin)
own = MCPSite("own", admin_site=admin_site)
urlpatterns = [path("mcp", own.urls), path("admin/", admin_site.urls), path("", include("mcp_django.oauth.urls"))]
ARTICLE = {"model": "buttons.article"}


@pytest.fixture(autouse=True)
def table() -> Iterator[None]:
    with connection.schema_editor() as editor:
        editor.create_model(Article)
    yield
    with connection.schema_editor() as editor:
        editor.delete_model(Article)


@pytest.fixture(autouse=True, scope="module")
def known() -> Iterator[None]:
    yield
    del apps.all_models["buttons"]
    apps.clear_cache()


@pytest.fixture
def client() -> MCPClient:
    return MCPClient(make_superuser())


def test_buttons_of_the_change_page_are_tools(client: MCPClient) -> None:
    tools = {tool["name"]: tool for tool in client.tools()}
    names = {name.removesuffix("_buttons_article") for name in tools if name.endswith("_buttons_article")}
    # The package's own admin does not show "hide".
    assert names == {"shout", "erase", "preview", "publish", "destroy", "withdraw"}
    assert tools["publish_buttons_article"]["description"].startswith("Publish\nRuns on rows of buttons.article.")
    assert tools["shout_buttons_article"]["description"].startswith("Write the title in capitals\n")


def test_a_transition_runs_on_the_rows_that_are_in_its_state(client: MCPClient) -> None:
    one, two = Article.objects.create(title="One"), Article.objects.create(title="Two")
    done = client.call("publish_buttons_article", pks=[one.pk])
    assert not done.is_error, done.text
    one = Article.objects.get(pk=one.pk)
    assert one.state == "published"
    refused = client.call("publish_buttons_article", pks=[two.pk, one.pk])
    assert refused.is_error
    assert f"The page of the row {one.pk} does not show publish at present. It shows destroy, withdraw." in refused.text
    assert Article.objects.get(pk=two.pk).state == "draft", "no row is changed if one cannot be"


def test_a_transition_that_fails_is_told_in_the_packages_words_and_undone(client: MCPClient) -> None:
    one = Article.objects.create(title="One")
    failed = client.call("destroy_buttons_article", pks=[one.pk])
    assert failed.is_error
    assert failed.text.startswith("Nothing was changed. The admin says: ")
    assert Article.objects.get(pk=one.pk).state == "draft"


def test_a_button_runs_on_the_rows_whose_page_shows_it(client: MCPClient) -> None:
    loud, quiet = Article.objects.create(title="Loud"), Article.objects.create(title="Quiet")
    done = client.call("shout_buttons_article", pks=[loud.pk])
    assert done.structured["messages"] == [{"level": "success", "text": "LOUD!"}]
    assert "does not show shout" in client.call("shout_buttons_article", pks=[quiet.pk]).text
    assert Article.objects.get(pk=quiet.pk).title == "Quiet"


def test_a_button_that_nobody_has_declared_harmless_asks(client: MCPClient) -> None:
    one = Article.objects.create(title="One")
    preview = client.call("erase_buttons_article", pks=[one.pk])
    assert preview.structured["confirmation_required"]
    client.call("erase_buttons_article", pks=[one.pk], confirm_token=preview.structured["confirm_token"])
    assert not Article.objects.exists()


def test_a_button_that_only_shows_a_page(client: MCPClient) -> None:
    one, two = Article.objects.create(title="One"), Article.objects.create(title="Two")
    assert client.call("preview_buttons_article", pks=[one.pk]).structured["text"] == "One"
    assert "run it on one row" in client.call("preview_buttons_article", pks=[one.pk, two.pk]).text


def test_a_transition_with_a_permission_of_its_own_is_for_those_who_have_it(client: MCPClient) -> None:
    ContentType.objects.clear_cache()
    kind = ContentType.objects.get_for_model(Article)
    editor = make_user("editor")
    for action in ("view", "change"):
        codename = f"{action}_article"
        permission, _ = Permission.objects.get_or_create(
            content_type=kind, codename=codename, defaults={"name": action}
        )
        editor.user_permissions.add(permission)
    one = Article.objects.create(title="One")
    Article.objects.filter(pk=one.pk).update(state="published")
    theirs = MCPClient(User.objects.get(pk=editor.pk), answers={"_confirm": True})
    refused = theirs.call("withdraw_buttons_article", pks=[one.pk])
    assert "does not show withdraw" in refused.text
    mine = MCPClient(User.objects.get(username="root"), answers={"_confirm": True})
    assert mine.call("withdraw_buttons_article", pks=[one.pk]).structured["done"]
    assert Article.objects.get(pk=one.pk).state == "gone"
