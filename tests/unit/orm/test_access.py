"""The one gate: what the caller may not see is not there."""

from typing import Any
from uuid import UUID

import pytest
from django.contrib import admin
from django.contrib.admin import AdminSite, ModelAdmin
from django.contrib.auth.models import User
from django.db import connection
from django.db.models import (
    CASCADE,
    CharField,
    CompositePrimaryKey,
    Count,
    IntegerField,
    Model,
    OneToOneField,
    QuerySet,
)
from django.test.utils import isolate_apps
from rest_framework import serializers

from mcp_django import AdminExposure, MCPSite, ModelExposure
from mcp_django.context.call_restrictions import Narrowing
from mcp_django.context.request import MCPRequest
from mcp_django.exceptions import CallRefused, NotFound
from mcp_django.models import Switch
from mcp_django.operating.switches import Off
from mcp_django.orm import access, columns
from mcp_django.orm.access import access_of
from mcp_django.orm.allowed_filters import AllowedFilter
from mcp_django.orm.ordering import Orderings
from mcp_django.orm.permission_queries import load_permissions
from mcp_django.schema.secrets import is_sensitive
from tests.factories import make_author, make_book, make_superuser, make_user
from tests.fieldapp.models import Seat
from tests.oddapp.models import Task
from tests.testapp.models import AudioBook, Author, Book, Loan, Note, PublishedBook, Section, Shelf, Tag
from tests.tool_calls import request_of, site_with

pytestmark = pytest.mark.postgresql


@pytest.mark.parametrize(
    "name",
    "password passwd user_password password_hash secret client_secret secret_token api_key apikey apiKey "
    "access_token refresh_tokens card_token private_key otp pin session_key ssh_key salt credentials "
    "customer__password".split(),
)
def test_row_129_names_of_credentials_are_sensitive(name: str) -> None:
    assert is_sensitive(name)


@pytest.mark.parametrize(
    "name", "title key keyword pinned spinning tokenizer_name hashtag author passenger shipping_pin_x monkey".split()
)
def test_other_names_are_not_sensitive(name: str) -> None:
    assert is_sensitive(name) is (name == "shipping_pin_x")


@pytest.mark.django_db
class TestModels:
    def test_row_125_a_model_without_view_permission_is_not_there(self) -> None:
        site = site_with(Book, Author)
        request = request_of(make_user("u", "testapp.view_author"), site)
        assert [exposure.label for exposure in access_of(request).exposures] == ["testapp.author"]
        labels: tuple[Any, ...] = ("testapp.book", "testapp.nothing", "", None, 5, [], "x" * 100_000)
        for label in labels:
            with pytest.raises(NotFound) as error:
                access_of(request).get_model(label)
            assert error.value.args == ()

    def test_a_label_is_read_in_any_case(self) -> None:
        request = request_of(make_superuser(), site_with(Book))
        assert access_of(request).get_model("testapp.Book").exposure.model is Book

    def test_the_verdict_is_made_once_for_a_request_and_anew_for_another_user(
        self, django_assert_num_queries: Any
    ) -> None:
        site = site_with(Book)
        request = request_of(make_user("u", "testapp.view_book"), site)
        assert access_of(request).exposures
        with django_assert_num_queries(0):
            assert access_of(request).get_model("testapp.book")
        request.user = make_user("other")
        assert access_of(request).exposures == []

    def test_a_relation_to_an_invisible_model_has_no_exposure(self) -> None:
        site = site_with(Book, Author)
        field = Book._meta.get_field("author")
        assert access_of(request_of(make_superuser(), site)).model_of(field.related_model).exposure.model is Author  # type: ignore[union-attr]
        assert access_of(request_of(make_user("u", "testapp.view_book"), site)).model_of(field.related_model) is None

    def test_a_hook_that_fails_shows_nothing_and_is_logged(self, caplog: pytest.LogCaptureFixture) -> None:
        class Broken(ModelExposure):
            def has_view_permission(self, request: MCPRequest, obj: Any = None) -> bool:
                raise LookupError("no tenant")

        site = MCPSite()
        site.register(Tag, Broken)
        request = request_of(make_superuser(), site)
        with pytest.raises(NotFound):
            access_of(request).get_model("testapp.tag")
        assert "has_view_permission" in caplog.text

    def test_actions_are_asked_for_once_in_a_request(self) -> None:
        class Counting(ModelExposure):
            asked = 0

            def get_actions(self, request: MCPRequest) -> Any:
                type(self).asked += 1
                return {}

        site = MCPSite()
        site.register(Tag, Counting)
        request = request_of(make_superuser(), site)
        assert access_of(request)[site.exposures[Tag]].actions == access_of(request)[site.exposures[Tag]].actions == {}
        assert Counting.asked == 1

    @pytest.mark.parametrize("target", ["testapp.book", "testapp"])
    def test_a_model_that_is_switched_off_is_not_there_and_its_name_is_told_why(self, target: str) -> None:
        site = site_with(Book)
        request = request_of(make_superuser(), site, off=Off((Switch(kind="model", target=target, reason="Audit"),)))
        exposure = site.exposures[Book]
        assert access_of(request)[exposure].may("view")
        assert not access_of(request)[exposure].is_there
        assert access_of(request).exposures == []
        with pytest.raises(CallRefused, match="Reason given: Audit"):
            access_of(request).get_model("testapp.book")

    def test_who_lacks_the_permission_does_not_learn_of_a_switch(self) -> None:
        off = Off((Switch(kind="model", target="testapp.book", reason="Audit"),))
        request = request_of(make_user("u", "testapp.view_author"), site_with(Book, Author), off=off)
        with pytest.raises(NotFound):
            access_of(request).get_model("testapp.book")
        assert access_of(request).get_model("testapp.author").exposure.model is Author

    @pytest.mark.parametrize("target", ["testapp.tag.merge", "merge"])
    def test_an_action_that_is_switched_off_is_not_there(self, target: str) -> None:
        class Mergeable(ModelExposure):
            def get_actions(self, request: MCPRequest) -> Any:
                return {"merge": "merge action", "split": "split action"}

        site = MCPSite()
        site.register(Tag, Mergeable)
        exposure = site.exposures[Tag]
        request = request_of(make_superuser(), site, off=Off((Switch(kind="action", target=target),)))
        assert set(access_of(request)[exposure].permitted_actions) == {"merge", "split"}
        assert set(access_of(request)[exposure].actions) == {"split"}
        assert access_of(request).may_any("run")
        access_of(request)[exposure].refuse_switched()
        access_of(request)[exposure].refuse_switched("split")
        with pytest.raises(CallRefused, match="switched off"):
            access_of(request)[exposure].refuse_switched("merge")
        access_of(request_of(make_superuser("other"), site))[exposure].refuse_switched("merge")

    def test_a_verdict_is_read_from_permissions_where_no_hook_of_the_project_decides(self) -> None:
        class Own(ModelExposure):
            def has_change_permission(self, request: MCPRequest, obj: Any = None) -> bool:
                return obj is None or obj.name == "a"

        user = make_user("u", "testapp.change_tag", "testapp.view_author")
        site = site_with(Book, Author)
        site.register(Tag, Own)
        request = request_of(user, site)
        for _ in range(2):
            model, author = access_of(request)[site.exposures[Tag]], access_of(request)[site.exposures[Author]]
            assert [model.may(deed) for deed in ("view", "change", "add")] == [True, True, False]
            assert [model.may_row(deed, Tag(name="b")) for deed in ("view", "change")] == [True, False]
            assert model.stock_verdict("change") is None
            assert [author.may_row(deed, Author()) for deed in ("view", "delete")] == [True, False]
            request = request_of(user, site)
            load_permissions(user)
        assert (model.stock_verdict("view"), model.stock_verdict("add")) == (True, False)
        assert [seen.exposure.model for seen in access_of(request).models if seen.may("change")] == [Tag]
        assert [access_of(request).may_any(deed) for deed in ("change", "delete")] == [True, False]

    def test_hooks_that_look_at_the_place_are_asked_on_the_admins_list(self) -> None:
        class Placed(ModelAdmin):  # type: ignore[type-arg]
            def has_view_permission(self, request: Any, obj: Any = None) -> bool:
                return bool(request.resolver_match.url_name == "testapp_author_changelist")

        site = MCPSite()
        exposure = AdminExposure(Author, site, Placed(Author, admin.site))
        request = request_of(make_superuser(), site)
        assert access_of(request)[exposure].may("view")
        assert request.resolver_match is None

    def test_why_a_model_is_not_there(self) -> None:
        class Refusing(ModelExposure):
            def has_view_permission(self, request: MCPRequest, obj: Any = None) -> bool:
                return False

        site = site_with(Book, Author)
        site.register(Tag, Refusing)
        closed = AdminExposure(Shelf, site, ModelAdmin(Shelf, AdminSite()))
        models = [*(site.exposures[model] for model in (Book, Author, Tag)), closed]
        user = make_user("u", "testapp.view_book", "testapp.view_tag", "testapp.view_shelf")
        off = Off((Switch(kind="model", target="testapp.book"),))
        request = request_of(user, site)
        assert [access_of(request)[model].why_not() for model in models] == ["", "no permission", "refused", ""]
        assert access_of(request_of(user, site, off=off))[models[0]].why_not() == "off"
        guest = make_user("guest", "testapp.view_shelf", staff=False)
        assert access_of(request_of(guest, site))[closed].why_not() == "not admitted"
        request = request_of(user, site)
        request.mcp.narrowing = Narrowing(labels=frozenset({"testapp.author"}))
        assert [access_of(request)[model].why_not() for model in models] == [
            "narrowed",
            "no permission",
            *["narrowed"] * 2,
        ]

    def test_whether_anything_is_visible_is_decided_once(self, django_assert_num_queries: Any) -> None:
        request = request_of(make_user("u", "testapp.view_book"), site_with(Book, Author))
        assert access_of(request).may_any("view")
        with django_assert_num_queries(0):
            assert access_of(request).may_any("view")
        assert not access_of(request_of(make_user("other"), site_with(Book))).may_any("view")

    def test_the_reason_for_an_empty_site_is_told_to_those_who_see_nothing(self) -> None:
        class Guarded(ModelExposure):
            def get_refusal(self, request: MCPRequest) -> str:
                return "Sign in with a second factor."

        site = site_with(Book)
        site.register(Tag, Guarded)
        assert access_of(request_of(make_user("u"), site)).refusal == "Sign in with a second factor."
        assert access_of(request_of(make_user("v", "testapp.view_book"), site)).refusal == ""
        assert access_of(request_of(make_user("w"), site_with(Book))).refusal == ""


class Mine(ModelExposure):
    def get_queryset(self, request: MCPRequest) -> QuerySet[Any]:
        return super().get_queryset(request).filter(owner=request.user)


def test_row_127_only_a_plain_table_is_every_row() -> None:
    site = MCPSite()
    assert ModelExposure(Book, site).options.has_every_row
    assert not ModelExposure(Loan, site).options.has_every_row
    assert not Mine(Book, site).options.has_every_row
    declared = type("Declared", (Mine,), {"stable_queryset": True})(Book, site)
    assert declared.options.has_stable_queryset
    assert not declared.options.has_every_row


@pytest.mark.django_db
def test_whether_a_caller_has_every_row_is_asked_of_the_queryset() -> None:
    class Failing(ModelExposure):
        def get_queryset(self, request: MCPRequest) -> QuerySet[Any]:
            raise LookupError("no tenant")

    class Staffs(ModelExposure):
        def get_queryset(self, request: MCPRequest) -> QuerySet[Any]:
            rows = super().get_queryset(request)
            return rows if request.user.is_superuser else rows.filter(owner=request.user)

    site = MCPSite()
    plain, staffs, failing = (exposure(Book, site) for exposure in (ModelExposure, Staffs, Failing))
    superuser, user = request_of(make_superuser(), site), request_of(make_user("u"), site)
    for _ in range(2):
        assert access_of(user)[plain].sees_every_row
        assert access_of(superuser)[staffs].sees_every_row
        assert not access_of(user)[staffs].sees_every_row
        assert not access_of(superuser)[failing].sees_every_row


@pytest.mark.django_db
class TestFields:
    def test_row_130_the_declared_fields_alone_are_there(self) -> None:
        site = site_with(Book, fields=["title"])
        request = request_of(make_superuser(), site)
        exposure = site.exposures[Book]
        assert access_of(request)[exposure].fields == ("id", "title")
        assert access_of(request)[exposure].page_fields == ("id", "title")

    def test_row_129_sensitive_fields_are_not_there_by_default(self) -> None:
        site = site_with(Author)
        assert "secret_token" not in access_of(request_of(make_superuser(), site))[site.exposures[Author]].fields

    def test_a_many_to_many_field_is_not_there_while_its_model_is_not(self) -> None:
        site = site_with(Book, Tag, fields=["title", "tags"])
        exposure = site.exposures[Book]
        assert "tags" in access_of(request_of(make_superuser(), site))[exposure].fields
        assert "tags" not in access_of(request_of(make_user("u", "testapp.view_book"), site))[exposure].fields

    def test_a_path_through_many_rows_is_no_column(self) -> None:
        site = site_with(Book, fields=["title", "tags__name"])
        assert access_of(request_of(make_superuser(), site))[site.exposures[Book]].fields == ("id", "title")

    def test_a_relation_that_a_package_reads_is_there_if_all_of_its_rows_are(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Its rows come from its own manager, which asks no exposure."""
        monkeypatch.setattr(columns, "linked_reader", lambda field: str)

        class Some(ModelExposure):
            def get_queryset(self, request: MCPRequest) -> QuerySet[Any]:
                return super().get_queryset(request).exclude(name="secret")

        shown = []
        for exposure in (ModelExposure, Some, None):
            site = site_with(Book, fields=["tags"])
            if exposure is not None:
                site.register(Tag, exposure)
            shown.append(
                "tags" in access_of(request_of(make_superuser(str(exposure)), site))[site.exposures[Book]].fields
            )
        assert shown == [True, False, False]

    def test_names_of_clients_are_fields_that_they_see(self) -> None:
        site = site_with(Book, Author, fields=["title", "author"])
        request, exposure = request_of(make_superuser(), site), site.exposures[Book]
        names = ("title", "pk", "id", "author_id", "owner_id", "price", "")
        found = [access_of(request)[exposure].field_named(name) for name in names]
        assert found == ["title", "id", "id", "author", None, None, None]

    def test_row_131_a_generic_relation_is_no_way_to_filter_or_to_follow(self) -> None:
        site = site_with(Note, fields=["target", "target__name", "text"])
        request = request_of(make_superuser(), site)
        assert access_of(request)[site.exposures[Note]].fields == ("id", "target", "text")
        assert AllowedFilter.find(access_of(request)[site.exposures[Note]], "target") is None
        assert AllowedFilter.find(access_of(request)[site.exposures[Note]], "target__name") is None

    @pytest.mark.parametrize("model", [AudioBook, PublishedBook])
    def test_row_126_what_the_parent_hides_the_child_does_not_show(self, model: Any) -> None:
        site = site_with(model)
        site.register(Book, ModelExposure, fields="__all__", exclude=["price"])
        request = request_of(make_superuser(), site)
        assert "price" not in access_of(request)[site.exposures[model]].fields
        assert AllowedFilter.find(access_of(request)[site.exposures[model]], "price") is None
        assert "title" in access_of(request)[site.exposures[model]].fields

    def test_a_child_of_a_model_that_is_not_exposed_shows_what_it_has(self) -> None:
        site = site_with(AudioBook)
        assert "price" in access_of(request_of(make_superuser(), site))[site.exposures[AudioBook]].fields

    def test_row_126_a_child_that_names_the_field_shows_it(self) -> None:
        site = site_with(PublishedBook, fields=["price"])
        site.register(Book, ModelExposure, fields="__all__", exclude=["price"])
        assert "price" in access_of(request_of(make_superuser(), site))[site.exposures[PublishedBook]].fields

    def test_a_serializer_decides_what_is_read_and_what_is_filtered(self) -> None:
        class Masked(serializers.CharField):
            def to_representation(self, value: Any) -> Any:
                return "***"

        class AuthorSerializer(serializers.ModelSerializer):
            email = Masked()
            nickname = serializers.CharField(source="name")

            class Meta:
                model = Author
                fields = ("name", "email", "nickname", "born")

        site = site_with(Author, serializer_class=AuthorSerializer)
        request, exposure = request_of(make_superuser(), site), site.exposures[Author]
        assert access_of(request)[exposure].fields == ("id", "name", "email", "nickname", "born")
        assert {name for name, _ in AllowedFilter.all(access_of(request)[exposure])} == {"id", "name", "born"}
        assert Orderings(access_of(request)[exposure]).key("email", descending=False) is None
        for _ in range(2):
            assert access_of(request)[exposure].page_fields == access_of(request)[exposure].fields
        few = site_with(Author, serializer_class=AuthorSerializer, fields=["name", "email"])
        assert access_of(request_of(request.user, few))[few.exposures[Author]].fields == ("id", "name", "email")


STRANGE = ["１", "01", "+1", " 1 ", "1\n", "1.0", "", "x", "-0", True, False, 1.5, 1.0, None, [1], {"pk": 1}, b"1"]
HUGE = [2**63, -(2**63) - 1, 2**64, 10**400, str(2**63), "9" * 5000]


@pytest.mark.django_db
class TestRows:
    @pytest.mark.parametrize("pk", [*STRANGE, *HUGE])
    def test_rows_121_123_a_key_has_one_spelling(self, pk: Any) -> None:
        Author.objects.create(pk=1, name="first")
        # Without MySQL, which takes no such key.
        if connection.features.allows_auto_pk_0:
            Author.objects.create(pk=0, name="zeroth")
        site = site_with(Author)
        request = request_of(make_superuser(), site)
        assert access_of(request)[site.exposures[Author]].get_row(1).pk == 1
        assert access_of(request)[site.exposures[Author]].get_row("1").pk == 1
        with pytest.raises(NotFound):
            access_of(request)[site.exposures[Author]].get_row(pk)

    def test_row_124_text_and_uuid_keys_are_exact(self) -> None:
        site = site_with(Shelf, Section)
        access = access_of(request_of(make_superuser(), site))
        shelf, section = access[site.exposures[Shelf]], access[site.exposures[Section]]
        assert shelf.parse_pk("A/1") == "A/1"
        assert shelf.parse_pk(5) == "5"
        text = "12345678-1234-5678-1234-567812345678"
        assert section.parse_pk(text) == UUID(text)
        for other in (text.replace("-", ""), "{" + text + "}", "urn:uuid:" + text, text + " ", 5):
            with pytest.raises(NotFound):
                section.parse_pk(other)

    def test_a_key_of_several_columns_is_a_list_with_one_spelling(self) -> None:
        seat, site = Seat.objects.create(hall="A", number=7), site_with(Seat)
        request, exposure = request_of(make_superuser(), site), site.exposures[Seat]
        model = access_of(request)[exposure]
        assert model.parse_pk('["A","7"]') == model.parse_pk(["A", 7]) == ("A", 7)
        assert model.get_row('["A","7"]') == seat
        wrong = [
            "A",
            "[",
            '["A"]',
            '["A","7","8"]',
            '["A","07"]',
            {"hall": "A", "number": 7},
            7,
            "[" + " " * 1000 + "]",
        ]
        for raw in wrong:
            with pytest.raises(NotFound):
                model.parse_pk(raw)

    @isolate_apps("tests.testapp")
    def test_a_key_that_the_database_cannot_hold_is_no_rows(self) -> None:
        class EvenField(IntegerField):
            def get_db_prep_value(self, value: Any, connection: Any, prepared: bool = False) -> Any:
                if value % 2:
                    raise ValueError("odd")
                return super().get_db_prep_value(value, connection, prepared)

        class Pair(Model):
            number = EvenField(primary_key=True)

            class Meta:
                app_label = "testapp"

        site = site_with(Pair)
        with pytest.raises(NotFound):
            access_of(request_of(make_superuser(), site))[site.exposures[Pair]].get_row("7")

    def test_hooks_get_an_empty_row_and_some_that_the_caller_sees(self) -> None:
        class Few(ModelExposure):
            def has_view_permission(self, request: MCPRequest, obj: Any = None) -> bool:
                return obj is None or obj.name != "b"

        for name in "abcd":
            make_author(name)
        site = MCPSite()
        site.register(Author, Few)
        request = request_of(make_superuser(), site)
        for _ in range(2):
            assert [row.name for row in access_of(request)[site.exposures[Author]].sample_rows()] == ["", "a", "c"]

    def test_a_model_that_makes_no_empty_row_has_those_of_the_caller(self, monkeypatch: pytest.MonkeyPatch) -> None:
        author, site = make_author("a"), site_with(Author)
        request, exposure = request_of(make_superuser(), site), site.exposures[Author]
        create = Author.__init__

        def needs_values(self: Any, *args: Any, **kwargs: Any) -> None:
            if not args and not kwargs:
                raise TypeError("values are needed")
            create(self, *args, **kwargs)

        monkeypatch.setattr(Author, "__init__", needs_values)
        assert list(access_of(request)[exposure].sample_rows()) == [author]

    def test_a_row_that_no_plan_reads_is_read_by_the_orm(self) -> None:
        class Counted(ModelExposure):
            def get_queryset(self, request: MCPRequest) -> QuerySet[Any]:
                return super().get_queryset(request).annotate(written=Count("books"))

        author, site = make_author("a"), MCPSite()
        site.register(Author, Counted)
        model = access_of(request_of(make_superuser(), site))[site.exposures[Author]]
        assert model.get_row(author.pk).written == 0  # type: ignore[attr-defined]
        assert model.fields_of(author) == model.fields_of(None) == ("id",)
        with pytest.raises(NotFound):
            model.get_row(author.pk + 1)

    def test_row_121_a_row_of_another_is_not_there(self) -> None:
        owner, other = make_user("a", "testapp.view_book"), make_user("b", "testapp.view_book")
        book = make_book(owner=owner)
        site = MCPSite()
        site.register(Book, Mine)
        assert access_of(request_of(owner, site))[site.exposures[Book]].get_row(book.pk) == book
        with pytest.raises(NotFound) as hidden:
            access_of(request_of(other, site))[site.exposures[Book]].get_row(book.pk)
        with pytest.raises(NotFound) as missing:
            access_of(request_of(other, site))[site.exposures[Book]].get_row(10**6)
        assert hidden.value.args == missing.value.args == ()

    def test_row_127_the_default_manager_decides_what_there_is(self) -> None:
        book = make_book()
        loan = Loan.objects.create(book=book, borrower="x", due="2024-01-01T00:00:00Z", deleted="2024-01-02T00:00:00Z")
        site = site_with(Loan)
        with pytest.raises(NotFound):
            access_of(request_of(make_superuser(), site))[site.exposures[Loan]].get_row(loan.pk)

    def test_a_permission_on_the_row_is_asked(self) -> None:
        class Single(ModelExposure):
            def has_view_permission(self, request: MCPRequest, obj: Any = None) -> bool:
                return obj is None or obj.name == "seen"

        site = MCPSite()
        site.register(Author, Single)
        request = request_of(User(), site)
        assert access_of(request)[site.exposures[Author]].get_row(make_author("seen").pk)
        with pytest.raises(NotFound):
            access_of(request)[site.exposures[Author]].get_row(make_author("unseen").pk)


@pytest.mark.django_db
def test_rows_of_a_relation_that_keeps_its_links_itself_are_read_by_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    book, other = make_book("A"), make_book("B")
    tag = Tag.objects.create(name="sea")
    book.tags.add(tag)
    site = site_with(Book, fields=["tags"])
    site.register(Tag)
    link = access_of(request_of(make_superuser(), site))[site.exposures[Book]].link("tags")
    assert link is not None
    monkeypatch.setattr(access, "linked_reader", lambda field: str)
    assert list(link.rows_of(book, Tag.objects.all())) == [tag]
    assert list(link.rows_of(other, Tag.objects.all())) == []


@pytest.mark.django_db
def test_hidden_relations_to_a_model_are_no_links() -> None:
    site = site_with(User)
    model = access_of(request_of(make_superuser(), site))[site.exposures[User]]
    hidden = [rel for rel in User._meta.related_objects if rel.hidden and rel.related_model is Task]
    assert hidden
    assert all(model.link(rel.name) is None for rel in hidden)


@pytest.mark.django_db
def test_a_relation_into_another_database_is_no_hop(monkeypatch: pytest.MonkeyPatch) -> None:
    own = site_with(Book, Author)
    model = access_of(request_of(make_superuser(), own))[own.exposures[Book]]
    assert model.to_one("author") is Book._meta.get_field("author")
    monkeypatch.setattr(access, "is_joinable", lambda field: False)
    assert model.to_one("author") is None


@pytest.mark.django_db
@isolate_apps("tests.testapp")
def test_the_other_end_of_a_one_to_one_field_is_no_hop_if_its_key_has_several_columns() -> None:
    class Room(Model):
        name = CharField(max_length=10)

        class Meta:
            app_label = "testapp"

    class Plaque(Model):
        pk = CompositePrimaryKey("floor", "number")
        floor = IntegerField()
        number = IntegerField()
        room = OneToOneField(Room, CASCADE, related_name="plaque")

        class Meta:
            app_label = "testapp"

    own = site_with(Room, Plaque)
    model = access_of(request_of(make_superuser(), own))[own.exposures[Room]]
    assert model.link("plaque") is not None
    assert model.to_one("plaque") is None
