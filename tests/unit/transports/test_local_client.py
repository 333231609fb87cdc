import pytest
from django.contrib.auth import get_user_model
from django.core.exceptions import PermissionDenied

from mcp_django import site
from mcp_django.transports.local_client import LocalClient
from tests.factories import make_author, make_superuser, make_user

pytestmark = pytest.mark.django_db
BOTH = ["mcp:read", "mcp:write"]


def test_it_lists_and_calls_as_the_user():
    author = make_author()
    client = LocalClient(site, make_superuser(), BOTH)
    assert "query_records" in {tool["name"] for tool in client.request("tools/list")["tools"]}
    result = client.request(
        "tools/call", name="get_record", arguments={"model": "testapp.author", "pk": str(author.pk)}
    )
    assert author.name in result["content"][0]["text"]
    assert client.new_request().user.is_superuser


def test_it_does_no_more_than_the_user_and_the_scopes_allow():
    stranger = LocalClient(site, make_user("stranger"), BOTH)
    assert stranger.request("tools/list")["tools"] == []
    reader = LocalClient(site, make_superuser(), ["mcp:read"])
    with pytest.raises(LocalClient.CallFailed, match="mcp:write"):
        reader.request(
            "tools/call", name="create_record", arguments={"model": "testapp.author", "values": {"name": "x"}}
        )


def test_what_destroys_answers_with_a_token_as_nobody_can_be_asked():
    author = make_author()
    client = LocalClient(site, make_superuser(), BOTH)
    arguments = {"model": "testapp.author", "pk": str(author.pk)}
    asked = client.request("tools/call", name="delete_record", arguments=arguments)
    token = asked["structuredContent"]["confirm_token"]
    author.refresh_from_db()
    client.request("tools/call", name="delete_record", arguments={**arguments, "confirm_token": token})
    assert not type(author).objects.filter(pk=author.pk).exists()


def test_tools_of_the_project_run_whether_they_wait_or_not(tools):
    def slow(request) -> str:
        """Work."""
        return str(request.user)

    async def waiting(request) -> str:
        """Wait."""
        return str(request.user)

    tools(slow)
    tools(waiting)
    client = LocalClient(site, make_superuser("root"), BOTH)
    for name in ("slow", "waiting"):
        assert client.request("tools/call", name=name)["content"][0]["text"] == "root"


@pytest.mark.parametrize("method", ["no/such", "subscriptions/listen"])
def test_what_has_no_result_is_refused(method):
    with pytest.raises(LocalClient.CallFailed):
        LocalClient(site, make_superuser(), BOTH).request(method, notifications={"toolsListChanged": True})


def test_a_user_who_was_deactivated_is_refused():
    user = make_superuser()
    client = LocalClient(site, user, BOTH)
    get_user_model().objects.update(is_active=False)
    with pytest.raises(LocalClient.CallFailed, match="not active"):
        client.request("tools/list")


def test_a_failure_is_told_with_its_id(tools):
    def broken(request) -> str:
        """Fail."""
        raise PermissionDenied

    tools(broken)
    assert LocalClient(site, make_superuser(), BOTH).request("tools/call", name="broken")["isError"]
