import pytest
from django.urls import set_script_prefix

from mcp_django.emulation.action_responses import ELSEWHERE, ResponseContent, destination
from tests.factories import make_author, make_book, make_superuser, make_user
from tests.tool_calls import request_of

pytestmark = [pytest.mark.postgresql, pytest.mark.one_server, pytest.mark.django_db]


def asked_by(user):
    request = request_of(user)
    request.path = "/admin/testapp/book/"
    request.META["HTTP_HOST"] = "testserver"
    return request


def test_the_change_page_of_a_row_is_the_row():
    request, author = asked_by(make_superuser()), make_author("Ada")
    found = destination(request, f"/admin/testapp/author/{author.pk}/change/?next=/secret/")
    uri = f"django://testapp/author/{author.pk}"
    assert found == ResponseContent(record={"model": "testapp.author", "pk": author.pk, "label": "Ada", "uri": uri})
    assert destination(request, f"http://testserver/admin/testapp/author/{author.pk}/change/") == found
    assert destination(request, f"../author/{author.pk}/change/") == found


def test_a_list_is_told_by_its_model_and_the_way_back_is_nothing():
    request = asked_by(make_superuser())
    assert destination(request, "/admin/testapp/author/?q=x").note.endswith("to a list of testapp.author.")
    assert destination(request, "?q=x") == ResponseContent()


@pytest.mark.parametrize(
    "path",
    ["/admin/testapp/author/1/history/", "/admin/", "/nothing/here/", "https://elsewhere.example/admin/testapp/author/",
     "//elsewhere.example/admin/testapp/author/", "/admin/testapp/author/0/change/", "/admin/auth/user/"],
)  # fmt: skip
def test_H144_any_other_page_is_told_without_its_address(path):
    assert destination(asked_by(make_superuser()), path) == ResponseContent(note=ELSEWHERE)


def test_H121_a_row_or_a_model_that_the_caller_does_not_see_is_told_like_any_other_page():
    theirs = make_book(owner=make_superuser())
    seller = asked_by(make_user("seller", "testapp.view_book"))
    assert destination(seller, f"/admin/testapp/book/{theirs.pk}/change/") == ResponseContent(note=ELSEWHERE)
    assert destination(seller, f"/admin/testapp/author/{theirs.author_id}/change/") == ResponseContent(note=ELSEWHERE)
    assert destination(seller, "/admin/testapp/author/") == ResponseContent(note=ELSEWHERE)


def test_a_script_prefix_is_not_part_of_the_path():
    request, author = asked_by(make_superuser()), make_author("Ada")
    set_script_prefix("/shop/")
    try:
        request.path = "/shop/admin/testapp/book/"
        found = destination(request, f"/shop/admin/testapp/author/{author.pk}/change/")
    finally:
        set_script_prefix("/")
    assert found.record is not None
