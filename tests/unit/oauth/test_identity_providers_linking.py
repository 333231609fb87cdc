"""Users whom an identity provider speaks of: by a link, by an address once, as new ones; and their groups."""

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from django.contrib.auth.models import Group, User
from django.db import connections
from django.test import override_settings
from oauth2_provider.models import AccessToken

from mcp_django.models import LinkedIdentity
from mcp_django.oauth.assertions_and_keys import Assertion
from mcp_django.oauth.bearer import Token
from mcp_django.oauth.identity_providers import NotLinked, Provider, end_tokens_of, give_groups, linked_identity
from mcp_django.oauth.stored_tokens import create_token, stands
from mcp_django.signin import FactName
from tests.factories import make_user
from tests.identity_provider import ENTRY, ISSUER, settings_with
from tests.oauth_flow import RESOURCE

pytestmark = [pytest.mark.postgresql, pytest.mark.django_db, pytest.mark.one_server]


@pytest.fixture(autouse=True)
def a_provider_is_set_up() -> Iterator[None]:
    with override_settings(MCP_DJANGO=settings_with(ENTRY)):
        yield


def entry(**values: Any) -> Provider:
    return Provider(**(ENTRY | values))


def spoken_of(sub: str = "U1", **claims: Any) -> Assertion:
    """An assertion that was verified."""
    return Assertion("", {}, {"iss": ISSUER, "sub": sub, "exp": time.time() + 60} | claims)


def verified(email: str, sub: str = "U1", **claims: Any) -> Assertion:
    return spoken_of(sub, **({"email": email, "email_verified": True} | claims))


def make_person(name: str = "ada", **values: Any) -> User:
    return User.objects.create_user(name, **({"email": f"{name}@corp.example"} | values))


def nobody(provider: Provider, assertion: Assertion) -> str:
    """Why an assertion leads to no user; nothing is stored then."""
    before = User.objects.count(), LinkedIdentity.objects.count()
    with pytest.raises(NotLinked) as failure:
        linked_identity(provider, assertion)
    assert (User.objects.count(), LinkedIdentity.objects.count()) == before
    return failure.value.reason.what


def test_a_user_is_found_by_issuer_and_subject() -> None:
    person = make_person()
    LinkedIdentity.objects.create(issuer=ISSUER, subject="U1", user=person)
    assert linked_identity(entry(), spoken_of()).user == person
    nobody(entry(), spoken_of("U2"))
    nobody(entry(issuer="https://other.example"), spoken_of())


def test_a_link_goes_before_an_address() -> None:
    person, other = make_person("ada"), make_person("eve")
    LinkedIdentity.objects.create(issuer=ISSUER, subject="U1", user=person)
    assert linked_identity(entry(link="email"), verified(other.email)).user == person


# By address


def test_an_address_links_once_where_the_entry_says_so() -> None:
    person = make_person()
    assert "link is 'subject'" in nobody(entry(), verified(person.email))
    assert linked_identity(entry(link="email"), verified("ADA@corp.example")).user == person
    # The next time it is the subject, whatever the address is by then.
    assert linked_identity(entry(), spoken_of()).user == person
    assert "another subject" in nobody(entry(link="email"), verified(person.email, "U2"))


@pytest.mark.parametrize("said", [False, None, "true", "True", 1, ["true"], {}])
def test_an_address_that_is_not_verified_links_nobody(said: Any) -> None:
    person = make_person()
    assert "no user is linked" in nobody(entry(link="email"), verified(person.email, email_verified=said))
    assert "no user is linked" in nobody(entry(link="email"), spoken_of(email=person.email))


@pytest.mark.parametrize("values", [{"is_staff": True}, {"is_superuser": True}])
@pytest.mark.parametrize("create", [True, False])
def test_an_address_takes_over_no_staff_unless_the_entry_says_so(values: dict[str, bool], create: bool) -> None:
    person = make_person("root", **values)
    assert "is staff" in nobody(entry(link="email", create=create), verified(person.email))
    assert linked_identity(entry(link="email_staff"), verified(person.email)).user == person


def test_an_address_of_several_users_links_none_of_them() -> None:
    make_person("ada", email="team@corp.example")
    make_person("eve", email="Team@corp.example")
    assert "several" in nobody(entry(link="email", create=True), verified("team@corp.example"))


def test_an_address_leads_to_no_inactive_user() -> None:
    person = make_person(is_active=False)
    assert "not active" in nobody(entry(link="email", create=True), verified(person.email))


@pytest.mark.parametrize(
    ("stored", "said"),
    [
        ("mike@corp.example", "m\u0131ke@corp.example"),
        ("kate@corp.example", "\u212aate@corp.example"),
        ("sam@corp.example", "\u017fam@corp.example"),
        ("ada@corp.example", "ada@corp.example\x00"),
        ("ada@corp.example", " ada@corp.example"),
        ("ada@corp.example", "%@corp.example"),
        ("ada@corp.example", ["ada@corp.example"]),
        ("", ""),
    ],
)
def test_an_address_that_is_like_another_is_not_that(stored: str, said: Any) -> None:
    make_person(email=stored)
    nobody(entry(link="email"), verified(said))


@pytest.mark.django_db(transaction=True)
def test_one_subject_is_one_user_however_many_ask_at_once() -> None:
    def work(number: int) -> int:
        try:
            return int(linked_identity(entry(create=True), verified("new@corp.example")).user.pk)
        finally:
            connections.close_all()

    with ThreadPoolExecutor(6) as pool:
        assert len(set(pool.map(work, range(6)))) == 1
    assert User.objects.count() == 1


# New users


def test_a_user_is_created_where_the_entry_says_so() -> None:
    assert "create is False" in nobody(entry(), verified("new@corp.example"))
    person: Any = linked_identity(entry(create=True), verified("new@corp.example")).user
    assert (person.get_username(), person.email) == ("new@corp.example", "new@corp.example")
    assert not person.has_usable_password()
    assert (person.is_staff, person.is_superuser, person.groups.count()) == (False, False, 0)
    assert linked_identity(entry(), spoken_of()).user == person


def test_a_new_user_takes_over_no_name_and_no_address() -> None:
    other = make_person("New@corp.example", email="other@corp.example")
    person: Any = linked_identity(entry(create=True), verified("new@corp.example")).user
    assert person != other
    assert person.get_username().startswith("id-")
    assert "link is 'subject'" in nobody(entry(create=True), verified("other@corp.example", "U2"))


@pytest.mark.parametrize("claims", [{}, {"email": "a@b.example"}, {"email": "a@b.example", "email_verified": "true"}])
def test_what_is_not_verified_is_not_stored(claims: dict[str, Any]) -> None:
    claims |= {"preferred_username": "root", "is_superuser": True, "groups": ["admins"]}
    person: Any = linked_identity(entry(create=True), spoken_of(**claims)).user
    assert person.get_username().startswith("id-")
    assert person.email == ""
    assert not person.is_superuser


@pytest.mark.parametrize("email", ["no address", "a@b", "x" * 300 + "@corp.example"])
def test_an_address_that_is_none_creates_nobody(email: str) -> None:
    nobody(entry(create=True), verified(email))


# Groups

MAPPED = {"engineering": "Editors", "eng-leads": "Editors", "sales": "Sellers", "ghosts": "Ghosts"}


def groups_of(user: Any) -> set[str]:
    return set(user.groups.values_list("name", flat=True))


def test_groups_of_the_provider_come_and_go_and_others_stay() -> None:
    person = make_person()
    for name in ("Editors", "Sellers", "Own"):
        Group.objects.create(name=name)
    person.groups.set(Group.objects.filter(name__in=["Own", "Sellers"]))
    provider = entry(groups=MAPPED)
    give_groups(person, provider, ["engineering", "unknown", 1])
    assert groups_of(person) == {"Own", "Editors"}
    give_groups(person, provider, ["eng-leads", "sales"])
    assert groups_of(person) == {"Own", "Editors", "Sellers"}
    give_groups(person, provider, [])
    assert groups_of(person) == {"Own"}


@pytest.mark.parametrize("claim", [None, "engineering", {"engineering": True}, 1, [["engineering"]]])
def test_a_provider_that_names_no_groups_gives_none(claim: Any) -> None:
    person = make_person()
    person.groups.add(Group.objects.create(name="Editors"))
    give_groups(person, entry(groups=MAPPED), claim)
    assert groups_of(person) == set()


def test_without_a_map_groups_are_left_alone() -> None:
    person = make_person()
    person.groups.add(Group.objects.create(name="Editors"))
    give_groups(person, entry(), ["Sellers"])
    assert groups_of(person) == {"Editors"}


def test_a_group_that_does_not_exist_is_logged_and_not_made(caplog: pytest.LogCaptureFixture) -> None:
    person = make_person()
    give_groups(person, entry(groups=MAPPED), ["ghosts"])
    assert groups_of(person) == set()
    assert not Group.objects.exists()
    assert "Ghosts" in caplog.text


# Until when


def test_a_link_stands_while_it_is_there_for_its_user_and_its_provider() -> None:
    person = make_person()
    link = LinkedIdentity.objects.create(issuer=ISSUER, subject="U1", user=person)
    assert stands({FactName.LINKED_IDENTITY: link.pk}, person.pk)
    assert not stands({FactName.LINKED_IDENTITY: link.pk}, make_user("eve").pk)
    assert not stands({FactName.LINKED_IDENTITY: 0}, person.pk)
    with override_settings(MCP_DJANGO=settings_with()):
        assert not stands({FactName.LINKED_IDENTITY: link.pk}, person.pk)


def test_the_tokens_of_a_link_can_be_ended() -> None:
    person = make_person()
    made = [
        create_token(person, scopes=["mcp:read"], resources=[RESOURCE], facts={FactName.LINKED_IDENTITY: key})[0]
        for key in (1, 2)
    ]
    create_token(person, scopes=["mcp:read"], resources=[RESOURCE])
    tokens = [Token(frozenset(), "", row.expires, row.token_checksum) for row in made]
    end_tokens_of([1])
    assert AccessToken.objects.count() == 2
    assert Token.still_good(tokens) == {tokens[1]}
