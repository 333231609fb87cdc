import uuid

import pytest

from mcp_django.console import health_checks_page
from mcp_django.console.health_checks_page import CheckResult, reached
from tests.unit.console.conftest import url

pytestmark = pytest.mark.django_db
NOBODY = "http://127.0.0.1:1"


@pytest.fixture(autouse=True)
def nobody_answers(settings):
    settings.MCP_DJANGO = {**settings.MCP_DJANGO, "BASE_URL": NOBODY}


def found(browser):
    return {item.title: item for item in browser.post(url("health")).context["findings"]}


def test_nothing_is_checked_before_it_is_asked_for(admin, monkeypatch):
    monkeypatch.setattr(health_checks_page, "reached", None)
    monkeypatch.setattr(health_checks_page, "of_settings", None)
    assert admin.get(url("health")).context["findings"] is None


def test_an_endpoint_that_cannot_be_reached_is_told_with_what_mends_it(admin):
    finding = found(admin)[f"Endpoint · {NOBODY}/mcp"]
    assert finding.verdict == "error"
    assert "cannot be reached" in finding.seen
    assert finding.remedy


def test_tables_cache_and_channel_layer_are_looked_at(admin):
    findings = found(admin)
    assert [findings[title].verdict for title in ("Tables of mcp_django", "Tables of oauth2_provider")] == ["ok", "ok"]
    assert findings["Cache"].verdict == "ok"
    assert findings["Channel layer"].verdict in ("ok", "info")


@pytest.mark.parametrize("layer", ["core.RedisChannelLayer", "pubsub.RedisPubSubChannelLayer"])
def test_a_channel_layer_that_does_not_answer_is_told_with_the_cause(admin, settings, layer):
    config = {"hosts": [{"address": "redis://:word@127.0.0.1:1"}]}
    settings.CHANNEL_LAYERS = {"default": {"BACKEND": f"channels_redis.{layer}", "CONFIG": config}}
    finding = found(admin)["Channel layer"]
    assert finding.verdict == "error"
    assert "127.0.0.1:1" in finding.seen
    assert "word" not in finding.seen
    assert "CHANNEL_LAYERS" in finding.remedy


@pytest.mark.parametrize("layer", ["core.RedisChannelLayer", "pubsub.RedisPubSubChannelLayer"])
def test_a_message_goes_through_the_channel_layer_and_comes_back(admin, settings, layer, redis):
    config = {"hosts": [redis], "prefix": uuid.uuid4().hex}
    settings.CHANNEL_LAYERS = {"default": {"BACKEND": f"channels_redis.{layer}", "CONFIG": config}}
    assert found(admin)["Channel layer"].verdict == "ok"


def test_a_cache_that_keeps_nothing_is_told(admin, settings):
    settings.CACHES = {"default": {"BACKEND": "django.core.cache.backends.dummy.DummyCache"}}
    assert found(admin)["Cache"].verdict == "error"


def test_a_migration_that_is_missing_is_told(admin):
    from django.db.migrations.recorder import MigrationRecorder

    last = MigrationRecorder.Migration.objects.filter(app="mcp_django").order_by("-name").first()
    name = last.name
    last.delete()
    finding = found(admin)["Tables of mcp_django"]
    assert (finding.verdict, finding.remedy) == ("error", "manage.py migrate")
    assert name in finding.seen


def test_what_the_system_checks_say_of_this_app_is_told_and_of_others_not(admin, settings):
    settings.CHANNEL_LAYERS = {"default": {"BACKEND": "channels.layers.InMemoryChannelLayer"}}
    findings = found(admin)
    assert findings["mcp_django.W016"].verdict == "warning"
    assert "CHANNEL_LAYERS" in findings["mcp_django.W016"].remedy
    assert not [title for title in findings if title.startswith("security.")]


def test_a_site_without_an_address_is_told(admin, settings):
    settings.MCP_DJANGO = {**settings.MCP_DJANGO, "BASE_URL": ""}
    assert "BASE_URL" in found(admin)["/mcp"].seen


def test_a_verdict_has_a_word():
    assert [CheckResult("", verdict, "").word for verdict in ("ok", "info", "warning", "error")] == [
        "well", "note", "warning", "wrong",
    ]  # fmt: skip


def test_it_ends_with_the_first_step_that_fails():
    assert [item.verdict for item in reached(f"{NOBODY}/mcp")] == ["error"]
