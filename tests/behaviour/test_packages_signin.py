"""An admin behind a second factor, reached by clients: whoever gave it at the consent page is verified, nobody else."""

from typing import Any

import pytest
from django.apps import apps
from django.core import checks
from django.test import Client

if not apps.is_installed("tests.packages_project.shelf"):
    pytest.skip("needs the settings of the packages project", allow_module_level=True)

from django.contrib.auth.models import User
from django_otp.plugins.otp_static.models import StaticDevice
from django_otp.plugins.otp_totp.models import TOTPDevice

from mcp_django.oauth.bearer import verify
from mcp_django.oauth.stored_tokens import create_token
from mcp_django.subscriptions.subscribers import Subscriber
from mcp_django.testing import MCPClient
from tests.oauth_flow import ORIGIN, Flow
from tests.packages_project.shelf.models import Parcel
from tests.packages_project.vault import vault
from tests.tool_calls import request_of

pytestmark = pytest.mark.django_db
RESOURCE = f"{ORIGIN}/vault-mcp"


@pytest.fixture
def device() -> StaticDevice:
    root = User.objects.create_superuser("root", "root@example.com", "pw")
    device = StaticDevice.objects.create(user=root, name="keys")
    for number in range(5):
        device.token_set.create(token=f"key{number}")
    Parcel.objects.create(name="Diamonds")
    return device


class Vault(Flow):
    """A client of the endpoint, and a browser that signs in on the admin's own page or without a second factor."""

    def __init__(self, device: StaticDevice | None = None, key: str = "key0") -> None:
        super().__init__(username="root")
        if device is not None:
            self.browser = Client()
            form = {"username": "root", "password": "pw", "otp_device": device.persistent_id, "otp_token": key}
            assert self.browser.post("/vault/login/?next=/vault/", form).status_code == 302

    def query(self, **changes: Any) -> dict[str, Any]:
        return super().query(**{"resource": RESOURCE, **changes})

    def exchange(self, code: str, **changes: Any) -> Any:
        return super().exchange(code, **{"resource": RESOURCE, **changes})


def client_of(token: str) -> MCPClient:
    client = MCPClient(path="/vault-mcp")
    client.headers["Authorization"] = f"Bearer {token}"
    return client


def names(token: str) -> list[str]:
    return [row[1] for row in client_of(token).call("query_records", model="shelf.parcel").structured["rows"]]


def assert_refused_in_words(token: str) -> None:
    client = client_of(token)
    assert [tool["name"] for tool in client.tools()] == ["list_models"]
    told = client.call("list_models")
    assert told.is_error
    assert "second factor" in told.text
    assert "second factor" in client.request("server/discover")["instructions"]


def test_who_gave_a_second_factor_is_verified_in_each_call_and_after_refreshes(device: StaticDevice) -> None:
    flow = Vault(device)
    assert "second factor" not in flow.ask().content.decode()
    tokens = flow.tokens()
    for _ in range(2):
        assert names(tokens["access_token"]) == ["Diamonds"]
        tokens = flow.refresh(tokens["refresh_token"]).json()
    made = client_of(tokens["access_token"]).call("create_record", model="shelf.parcel", values={"name": "Gold"})
    assert not made.is_error
    assert Parcel.objects.filter(name="Gold").exists()


def test_a_password_alone_is_refused_in_words_to_the_person_and_the_model(device: StaticDevice) -> None:
    flow = Vault()
    assert "second factor" in flow.ask().content.decode()
    assert_refused_in_words(flow.tokens()["access_token"])


def test_a_token_that_was_made_without_a_sign_in_is_not_verified(device: StaticDevice) -> None:
    _, token = create_token(device.user, scopes=["mcp:write"], resources=[RESOURCE])
    assert_refused_in_words(token)


@pytest.mark.parametrize("change", ["deleted", "unconfirmed", "given away"])
def test_a_device_that_is_not_the_users_any_more_verifies_nobody(device: StaticDevice, change: str) -> None:
    flow = Vault(device)
    tokens = flow.tokens()
    if change == "deleted":
        device.delete()
    elif change == "unconfirmed":
        StaticDevice.objects.update(confirmed=False)
    else:
        StaticDevice.objects.update(user=User.objects.create_superuser("other", "other@example.com", "pw"))
    assert_refused_in_words(tokens["access_token"])
    assert_refused_in_words(flow.refresh(tokens["refresh_token"]).json()["access_token"])


def test_a_wrong_key_signs_nobody_in(device: StaticDevice) -> None:
    with pytest.raises(AssertionError):
        Vault(device, "wrong")


def test_the_default_admin_and_its_hooks_find_the_device_too(device: StaticDevice) -> None:
    flow = Vault(device)
    _, token = verify(flow.tokens()["access_token"], RESOURCE)
    request = request_of(device.user, vault)
    request.mcp.facts = token.facts
    hooked = Subscriber(request).request(User.objects.get(pk=device.user_id))
    assert hooked.user.is_verified()
    assert hooked.user.otp_device == device
    assert not TOTPDevice.objects.exists()


def test_one_query_more_and_only_for_who_was_verified(device: StaticDevice, django_assert_num_queries: Any) -> None:
    verified, unverified = Vault(device).tokens()["access_token"], Vault().tokens()["access_token"]
    for token, queries in ((verified, 2), (unverified, 1)):
        client_of(token).request("server/discover")
        with django_assert_num_queries(queries):
            client_of(token).send("ping", {})


def test_the_checks_name_an_admin_that_asks_for_what_no_token_has(settings: Any) -> None:
    def found() -> set[str]:
        return {str(message.id) for message in checks.run_checks() if "vault" in message.msg}

    # Its login page is that of the other admin.
    settings.LOGIN_URL = "admin:login"
    assert found() == {"mcp_django.W145"}
    settings.LOGIN_URL = "vault:login"
    assert found() == set()
    settings.MCP_DJANGO = {**settings.MCP_DJANGO, "SIGN_IN_FACTS": []}
    assert found() == {"mcp_django.W144"}


def test_the_checks_name_a_middleware_that_is_missing(settings: Any) -> None:
    settings.MIDDLEWARE = [name for name in settings.MIDDLEWARE if "OTPMiddleware" not in name]
    assert "mcp_django.W144" in {message.id for message in checks.run_checks()}
