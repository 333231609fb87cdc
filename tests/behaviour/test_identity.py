"""Whoever names a thing in another case, or with a space at its end, names another thing, whatever the database says.

MySQL compares so by default; elsewhere the tests let Django's lookups do the same.
"""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.contrib.auth.models import Group
from django.core.management import CommandError, call_command
from django.test import override_settings
from oauth2_provider.models import AccessToken, Application, Grant

from mcp_django.exceptions import AuthenticationFailed, NotFound
from mcp_django.models import ClientHost, ClientKeys, KeyedCall, LinkedIdentity, Stream, Switch, TokenFacts
from mcp_django.oauth import client_documents, document_fetcher
from mcp_django.oauth.bearer import verify
from mcp_django.oauth.client_documents import DocumentRefused, decision_on, find_described
from mcp_django.oauth.identity_providers import give_groups, linked_identity
from mcp_django.oauth.stored_tokens import create_token, hashed_secret
from mcp_django.oauth.validator import MCPValidator
from mcp_django.operating.switches import end_switch, find_switches, set_switch
from mcp_django.orm.access import access_of
from mcp_django.orm.row_reading import FoundRow
from mcp_django.server.sessions import ClientSession
from mcp_django.server.stored_streams import SessionStreams, StoredStream
from mcp_django.testing import MCPClient
from mcp_django.tools.write_tools import DeleteRecord
from tests.configured import configure
from tests.factories import make_superuser, make_user
from tests.folding import folding_texts
from tests.identity_provider import ENTRY, ISSUER, settings_with
from tests.library import reader, site_with
from tests.oauth_flow import ORIGIN, RESOURCE, Flow
from tests.service_account import ask, ask_by_secret, basic, make_account
from tests.testapp.models import Shelf, Tag
from tests.tls_server import Authority, Redirected, TLSServer, answer, serving
from tests.tool_calls import call, refusal
from tests.unit.oauth.test_client_documents import DOCUMENT, HOST, URL, request
from tests.unit.oauth.test_identity_providers_linking import entry, nobody, spoken_of
from tests.unit.server.test_sessions import initialize, make_request

pytestmark = [pytest.mark.postgresql, pytest.mark.django_db]

Spelling = Callable[[str], str]


@pytest.fixture(autouse=True)
def texts_are_folded() -> Iterator[None]:
    with folding_texts():
        yield


@pytest.fixture(params=[str.swapcase, "{} ".format], ids=["case", "space"])
def other(request: pytest.FixtureRequest) -> Spelling:
    """Another spelling of a text, which such a database takes for the same."""
    spelling: Spelling = request.param
    return spelling


@pytest.fixture
def flow() -> Flow:
    return Flow()


def refused(response: Any, error: str, status: int = 400) -> bool:
    return bool(response.status_code == status and response.json()["error"] == error)


def test_texts_are_folded_here(other: Spelling) -> None:
    assert Tag.objects.filter(name=other(Tag.objects.create(name="Fiction").name)).exists()


# Codes and tokens


def test_a_code_is_good_only_as_it_was_made(flow: Flow, other: Spelling) -> None:
    code = flow.code()
    assert refused(flow.exchange(other(code)), "invalid_grant")
    assert not AccessToken.objects.exists()
    assert flow.exchange(code).status_code == 200


def test_a_code_in_another_spelling_does_not_lose_what_the_user_chose(flow: Flow, other: Spelling) -> None:
    code = flow.code()
    TokenFacts.objects.update(facts={"only_models": ["testapp.tag"]})
    flow.exchange(other(code))
    flow.exchange(code)
    token = AccessToken.objects.get()
    assert TokenFacts.objects.get(token=token.token_checksum).facts["only_models"] == ["testapp.tag"]


def test_a_used_code_in_another_spelling_ends_no_tokens(flow: Flow, other: Spelling) -> None:
    code = flow.code()
    tokens = flow.exchange(code).json()
    assert refused(flow.exchange(other(code)), "invalid_grant")
    assert verify(tokens["access_token"], RESOURCE)[0] == flow.user


def test_a_token_opens_only_as_it_was_issued(flow: Flow, other: Spelling) -> None:
    raw = create_token(flow.user, scopes=["mcp:read"], resources=[RESOURCE])[1]
    assert verify(raw, RESOURCE)[0] == flow.user
    with pytest.raises(AuthenticationFailed):
        verify(other(raw), RESOURCE)


def test_a_refresh_token_is_good_only_as_it_was_issued(flow: Flow, other: Spelling) -> None:
    refresh_token = flow.tokens()["refresh_token"]
    assert refused(flow.refresh(other(refresh_token)), "invalid_grant")
    assert flow.refresh(refresh_token).status_code == 200


def test_only_the_token_that_is_named_is_revoked(flow: Flow, other: Spelling) -> None:
    raw = flow.tokens()["access_token"]
    flow.application.post("/oauth/revoke_token/", {"token": other(raw), "client_id": flow.client_id})
    assert verify(raw, RESOURCE)[0] == flow.user


# Clients


def test_the_token_endpoint_knows_a_client_only_by_its_own_id(flow: Flow, other: Spelling) -> None:
    code = flow.code()
    assert refused(flow.exchange(code, client_id=other(flow.client_id)), "invalid_client", 401)
    assert not AccessToken.objects.exists()


def test_a_secret_is_taken_only_with_the_id_of_its_client(flow: Flow, other: Spelling) -> None:
    code = flow.code()
    Application.objects.update(client_type="confidential", client_secret=hashed_secret("s" * 40))
    wrong = basic(other(flow.client_id), "s" * 40)
    for sent in ({"client_id": None, "authorization": wrong}, {"client_secret": "s" * 40}):
        params = {"client_id": other(flow.client_id)} | sent
        headers = {"authorization": params.pop("authorization")} if "authorization" in params else {}
        data = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": flow.query()["redirect_uri"],
            "code_verifier": flow.verifier,
            **{key: value for key, value in params.items() if value is not None},
        }
        assert refused(flow.application.post("/oauth/token/", data, headers=headers), "invalid_client", 401)


def test_a_secret_that_is_hashed_anew_changes_no_other_client(flow: Flow, other: Spelling) -> None:
    Application.objects.update(client_secret=other("Secret" * 8), hash_client_secret=False)
    assert MCPValidator()._check_secret("Secret" * 8, "Secret" * 8)
    assert Application.objects.get().client_secret == other("Secret" * 8)


def test_the_consent_page_knows_a_client_only_by_its_own_id(flow: Flow, other: Spelling) -> None:
    page = flow.ask(client_id=other(flow.client_id))
    assert page.status_code == 400
    assert page.context["is_unknown"]


def test_nobody_is_asked_to_sign_in_for_a_client_of_another_id(flow: Flow, other: Spelling) -> None:
    flow.browser.logout()
    assert flow.ask().status_code == 200
    assert flow.ask(client_id=other(flow.client_id)).status_code == 302


def test_the_consent_form_gives_no_code_for_another_id(flow: Flow, other: Spelling) -> None:
    page = flow.ask()
    fields = {key: value for key, value in page.context["form"].initial.items() if value}
    fields |= {"granted": ["mcp:read"], "allow": "1", "client_id": other(flow.client_id)}
    assert flow.browser.post("/oauth/authorize/", fields).status_code == 400
    assert not Grant.objects.exists()


def test_a_client_revokes_only_by_its_own_id(flow: Flow, other: Spelling) -> None:
    raw = flow.tokens()["access_token"]
    flow.application.post("/oauth/revoke_token/", {"token": raw, "client_id": other(flow.client_id)})
    assert verify(raw, RESOURCE)[0] == flow.user


# Documents of clients


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture
def server(authority: Authority, monkeypatch: pytest.MonkeyPatch) -> Iterator[TLSServer]:
    with serving(authority.context(HOST)) as running:
        monkeypatch.setattr(document_fetcher, "Fetcher", lambda *options: Redirected(running, authority))
        running.answers[f"{HOST}/client.json"] = answer(DOCUMENT)
        yield running


OTHER_URL = URL.replace("client.json", "Client.json")


def test_a_document_of_another_url_is_never_taken_for_a_stored_one(server: TLSServer) -> None:
    stored = find_described(URL, request())
    back = {"client_id": OTHER_URL, "client_name": "Eve", "redirect_uris": ["https://client.example/eve"]}
    server.answers[f"{HOST}/Client.json"] = answer(back)
    with pytest.raises(DocumentRefused) as failure:
        find_described(OTHER_URL, request())
    assert failure.value.kind == "address"
    assert "another case" in str(failure.value.detail)
    kept = Application.objects.get()
    assert (kept.pk, kept.name, kept.redirect_uris) == (stored.pk, "Robot", "https://client.example/back")


def test_keys_of_another_document_stay_as_they_are(server: TLSServer) -> None:
    find_described(URL, request())
    ClientKeys.objects.create(client_id=URL, jwks_uri="https://client.example/keys")
    server.answers[f"{HOST}/Client.json"] = answer(DOCUMENT | {"client_id": OTHER_URL})
    with pytest.raises(DocumentRefused):
        find_described(OTHER_URL, request())
    assert ClientKeys.objects.get().jwks_uri == "https://client.example/keys"
    assert client_documents.Document(OTHER_URL, request()).kept_keys() is None


def test_a_host_is_allowed_only_by_its_own_name(settings: Any, other: Spelling) -> None:
    configure(settings, CLIENT_DOCUMENTS={"hosts": "ask"})
    ClientHost.objects.create(host=other(HOST), decision=ClientHost.Decision.ALLOWED)
    assert decision_on(HOST) == ClientHost.Decision.WAITING


# Accounts and identities


@pytest.fixture
def accounts() -> Iterator[None]:
    with override_settings(MCP_DJANGO={"BASE_URL": ORIGIN, "SERVICE_ACCOUNTS": True}):
        yield


@pytest.mark.usefixtures("accounts")
def test_a_service_account_is_known_only_by_its_own_id(other: Spelling) -> None:
    account, secret = make_account()
    assert refused(ask(client_id=other(account.client_id), client_secret=secret), "invalid_client", 401)
    assert ask_by_secret(account, secret).status_code == 200


def test_a_subject_is_linked_only_in_its_own_spelling(other: Spelling) -> None:
    with override_settings(MCP_DJANGO=settings_with(ENTRY)):
        link = LinkedIdentity.objects.create(issuer=ISSUER, subject="Ada", user=make_user("ada"))
        assert "takes it for the same" in nobody(entry(create=True), spoken_of(other("Ada")))
        assert "takes it for the same" in nobody(entry(issuer=other(ISSUER)), spoken_of("Ada"))
        assert linked_identity(entry(), spoken_of("Ada")) == link
    assert LinkedIdentity.objects.get().subject == "Ada"


def test_a_group_that_the_provider_does_not_name_is_kept(other: Spelling) -> None:
    user = make_user("ada")
    user.groups.add(Group.objects.create(name=other("Staff")))
    give_groups(user, entry(groups={"staff": "Staff"}), [])
    assert user.groups.count() == 1


# Switches


@pytest.mark.parametrize("kind", ["client", "tool"])
def test_a_switch_of_another_target_stays_in_force(kind: str) -> None:
    first = set_switch(kind, "https://client.example/A")
    set_switch(kind, "https://client.example/a")
    assert find_switches(kind, "https://client.example/A") == [first]
    assert Switch.active().count() == 2
    assert end_switch(first)


@pytest.mark.usefixtures("accounts")
def test_a_service_account_is_turned_off_only_by_its_own_name(other: Spelling) -> None:
    account, _ = make_account()
    for name in (account.name, account.client_id):
        with pytest.raises(ValueError, match="no service account"):
            set_switch("service", other(name))
        assert set_switch("service", name).target == account.client_id


def test_the_command_turns_a_client_off_only_by_its_own_id_or_name(flow: Flow, other: Spelling) -> None:
    for name in (flow.client_id, "Robot"):
        with pytest.raises(CommandError, match="There is no client"):
            call_command("mcp_switch", "off", "client", other(name))
        call_command("mcp_switch", "off", "client", name)
        assert [switch.target for switch in Switch.active()] == [flow.client_id]


# Sessions, streams and calls


def test_a_session_is_found_only_by_its_own_id(other: Spelling) -> None:
    caller = make_request(make_user("ann"))
    text = ClientSession.open(caller, initialize())
    ClientSession.find(caller, text).subscribe("mcp://x")
    with pytest.raises(NotFound):
        ClientSession.find(caller, other(text))


def test_a_stream_is_resumed_only_by_its_own_id(other: Spelling) -> None:
    caller = make_request(make_user("ann"))
    session = ClientSession.find(caller, ClientSession.open(caller, initialize()))
    stream = SessionStreams(session).open(7, b"{}", "2025-11-25")
    # Ids without a letter are the same in any case.
    Stream.objects.filter(pk=stream.id).delete()
    stream = SessionStreams(session).open(7, b"{}", "2025-11-25", "abc" + stream.id[3:])
    assert stream.is_owned_by(session)
    assert not StoredStream(other(stream.id)).is_owned_by(session)


def test_a_call_is_cancelled_only_by_its_own_id(other: Spelling) -> None:
    caller = make_request(make_user("ann"))
    session = ClientSession.find(caller, ClientSession.open(caller, initialize()))
    stream = SessionStreams(session).open("call", b"{}", "2025-11-25")
    Stream.objects.update(state=Stream.State.ASKING)
    SessionStreams(session).cancel(other("call"))
    assert not stream.read(0).is_over
    SessionStreams(session).cancel("call")
    assert stream.read(0).is_over


def test_idempotency_keys_in_two_spellings_are_two_keys(other: Spelling) -> None:
    client = MCPClient(make_superuser())
    for number, key in enumerate(("Key", other("Key"), "Key")):
        client.call("create_record", model="testapp.tag", values={"name": f"tag {number % 2}"}, idempotency_key=key)
    assert (Tag.objects.count(), KeyedCall.objects.count()) == (2, 2)


# Rows


@pytest.mark.parametrize("form", ["compiled", "whole", "locked"])
def test_a_record_is_found_only_by_its_own_key(form: str, other: Spelling) -> None:
    Shelf.objects.create(code="A1")
    caller = reader(make_superuser(), site_with(Shelf))
    model = access_of(caller).get_model("testapp.shelf")
    ways: dict[str, Callable[[str], Any]] = {
        "compiled": lambda key: FoundRow.find(model, key),
        "whole": lambda key: FoundRow.whole(model, key),
        "locked": lambda key: model.get_row(key, lock=True),
    }
    assert ways[form]("A1")
    with pytest.raises(NotFound):
        ways[form](other("A1"))


def test_only_the_record_of_this_key_can_be_deleted(other: Spelling) -> None:
    Shelf.objects.create(code="A1")
    caller = reader(make_superuser(), site_with(Shelf))
    assert "No such record" in refusal(DeleteRecord(), caller, model="testapp.shelf", pk=other("A1"))
    assert call(DeleteRecord(), caller, model="testapp.shelf", pk="A1")["pk"] == "A1"


def test_a_confirmation_counts_only_as_it_was_given(other: Spelling) -> None:
    Shelf.objects.create(code="A1")
    client = MCPClient(make_superuser())
    asked = {"model": "testapp.shelf", "pk": "A1"}
    token = client.call("delete_record", **asked).structured["confirm_token"]
    client.call("delete_record", **asked, confirm_token=other(token))
    assert Shelf.objects.exists()
    client.call("delete_record", **asked, confirm_token=token)
    assert not Shelf.objects.exists()
