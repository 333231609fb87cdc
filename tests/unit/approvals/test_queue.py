"""The queue of requests for approval: which there are for whom, and who decides them."""

import threading
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import Group
from django.core.exceptions import PermissionDenied
from django.db import connection
from django.test import RequestFactory
from django.utils import timezone

from mcp_django import site
from mcp_django.approvals.queue import ApprovalQueue, approval_url
from mcp_django.context.request import MCPContext
from mcp_django.differences.kept_changes import KeptChange
from mcp_django.models import ApprovalRequest, Change
from mcp_django.server.kept_calls import KeptCallExecutor
from tests.approving import PERMISSION, allow, ask
from tests.factories import make_author, make_superuser, make_user
from tests.service_account import make_account
from tests.testapp.models import Author
from tests.tool_calls import request_of

pytestmark = [pytest.mark.django_db, pytest.mark.postgresql]


@pytest.fixture
def root() -> Any:
    return make_superuser()


@pytest.fixture
def ann() -> Any:
    return make_user("ann", PERMISSION)


def asked(user: Any, **values: Any) -> ApprovalRequest:
    """Ask to delete an author, which waits."""
    author = make_author()
    return ask(user, "delete_record", model="testapp.author", pk=str(author.pk), rows=[author], **values)


def numbers(rows: Any) -> list[int]:
    return [approval.pk for approval in rows]


def say_yes(approval: ApprovalRequest, user: Any) -> None:
    page = RequestFactory().post("/admin/")
    page.user = user
    KeptCallExecutor(KeptChange(approval.change), site, page, user.get_username()).run()


# Which there are


def test_who_may_decide_has_a_request_in_the_queue_and_nobody_else(root: Any, ann: Any) -> None:
    approval = asked(root)
    assert numbers(ApprovalQueue(ann).mine()) == [approval.pk]
    assert numbers(ApprovalQueue(make_superuser("eve")).mine()) == [approval.pk]
    others = [root, make_user("bob"), make_user("cyd", PERMISSION, staff=False)]
    assert not any(ApprovalQueue(user).mine() for user in others)
    assert numbers(ApprovalQueue(root).asked()) == [approval.pk]
    assert not ApprovalQueue(ann).asked()


def test_members_of_the_group_have_it(root: Any) -> None:
    group = Group.objects.create(name="managers")
    member = make_user("ann")
    approval = asked(root, permission="", group=group)
    assert not ApprovalQueue(member).mine()
    member.groups.add(group)
    assert numbers(ApprovalQueue(member).mine()) == [approval.pk]
    assert not ApprovalQueue(make_superuser("eve")).mine()
    # Nobody decides for a group that is gone.
    group.delete()
    assert not ApprovalQueue(member).mine()


def test_users_of_service_accounts_have_none(root: Any, ann: Any) -> None:
    asked(root)
    make_account(user=ann)
    assert not ApprovalQueue(ann).mine()


def test_what_is_decided_or_too_late_is_not_to_be_decided(root: Any, ann: Any) -> None:
    queue = ApprovalQueue(ann)
    late = asked(root)
    assert queue.state_of(late) == "waiting"
    Change.objects.update(expires=timezone.now() - timedelta(seconds=1))
    decided = asked(root)
    Change.objects.filter(pk=decided.pk).update(state="refused")
    assert not queue.mine()
    [newest, oldest] = ApprovalQueue(root).asked()
    assert (queue.state_of(newest), queue.state_of(oldest)) == ("refused", "expired")
    assert not queue.may_decide(oldest)


def test_all_need_a_permission_of_their_own(root: Any, ann: Any) -> None:
    approval = asked(root)
    assert not ApprovalQueue(ann).all()
    viewer = make_user("bob", "mcp_django.view_approvalrequest")
    assert numbers(ApprovalQueue(viewer).all()) == [approval.pk]
    assert ApprovalQueue(viewer).find(str(approval.pk)) == approval
    assert not ApprovalQueue(viewer).may_decide(approval)


def test_numbers_come_by_one_query(root: Any, ann: Any, django_assert_num_queries: Any) -> None:
    for user in (root, root, ann):
        asked(allow(user, "testapp.view_author", "testapp.delete_author"))
    assert ApprovalQueue(root).counts() == {"mine": 1, "asked": 2, "all": 3}
    ann = allow(ann)
    ann.get_all_permissions()
    with django_assert_num_queries(2):
        assert ApprovalQueue(ann).counts() == {"mine": 2, "asked": 1}
        assert ApprovalQueue(ann).count_mine() == 2
    with django_assert_num_queries(1):
        assert [approval.change.summary for approval in ApprovalQueue(ann).mine()]


@pytest.mark.parametrize("number", ["", "x", "0", "99999", "9" * 30, "²", "-1"])
def test_no_number_is_no_request(root: Any, number: str) -> None:
    assert ApprovalQueue(root).find(number) is None


def test_a_request_is_found_by_those_whom_it_concerns(root: Any, ann: Any) -> None:
    approval = asked(root)
    for user in (root, ann):
        assert ApprovalQueue(user).find(str(approval.pk)) == approval
    assert ApprovalQueue(make_user("bob")).find(str(approval.pk)) is None


# Decisions


def test_a_no_needs_a_word_which_the_requester_is_told(root: Any, ann: Any) -> None:
    approval = asked(root)
    for word in ("", "  "):
        with pytest.raises(ValueError, match="word"):
            ApprovalQueue(ann).refuse(approval, word)
    assert ApprovalQueue(ann).refuse(approval, "Too many\x00 books")
    row = ApprovalRequest.objects.select_related("change").get()
    assert (row.decider, row.word) == (str(ann.pk), "Too many� books")
    assert (row.change.state, row.change.by) == ("refused", "ann")
    assert row.change.outcome == "The answer was no: Too many� books."
    assert row.change.decided is not None
    assert not row.change.kept
    say_yes(row, ann)
    assert Author.objects.exists()


@pytest.mark.parametrize("who", ["requester", "stranger", "robot"])
def test_who_may_not_decide_says_no_in_vain(root: Any, who: str) -> None:
    approval = asked(root)
    users = {"requester": root, "stranger": make_user("bob"), "robot": make_user("robot", PERMISSION)}
    make_account(user=users["robot"])
    with pytest.raises(PermissionDenied):
        ApprovalQueue(users[who]).refuse(approval, "No.")
    assert Change.objects.get().state == "waiting"


def test_a_no_that_comes_too_late_is_none(root: Any, ann: Any) -> None:
    approval = asked(root)
    again = ApprovalQueue(ann).find(str(approval.pk))
    assert again is not None
    assert ApprovalQueue(ann).refuse(approval, "No.")
    assert not ApprovalQueue(make_superuser("eve")).refuse(again, "Never.")
    late = asked(root)
    late.change.expires = timezone.now() - timedelta(seconds=1)
    assert not ApprovalQueue(ann).refuse(late, "No.")
    assert Change.objects.get(pk=late.pk).state == "expired"


def test_a_yes_is_noted_for_whoever_said_it(root: Any, ann: Any) -> None:
    approval = asked(root)
    queue = ApprovalQueue(ann)
    assert not queue.approved(approval)
    say_yes(approval, ann)
    assert not ApprovalQueue(make_superuser("eve")).approved(approval)
    assert queue.approved(approval)
    assert not queue.approved(approval)
    row = ApprovalRequest.objects.select_related("change").get()
    assert (row.change.state, row.change.by, row.decider) == ("done", "ann", str(ann.pk))
    assert not Author.objects.exists()


def test_a_yes_after_which_the_call_fails_is_noted_too(root: Any, ann: Any) -> None:
    approval = asked(root)
    Author.objects.update(name="Zoe")
    say_yes(approval, ann)
    assert ApprovalQueue(ann).approved(approval)
    assert (approval.change.state, approval.decider) == ("failed", str(ann.pk))
    assert Author.objects.exists()


@pytest.mark.django_db(transaction=True)
def test_of_twenty_who_say_no_at_once_one_decides(root: Any) -> None:
    approval = asked(root)
    deciders = [make_user(f"user{number}", PERMISSION) for number in range(20)]
    found = [ApprovalQueue(user).find(str(approval.pk)) for user in deciders]
    won = []

    def refuse(user: Any, own: Any) -> None:
        try:
            if ApprovalQueue(user).refuse(own, f"No, says {user}."):
                won.append(user)
        finally:
            connection.close()

    threads = [threading.Thread(target=refuse, args=pair) for pair in zip(deciders, found, strict=True)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    [winner] = won
    row = ApprovalRequest.objects.select_related("change").get()
    assert (row.decider, row.change.by) == (str(winner.pk), winner.username)
    assert row.word == f"No, says {winner}."


# Addresses


@pytest.mark.parametrize(
    ("resource", "base", "url"),
    [
        ("https://shop.example/mcp", "https://other.example", "https://shop.example/admin"),
        (MCPContext.LOCAL, "https://other.example", "https://other.example/admin"),
        (MCPContext.LOCAL, None, "/admin"),
    ],
)
def test_the_address_of_a_request_has_the_origin_of_the_endpoint(
    root: Any, resource: str, base: Any, url: str, settings: Any
) -> None:
    settings.MCP_DJANGO = {**settings.MCP_DJANGO, "BASE_URL": base}
    request = request_of(root, resource=resource)
    assert approval_url(request, 42) == f"{url}/mcp_django/callentry/approvals/?request=42"


def test_without_an_admin_there_is_no_address(root: Any, settings: Any) -> None:
    settings.ROOT_URLCONF = "tests.unit.approvals.test_queue"
    assert approval_url(request_of(root), 42) == ""


urlpatterns: list[Any] = []
