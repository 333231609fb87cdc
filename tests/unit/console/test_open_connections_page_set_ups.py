import pytest

from mcp_django.transports.client_configs import CLIENTS
from tests.unit.console.conftest import url

pytestmark = pytest.mark.django_db
NOBODY = "http://127.0.0.1:1"


@pytest.fixture(autouse=True)
def nobody_answers(settings):
    settings.MCP_DJANGO = {**settings.MCP_DJANGO, "BASE_URL": NOBODY}


def test_each_client_has_its_set_up_with_the_address_of_the_site(admin):
    text = admin.get(url("connect")).text
    for client in CLIENTS.values():
        assert f"<summary>{client.title}</summary>" in text
    assert f"{NOBODY}/mcp" in text
    assert "data-copy=" in text
    for scheme in ("cursor://", "vscode:mcp/install?", "goose://extension?"):
        assert f'<a class="button" href="{scheme}' in text
    # What has no file of its own is shown as well.
    assert "&quot;type&quot;: &quot;http&quot;" in text.partition("Another client (JSON)")[2]


def test_nothing_is_reached_before_it_is_asked_for(admin):
    assert [endpoint["findings"] for endpoint in admin.get(url("connect")).context["endpoints"]] == [None]


def test_what_clients_read_first_is_looked_for(admin):
    (endpoint,) = admin.post(url("connect")).context["endpoints"]
    assert [item.verdict for item in endpoint["findings"]] == ["error"]
    assert "cannot be reached" in admin.post(url("connect")).text


def test_a_site_without_an_address_says_so(admin, settings):
    settings.MCP_DJANGO = {**settings.MCP_DJANGO, "BASE_URL": ""}
    assert "BASE_URL" in admin.get(url("connect")).text
