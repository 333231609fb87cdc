"""Which names hold credentials, alone and with the model that they are of."""

import secrets
import uuid
from functools import partial
from time import process_time
from typing import Any, ClassVar

import pytest
from django.contrib import admin, messages
from django.contrib.sessions.base_session import AbstractBaseSession
from django.db import models
from django.test.utils import isolate_apps
from django.urls import include, path
from django.utils.crypto import get_random_string

from mcp_django import MCPSite
from mcp_django.orm.labels import plain_label
from mcp_django.schema.secrets import (
    HIDDEN,
    _of_auth,
    clean_text,
    holds_hidden,
    is_sensitive,
    members,
    needs_registration,
    without_secrets,
)
from mcp_django.testing import MCPClient
from tests.factories import make_author, make_superuser
from tests.testapp.models import Author, Note, Profile


def model_of(name: str, **fields: Any) -> type[models.Model]:
    with isolate_apps("tests.testapp"):
        attributes = {"__module__": "tests.testapp.models", "Meta": type("Meta", (), {"app_label": "testapp"})}
        return type(name, (models.Model,), attributes | fields)


def text() -> Any:
    return models.CharField(max_length=100)


@pytest.mark.parametrize(
    "name",
    "password apiKey session_data certificate_key cert_key client_key webhook_key hmac_key master_key backup_codes "
    "hotp_seed TOTPSecret userPIN".split(),
)
def test_row_129_names_that_say_it_by_themselves(name: str) -> None:
    assert is_sensitive(name)


@pytest.mark.parametrize("name", "key code data value seed digest keyboard public_key_id metadata certificate".split())
def test_names_that_do_not(name: str) -> None:
    assert not is_sensitive(name)


@pytest.mark.parametrize("model", "Authenticator EmailConfirmation HOTPDevice TOTPDevice AuthToken Passkey".split())
@pytest.mark.parametrize("name", ["key", "code", "data", "seed", "value"])
def test_row_129_a_name_that_says_nothing_is_one_in_a_model_of_credentials(model: str, name: str) -> None:
    holder = model_of(model, **{name: text()})
    assert is_sensitive(name, holder)
    assert not is_sensitive("title", holder)


@pytest.mark.parametrize("model", "Device Author Keyboard Preference Hotplate".split())
def test_a_key_of_another_model_is_none(model: str) -> None:
    assert not any(is_sensitive(name, model_of(model, key=text(), value=text())) for name in ("key", "value"))


def test_row_129_a_key_beside_a_credential_is_one() -> None:
    assert is_sensitive("key", model_of("App", key=text(), client_secret=text()))
    assert not is_sensitive("code", model_of("App", code=text(), client_secret=text()))
    assert not is_sensitive("key", model_of("App", key=text(), is_secret=models.BooleanField()))


def drawn() -> str:
    return get_random_string(32)


@pytest.mark.parametrize(
    "name", "ping_key feed_key invite_code unsubscribe_key one_time_code share_key pingKey".split()
)
def test_row_129_a_key_that_opens_an_address_is_one(name: str) -> None:
    assert is_sensitive(name, model_of("Project", **{name: text()}))


@pytest.mark.parametrize("name", ["key", "widget_key", "widgetKey"])
@pytest.mark.parametrize("default", [drawn, partial(get_random_string, 32), partial(secrets.token_urlsafe, 24)])
def test_row_129_a_key_that_is_drawn_is_one(name: str, default: Any) -> None:
    assert is_sensitive(name, model_of("Widget", **{name: models.CharField(max_length=64, default=default)}))
    assert is_sensitive(name, model_of("Widget", **{name: models.TextField(default=default)}))


@pytest.mark.parametrize(
    ("name", "field"),
    [
        ("sort_key", models.CharField(max_length=100)),
        ("cache_key", models.CharField(max_length=250, unique=True)),
        ("key", models.CharField(max_length=100, unique=True)),
        ("key", models.SlugField(default=drawn)),
        ("key", models.CharField(max_length=64, default=drawn, primary_key=True)),
        ("translation_key", models.UUIDField(default=uuid.uuid4)),
        ("issue_key", models.CharField(max_length=10, default=drawn)),
        ("colour_key", models.CharField(max_length=64, default=str)),
        ("code", models.CharField(max_length=64, default=drawn)),
        ("key", models.CharField(max_length=64, default=drawn, choices=[("a", "A")])),
    ],
)
def test_an_ordinary_key_is_none(name: str, field: Any) -> None:
    assert not is_sensitive(name, model_of("Widget", **{name: field}))


def test_row_129_a_key_that_confirms_something_is_one() -> None:
    done = models.BooleanField(default=False)
    subscriber = model_of("Subscriber", email=models.EmailField(), key=text(), confirmed=done)
    assert is_sensitive("key", subscriber)
    assert is_sensitive("key", model_of("SignUp", key=text()))
    assert is_sensitive("code", model_of("SiteInvite", code=text()))
    assert not is_sensitive("key", model_of("Phrase", key=text(), verified=models.BooleanField()))
    assert not is_sensitive("data", model_of("SiteInvite", data=text()))
    assert not is_sensitive("code", model_of("Invite", code=models.CharField(max_length=3)))


def test_row_129_secrets_within_json_are_hidden_and_numbers_are_not() -> None:
    value = {
        "certificate_key": "abc",
        "tokens": 152,
        "password": None,
        "secret": "",
        "name": "x",
        "secrets": ["a"],
        3: 4,
    }
    shown = {"certificate_key": HIDDEN, "tokens": 152, "password": None, "secret": "", "name": "x", "secrets": HIDDEN}
    assert dict(members(value)) == {**shown, "3": 4}


@pytest.mark.parametrize(
    ("value", "found"),
    [
        ({"a": [{"b": HIDDEN}]}, True),
        (HIDDEN, True),
        ([HIDDEN], True),
        ({"a": f"{HIDDEN}!"}, False),
        ({HIDDEN: 1}, False),
        (None, False),
    ],
)
def test_what_hides_a_secret_is_found_before_it_is_written(value: Any, found: bool) -> None:
    assert holds_hidden(value) is found


@pytest.mark.parametrize(
    "name",
    "smtp_pass db_pass userPass pass auth p256dh activation_code activation_key hashed_key key_digest api_key_hash "
    "verification_code login_code".split(),
)
def test_row_129_more_names_that_say_it(name: str) -> None:
    assert is_sensitive(name)
    assert is_sensitive(name, model_of("Thing", **{name: text()}))


@pytest.mark.parametrize("name", "iban cvc_check token_type passport compass bypass_rules author_code".split())
def test_what_is_about_a_secret_is_none(name: str) -> None:
    assert not is_sensitive(name)


def test_the_kind_of_a_field_counts_not_its_name_alone() -> None:
    thing = model_of(
        "Thing",
        default_api_key=models.BooleanField(),
        password_changed=models.DateTimeField(),
        token_kind=models.CharField(max_length=9, choices=[("a", "A")]),
        secret=text(),
    )
    assert [field.name for field in thing._meta.fields if is_sensitive(field.name, thing)] == ["secret"]


def test_a_link_is_a_secret_where_the_key_that_it_stores_is() -> None:
    with isolate_apps("tests.testapp"):

        class Meta:
            app_label = "testapp"

        def made(name: str, /, **fields: Any) -> Any:
            return type(name, (models.Model,), {"__module__": __name__, "Meta": Meta, **fields})

        ticket = made("Visit", session_key=models.CharField(max_length=40, primary_key=True))
        key = made("Credit", name=text())
        order = made(
            "Order",
            visit=models.ForeignKey(ticket, models.CASCADE),
            default_api_key=models.ForeignKey(key, models.CASCADE),
        )
        assert is_sensitive("visit", order)
        assert not is_sensitive("default_api_key", order)
        assert (needs_registration(ticket), needs_registration(key), needs_registration(order)) == (True, False, False)


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ('{"password": "x \\" y", "a": 1}', '{"password": "<hidden>", "a": 1}'),
        ("got {'api_key': 'abc', 'n': 3}", "got {'api_key': \"<hidden>\", 'n': 3}"),
        ('{"tokens": ["a]", "b"], "x": {"secret": "q"}}', '{"tokens": "<hidden>", "x": {"secret": "<hidden>"}}'),
        ('{"credentials": {"a": {"b": "}c"}, "d": 1}, "e": 2}', '{"credentials": "<hidden>", "e": 2}'),
        ('{"token": "", "token_type": "Bearer", "tokens": 12}', '{"token": "", "token_type": "Bearer", "tokens": 12}'),
        ('{"password": "cut of', '{"password": "<hidden>"'),
        ("redis://:pw@host/0, https://u:p%40x@host/a", "redis://:<hidden>@host/0, https://u:<hidden>@host/a"),
        ("https://user@host:8080/a:b@c and me@host", "https://user@host:8080/a:b@c and me@host"),
        ("plain text: {braces}", "plain text: {braces}"),
    ],
)
def test_row_129_secrets_within_texts_are_hidden(given: str, shown: str) -> None:
    assert without_secrets(given) == shown
    assert without_secrets(shown) == shown


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ("The API key for X is: AbC1.0123456789abcdef. Store it", "The API key for X is: <hidden> Store it"),
        ("New password: hunter2hunter2", "New password: <hidden>"),
        ("3 orders of 2026-01-01T12:00 were shipped", "3 orders of 2026-01-01T12:00 were shipped"),
        ("The code was sent by e-mail", "The code was sent by e-mail"),
    ],
)
def test_row_129_a_new_secret_in_a_message_is_for_the_person(given: str, shown: str) -> None:
    assert without_secrets(given, is_shown_once=True) == shown


@pytest.mark.parametrize(
    "long",
    [
        '{"a":"' * 50_000,
        "{" + '"password":"' * 50_000,
        "{" + '"password":[' * 50_000,
        '{"password":{' * 50_000,
        "key " + "a1" * 200_000,
        "://" + "a:" * 100_000 + "@",
        "://a:b" * 50_000 + "@",
        "{" + "'" * 200_000,
    ],
    ids=range(8),
)
def test_long_texts_take_no_more_time_than_their_length(long: str) -> None:
    started = process_time()
    without_secrets(long, is_shown_once=True)
    assert process_time() - started < 3


class AuthorAdmin(admin.ModelAdmin):
    list_display = ["name", "email"]
    actions = ["renew"]

    @admin.action(permissions=["change"])
    def renew(self, request: Any, queryset: Any) -> None:
        self.message_user(request, "The new API key is ak_0123456789abcdefXYZ. Store it now.")

    renew.mcp_destructive = False  # type: ignore[attr-defined]

    def save_model(self, request: Any, obj: Any, form: Any, change: bool) -> None:
        super().save_model(request, obj, form, change)
        messages.info(request, f"Password of {obj.name}: s3cretpassword99")


class ProfileAdmin(admin.ModelAdmin):
    # Django 5.2 warns of a default that changes with 6.0.
    formfield_overrides: ClassVar[Any] = {models.URLField: {"assume_scheme": "https"}}


class VisitAdmin(admin.ModelAdmin):
    """Of a model whose rows are sessions."""


office = admin.AdminSite(name="secrets")
office.register(Author, AuthorAdmin)
office.register(Profile, ProfileAdmin)
site = MCPSite("secrets", admin_site=office)
urlpatterns = [path("office/", office.urls), path("mcp", site.urls), path("", include("mcp_django.oauth.urls"))]


@pytest.fixture
def client(db: None) -> MCPClient:
    return MCPClient(make_superuser())


@pytest.mark.urls(__name__)
def test_row_129_secrets_in_texts_are_on_no_page_and_are_not_written_over(client: MCPClient) -> None:
    stored = '{"user": "ann", "password": "open sesame"}'
    author = make_author()
    url = "https://ann:sesame@example.com/"
    profile = Profile.objects.create(author=author, biography=stored, website=url)
    label = {"model": "testapp.profile"}
    for found in (
        client.call("query_records", **label, fields=["biography", "website"]).text,
        client.call("get_record", **label, pk=profile.pk).text,
        client.call("aggregate_records", **label, group_by=["website"]).text,
        client.read(f"django://testapp/profile/{profile.pk}")[0]["text"],
        client.call("update_record", **label, pk=profile.pk, values={"website": url}).text,
    ):
        assert "sesame" not in found
        assert "<hidden>" in found
    shown = client.call("get_record", **label, pk=profile.pk).structured["fields"]
    for name in ("biography", "website"):
        refused = client.call("update_record", **label, pk=profile.pk, values={name: shown[name]})
        assert refused.is_error
        assert "stands for a secret" in refused.text
    profile.refresh_from_db()
    assert (profile.biography, profile.website) == (stored, url)


@pytest.mark.urls(__name__)
@pytest.mark.parametrize("made", [lambda self: self.secret_token, lambda self: f"{self.name}: {self.secret_token}"])
def test_row_129_a_label_shows_no_secret_of_its_row(
    client: MCPClient, made: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Author, "__str__", made)
    plain_label.cache_clear()
    author = make_author("Ann", secret_token="open sesame")
    profile = Profile.objects.create(author=author)
    for found in (
        client.call("get_record", model="testapp.author", pk=author.pk).text,
        client.call("get_record", model="testapp.profile", pk=profile.pk).text,
        client.call("query_records", model="testapp.profile").text,
        client.call("query_records", model="testapp.profile", fields=["author"]).text,
    ):
        assert "sesame" not in found
    plain_label.cache_clear()


@pytest.mark.urls(__name__)
def test_row_129_new_secrets_in_messages_are_not_the_models(client: MCPClient) -> None:
    author = make_author("Ann")
    done = client.call("renew_testapp_author", pks=[author.pk])
    assert "The new API key is <hidden>" in done.text
    assert "ak_0123" not in done.text
    saved = client.call("update_record", model="testapp.author", pk=author.pk, values={"email": "a@example.com"})
    assert "Password of Ann: <hidden>" in saved.text
    assert "s3cret" not in saved.text


def test_row_129_models_of_sessions_and_of_secret_keys_are_closed() -> None:
    with isolate_apps("tests.testapp"):

        class Visit(AbstractBaseSession):
            class Meta(AbstractBaseSession.Meta):
                app_label = "testapp"

        class Door(models.Model):
            class Meta:
                app_label = "testapp"

            activation_key = models.CharField(max_length=40, primary_key=True)

    gate = admin.AdminSite(name="gate")
    gate.register([Visit, Door, Author], VisitAdmin)
    assert list(MCPSite("gate", admin_site=gate, history=False).exposures) == [Author]
    assert not MCPSite("gate too", admin_site=gate).may_show(Door)


def test_a_relation_to_any_model_is_no_secret() -> None:
    assert not is_sensitive("target", Note)


def test_without_djangos_users_there_are_no_classes_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    assert len(_of_auth("AbstractUser", "Group")) == 2
    monkeypatch.setattr("django.apps.apps.is_installed", lambda name: False)
    assert _of_auth("AbstractUser", "Group") == ()


def test_a_long_word_without_a_digit_is_no_new_secret() -> None:
    assert (
        without_secrets("Your password is unchangeable-as-ever", is_shown_once=True)
        == "Your password is unchangeable-as-ever"
    )


@pytest.mark.parametrize(
    "text",
    [
        "see postgres://bob:hunter2hunter2hunter2@db/x for more",
        'cfg {"api_key": "hunter2hunter2hunter2", "x": 1} end',
        "cfg {'contraseña_token': 'hunter2hunter2hunter2'} end",
        f"redis://:{'hunter2' * 300}@cache/0 and more",
    ],
)
def test_no_cut_shows_a_part_of_a_secret(text: str) -> None:
    assert "hunter2" not in clean_text(text)
    for limit in range(1, min(len(text), 2_500)):
        assert "hunt" not in clean_text(text, limit), limit


def test_a_text_without_a_secret_is_cut_where_it_was_asked_for() -> None:
    text = "see http://localhost:8080/a and " * 40
    assert clean_text(text, 100) == f"{text[:100]}…(+{len(text) - 100} chars)"
