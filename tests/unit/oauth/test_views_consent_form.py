from django.http import QueryDict

from mcp_django.oauth.views import ConsentForm

QUERY = "client_id=a&redirect_uri=https://a/&response_type=code&scope=mcp:read+mcp:write&state=%20s%20"


def cleaned(answer: str) -> dict[str, object]:
    form = ConsentForm(QueryDict(f"{QUERY}&{answer}"))
    assert form.is_valid(), form.errors
    return form.cleaned_data


def test_what_was_ticked_is_granted_in_the_order_asked() -> None:
    data = cleaned("allow=1&granted=mcp:write&granted=mcp:read")
    assert data["allow"] is True
    assert data["scope"] == "mcp:read mcp:write"


def test_what_was_not_asked_for_is_not_granted() -> None:
    assert cleaned("allow=1&granted=mcp:read&granted=mcp:admin")["scope"] == "mcp:read"


def test_nothing_ticked_allows_nothing() -> None:
    assert cleaned("allow=1")["allow"] is False
    assert cleaned("deny=1&granted=mcp:read")["allow"] is False


def test_the_state_is_not_touched() -> None:
    assert cleaned("")["state"] == " s "


def test_a_form_without_its_request_is_invalid() -> None:
    assert not ConsentForm(QueryDict("allow=1&granted=mcp:read")).is_valid()
