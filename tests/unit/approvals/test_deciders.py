"""Who may decide a request for approval, and what they have to see for it."""

from typing import Any

import pytest
from django.contrib import admin
from django.contrib.auth.backends import BaseBackend, ModelBackend
from django.contrib.auth.models import AnonymousUser, Group, User
from django.test import RequestFactory

from mcp_django import MCPSite, ModelExposure, site
from mcp_django.approvals.deciders import Deciders, DeciderSight
from mcp_django.approvals.rules import Rule
from mcp_django.differences.kept_changes import KeptChange, sealed
from mcp_django.models import ApprovalRequest
from mcp_django.testing import MCPClient
from tests.approving import PERMISSION, allow, ask
from tests.factories import make_author, make_book, make_superuser, make_user
from tests.service_account import make_account
from tests.testapp.models import Book

pytestmark = [pytest.mark.django_db, pytest.mark.postgresql, pytest.mark.one_server]
DECIDERS = Deciders(PERMISSION)


@pytest.fixture
def group() -> Any:
    return Group.objects.create(name="managers")


# Who decides


def test_active_staff_with_the_permission_decide() -> None:
    assert DECIDERS.include(make_user("ann", PERMISSION))
    assert DECIDERS.include(make_superuser())
    assert not DECIDERS.include(make_user("bob", "testapp.view_book"))
    assert not DECIDERS.include(make_user("cyd", PERMISSION, staff=False))
    assert not DECIDERS.include(AnonymousUser())
    gone = make_user("dan", PERMISSION)
    gone.is_active = False
    assert not DECIDERS.include(gone)


@pytest.mark.parametrize("named", [True, False])
def test_members_of_the_group_decide_and_superusers_are_not_all_members(group: Any, named: bool) -> None:
    deciders = Deciders("", group.name if named else group.pk)
    member = make_user("ann")
    assert not deciders.include(member)
    member.groups.add(group)
    assert deciders.include(member)
    assert not deciders.include(make_superuser())
    assert not Deciders("", None).include(member)


def test_no_service_account_decides() -> None:
    robot = make_user("robot", PERMISSION)
    make_account(user=robot, is_active=False)
    assert not DECIDERS.include(robot)
    assert not DECIDERS.somebody_besides(make_user("ann"))


def test_nobody_decides_what_they_have_asked_for() -> None:
    root = make_superuser()
    author = make_author()
    approval = ask(root, "delete_record", model="testapp.author", pk=str(author.pk), rows=[author])
    deciders = Deciders.of(approval)
    assert deciders.include(root)
    assert not deciders.may_decide(root, approval.change)
    assert deciders.may_decide(make_superuser("eve"), approval.change)


@pytest.mark.parametrize(
    ("permission", "staff", "found"),
    [(PERMISSION, True, True), (PERMISSION, False, False), ("testapp.view_book", True, False)],
)
def test_somebody_besides_the_requester_is_found_in_the_tables(
    permission: str, staff: bool, found: bool, django_assert_max_num_queries: Any
) -> None:
    requester = make_superuser()
    make_user("ann", permission, staff=staff)
    with django_assert_max_num_queries(2):
        assert DECIDERS.somebody_besides(requester) is found


def test_somebody_besides_the_requester_is_found_in_the_group(group: Any) -> None:
    requester = make_user("ann")
    requester.groups.add(group)
    rule = Rule(name="Books", group="managers")
    assert not Deciders.of(rule).somebody_besides(requester)
    make_user("bob").groups.add(group)
    assert Deciders.of(rule).somebody_besides(requester)
    assert Deciders.of(Rule(name="Books", group="managers", group_key=group.pk)).somebody_besides(requester)
    assert not Deciders.of(Rule(name="Books", group="others")).somebody_besides(requester)


class RoleBackend(ModelBackend):
    """Knows permissions by code of its own."""

    def has_perm(self, user_obj: Any, perm: str, obj: Any = None) -> bool:
        return user_obj.username == "ann"


class ListingBackend(RoleBackend):
    """Also lists who has them."""

    def with_perm(self, perm: str, **options: Any) -> Any:
        return User.objects.filter(username="ann")


class SilentBackend:
    """Signs in, and knows of no permission."""

    def authenticate(self, request: Any, **credentials: Any) -> None:
        return None


@pytest.mark.parametrize(
    ("backends", "found"),
    [
        (["RoleBackend"], True),
        (["ListingBackend"], False),
        (["SilentBackend"], False),
        ([BaseBackend], True),
        (["SilentBackend", ModelBackend], False),
    ],
)
def test_where_only_code_of_the_project_knows_somebody_may(backends: list[Any], found: bool, settings: Any) -> None:
    settings.AUTHENTICATION_BACKENDS = [
        f"{__name__}.{each}" if isinstance(each, str) else f"{each.__module__}.{each.__qualname__}" for each in backends
    ]
    assert DECIDERS.somebody_besides(make_user("zoe")) is found


def test_who_only_that_code_knows_is_found_by_its_list(settings: Any) -> None:
    settings.AUTHENTICATION_BACKENDS = [f"{__name__}.ListingBackend"]
    ann = make_user("ann")
    assert DECIDERS.somebody_besides(make_user("zoe"))
    assert not DECIDERS.somebody_besides(ann)


# What they see


def sight_of(user: Any, of: MCPSite = site, admin_site: Any = admin.site) -> DeciderSight:
    request = RequestFactory().get("/admin/")
    request.user = User.objects.get(pk=user.pk)
    request.session = {}  # type: ignore[assignment]
    return DeciderSight(request, of, admin_site)


def sees(user: Any, approval: ApprovalRequest) -> bool:
    return sight_of(user).sees(KeptChange(approval.change), approval)


def renaming(book: Book, **values: Any) -> ApprovalRequest:
    """Ask for another price of a book, as a superuser."""
    root = User.objects.filter(is_superuser=True).first() or make_superuser()
    change = {"model": "testapp.book", "filters": {"id": book.pk}, "values": {"price": "20.00"}}
    return ask(root, "update_record", rows=[book], **change, **values)


def test_a_decider_sees_rows_and_columns_through_the_site_s_exposures() -> None:
    approval = renaming(make_book())
    ann = make_user("ann", PERMISSION)
    assert not sees(ann, approval)
    assert sees(allow(ann, "testapp.view_book"), approval)


def test_rows_that_the_admin_hides_are_not_seen() -> None:
    eve = make_user("eve", PERMISSION, "testapp.view_book")
    approval = renaming(make_book(owner=make_user("bob")))
    assert not sees(eve, approval)
    assert not sight_of(eve).sees_rows(approval)
    Book.objects.update(owner=eve)
    assert sees(eve, approval)
    assert sight_of(eve).sees_rows(approval)


def test_rows_that_are_gone_are_not_seen() -> None:
    eve = make_superuser("eve")
    book = make_book()
    approval = renaming(book)
    assert sees(eve, approval)
    book.delete()
    assert not sees(eve, approval)


@pytest.mark.parametrize("key", ["x", "", "99999999999999999999999"])
def test_keys_that_can_be_none_are_not_seen(key: str) -> None:
    approval = renaming(make_book())
    approval.rows = {"testapp.book": [key]}
    assert not sees(make_superuser("eve"), approval)


@pytest.mark.parametrize(
    ("reads", "seen"),
    [
        ({"testapp.book": ["price", "pk", "author_id"]}, True),
        ({"testapp.book": ["author__name"]}, True),
        ({"testapp.book": ["author__secret_token"]}, True),
        ({"testapp.book": ["address"]}, False),
        ({"testapp.book": ["author__books__address"]}, False),
        ({"testapp.book": ["missing"]}, False),
        ({"testapp.book": ["author__missing"]}, False),
        ({"testapp.author": ["born"]}, True),
        ({"testapp.author": ["books__title"]}, True),
        ({"testapp.missing": ["name"]}, False),
        ({"auth.user": ["username"]}, True),
    ],
)
def test_every_column_that_the_condition_reads_has_to_be_seen(reads: dict[str, Any], seen: bool) -> None:
    assert sees(make_superuser("eve"), renaming(make_book(), reads=reads)) is seen


def test_columns_over_relations_need_the_related_model() -> None:
    approval = renaming(make_book(), reads={"testapp.book": ["author__name"]})
    eve = make_user("eve", PERMISSION, "testapp.view_book")
    assert not sees(eve, approval)
    assert sees(allow(eve, "testapp.view_author"), approval)


def test_models_that_the_site_does_not_expose_need_django_s_permission() -> None:
    approval = renaming(make_book(), reads={"auth.user": ["username"]})
    eve = make_user("eve", PERMISSION, "testapp.view_book")
    assert not sees(eve, approval)
    assert sees(allow(eve, "auth.view_user"), approval)


def test_what_the_exposure_hides_from_everybody_the_admin_s_page_can_show() -> None:
    narrow = MCPSite()
    narrow.register(Book, ModelExposure, fields=["id", "title", "price"])
    eve = make_superuser("eve")
    approval = renaming(make_book(), reads={"testapp.book": ["isbn"]})
    kept = KeptChange(approval.change)
    assert sight_of(eve, narrow).sees(kept, approval)
    assert not sight_of(eve, narrow, None).sees(kept, approval)
    approval.reads = {"testapp.book": ["address"]}
    assert not sight_of(eve, narrow).sees(kept, approval)


def test_every_column_that_the_difference_shows_has_to_be_seen() -> None:
    narrow = MCPSite()
    narrow.register(Book, ModelExposure, fields=["id", "title"])
    approval = renaming(make_book())
    assert not sight_of(make_superuser("eve"), narrow, None).sees(KeptChange(approval.change), approval)


def test_labels_of_related_rows_have_to_be_seen() -> None:
    book = make_book()
    other = make_author("Iris")
    change = {"model": "testapp.book", "filters": {"id": book.pk}, "values": {"author": other.pk}}
    approval = ask(make_superuser(), "update_record", rows=[book], **change)
    eve = make_user("eve", PERMISSION, "testapp.view_book")
    assert not sees(eve, approval)
    assert sees(allow(eve, "testapp.view_author"), approval)


@pytest.mark.parametrize("tool", ["create_record", "update_record"])
def test_rows_of_inlines_have_to_be_seen(tool: str) -> None:
    author = make_author()
    root = make_superuser()
    approval = ask(root, "delete_record", model="testapp.author", pk=str(author.pk), rows=[author])
    values = {"profile": [{"biography": "Wrote much."}], "name": "Ada"}
    pk = {} if tool == "create_record" else {"pk": str(author.pk)}
    tried = MCPClient(root).call(tool, model="testapp.author", values=values, dry_run=True, **pk).structured
    approval.change.shown = sealed("shown", {"message": "", "difference": tried})
    assert "Wrote much." in str(tried)
    eve = make_user("eve", PERMISSION, "testapp.view_author", "testapp.add_author")
    assert not sees(eve, approval)
    assert sees(allow(eve, "testapp.view_profile", "testapp.add_profile"), approval)


def test_what_cannot_be_opened_is_not_seen() -> None:
    approval = renaming(make_book())
    approval.change.shown = b"sealed with another key"
    assert not sees(make_superuser("eve"), approval)


def test_many_requests_are_looked_up_by_one_query_for_each_model(django_assert_max_num_queries: Any) -> None:
    eve = make_superuser("eve")
    approvals = [renaming(make_book(f"Dune {number}")) for number in range(4)]
    sight = sight_of(eve)
    with django_assert_max_num_queries(1):
        sight.look_up(approvals)
        assert all(map(sight.sees_rows, approvals))
