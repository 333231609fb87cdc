from types import SimpleNamespace

import pytest
from django import forms
from django.contrib import admin

from mcp_django import MCPSite, site
from mcp_django.context.request import MCPContext, MCPRequest
from mcp_django.emulation.admin_exposure import AdminExposure
from mcp_django.orm.permission_queries import load_permissions
from mcp_django.testing import MCPClient
from mcp_django.tools.aggregate_records import AggregateRecords
from mcp_django.tools.query_records import QueryRecords
from mcp_django.tools.write_tools import UpdateRecord
from tests.factories import make_author, make_book, make_superuser, make_user
from tests.oddapp.admin import odd
from tests.oddapp.models import Kind
from tests.testapp.models import Author, Book, Loan, Tag
from tests.tool_calls import call, refusal

pytestmark = [pytest.mark.postgresql, pytest.mark.one_server, pytest.mark.django_db]


def request_of(user, own=site):
    request = MCPRequest()
    request.user = user
    request.mcp = MCPContext(site=own)
    return request


@pytest.fixture
def books():
    return site.exposures[Book]


def test_columns_are_the_lists_then_the_change_pages(books):
    fields = books.get_fields(request_of(make_superuser()))
    assert fields[:8] == ("id", "title", "author", "status", "price", "published", "is_long", "owner")
    assert {"tags", "pages", "uuid", "created"} <= set(fields)


def test_what_neither_the_list_nor_the_change_page_shows_is_not_there(books):
    assert not {"blob", "address", "opens"} & set(books.get_fields(request_of(make_superuser())))


@pytest.mark.parametrize("layout", [{"fields": ["title"]}, {"fieldsets": [(None, {"fields": ["title"]})]}, None])
def test_a_read_only_field_that_the_page_leaves_out_is_not_there(layout):
    class Narrow(admin.ModelAdmin):
        list_display = ("title",)
        readonly_fields = ("isbn", "remark")

        def remark(self, book):
            return "s3cret"

        def get_fields(self, request, obj=None):
            return ["title"] if layout is None else super().get_fields(request, obj)

    own = admin.AdminSite("own")
    own.register(Book, Narrow, **(layout or {}))
    narrow = MCPSite("own", admin_site=own)
    make_book(isbn="s3cret")
    reader = request_of(make_superuser(), narrow)
    assert narrow.exposures[Book].get_fields(reader) == ("id", "title")
    for name in ("isbn", "remark"):
        assert "has no field" in refusal(QueryRecords(), reader, model="testapp.book", fields=[name])


def test_a_model_admin_says_whether_changes_are_kept_and_tried() -> None:
    class Paid(admin.ModelAdmin):
        mcp_undo = False
        mcp_dry_run = False

    own = admin.AdminSite("own")
    own.register(Book, Paid)
    own.register(Tag)
    exposures = MCPSite("own", admin_site=own).exposures
    assert (exposures[Book].undo, exposures[Book].dry_run) == (False, False)
    assert (exposures[Tag].undo, exposures[Tag].dry_run) == (True, True)


def test_G129_secrets_are_left_out_though_the_change_page_shows_them():
    assert "secret_token" not in site.exposures[Author].get_fields(request_of(make_superuser()))


def test_the_columns_of_a_page_are_those_of_the_list(books):
    found = books.get_list_display(request_of(make_superuser()))
    assert found == ("id", "title", "author", "status", "price", "published", "is_long")


def test_rows_are_those_that_the_admin_lists_for_the_caller(books):
    user = make_user("seller", "testapp.view_book")
    mine, shared, other = make_book(owner=user), make_book(), make_book(owner=make_superuser())
    found = set(books.get_queryset(request_of(user)))
    assert found == {mine, shared}
    assert other not in found


def test_H139_only_members_of_the_staff_have_anything_of_the_admin(books):
    outsider = make_user("outsider", "testapp.view_book", "testapp.publish_book", staff=False)
    assert not books.has_view_permission(request_of(outsider))
    assert books.get_actions(request_of(outsider)) == {}
    assert MCPClient(outsider).tools() == []


def test_permissions_of_an_object_are_the_admins(books):
    user = make_user("seller", "testapp.view_book", "testapp.change_book")
    mine, shared = make_book(owner=user), make_book()
    request = request_of(user)
    assert books.has_change_permission(request)
    assert books.has_change_permission(request, mine)
    assert not books.has_change_permission(request, shared)
    assert not books.has_add_permission(request)


def test_actions_are_those_that_the_admin_would_offer(books):
    assert set(books.get_actions(request_of(make_superuser()))) == {"publish", "withdraw", "export"}
    viewer = make_user("viewer", "testapp.view_book")
    assert set(books.get_actions(request_of(viewer))) == {"export"}


class StockAdmin(admin.ModelAdmin):
    actions = ("mark", "look", "either", "plain")

    @admin.action(permissions=["change"])
    def mark(self, request, queryset): ...

    @admin.action(permissions=["view"])
    def look(self, request, queryset): ...

    @admin.action(permissions=["add", "delete"])
    def either(self, request, queryset): ...

    def plain(self, request, queryset): ...


@pytest.mark.parametrize("granted", ["", "view", "add", "change", "delete", "publish", "view publish", "change delete"])
def test_known_permissions_offer_what_djangos_own_hook_does(books, granted):
    request = request_of(make_user("member", *(f"testapp.{name}_book" for name in granted.split())))
    stock = AdminExposure(Book, site, StockAdmin(Book, admin.site))
    expected = [set(exposure.get_actions(request)) for exposure in (books, stock)]
    for exposure, found in zip((books, stock), expected, strict=True):
        assert found <= set(exposure.model_admin.get_actions(request))
    request.user = type(request.user).objects.get(pk=request.user.pk)
    load_permissions(request.user)
    assert [set(exposure.get_actions(request)) for exposure in (books, stock)] == expected


def test_actions_of_stock_hooks_are_found_without_djangos_way_to_permissions(monkeypatch):
    request = request_of(make_user("member", "testapp.change_book"))
    stock = AdminExposure(Book, site, StockAdmin(Book, admin.site))
    load_permissions(request.user)
    monkeypatch.setattr(type(request.user), "has_perm", None)
    assert set(stock.get_actions(request)) == {"mark", "look", "plain"}
    monkeypatch.setattr(stock.model_admin, "actions", None)
    assert stock.get_actions(request) == {}


def test_a_method_of_the_model_admin_is_a_column(books):
    assert books.get_computed("is_long")(make_book(pages=600)) is True
    assert books.get_computed("title") is None


def test_G127_rows_that_the_manager_hides_stay_hidden():
    assert not site.exposures[Loan].options.has_stable_queryset


def test_an_overridden_get_queryset_is_not_taken_for_stable(books):
    assert not books.options.has_stable_queryset
    assert site.exposures[Tag].options.has_stable_queryset


def test_a_subclass_refines_what_the_admin_says():
    class Narrow(AdminExposure):
        fields = ["title"]
        ordering = ["-title"]

    own = MCPSite("own")
    own.register(Book, Narrow)
    exposure = own.exposures[Book]
    request = request_of(make_superuser())
    assert exposure.get_fields(request) == ("id", "title")
    assert exposure.get_ordering(request) == ["-title"]
    assert exposure.model_admin is admin.site.get_model_admin(Book)


def test_search_is_the_admins(books):
    ada = make_author("Ada")
    book = make_book("Notes", author=ada)
    make_book("Other")
    found, _ = books.get_search_results(request_of(make_superuser()), Book.objects.all(), "ada")
    assert list(found) == [book]


@pytest.mark.django_db
@pytest.mark.parametrize("narrows", [True, False])
def test_a_search_of_the_admins_own_narrows_its_list_while_nothing_is_searched_for(monkeypatch, narrows):
    class Found(admin.ModelAdmin):
        search_fields = ["name"]
        list_display = ["name"]

        def get_search_results(self, request, queryset, search_term):
            queryset, duplicates = super().get_search_results(request, queryset, search_term)
            return (queryset.filter(active=True) if narrows and not search_term else queryset), duplicates

    monkeypatch.setitem(odd._registry, Kind, Found(Kind, odd))
    request = request_of(make_superuser(), MCPSite("found", admin_site=odd))
    kinds = [Kind.objects.create(name=f"k{number}", active=bool(number % 2)) for number in range(4)]
    shown = kinds[1::2] if narrows else kinds
    for _ in range(2):
        rows = call(QueryRecords(), request, model="oddapp.kind")["rows"]
        assert sorted(row[0] for row in rows) == [kind.pk for kind in shown]
    counted = call(AggregateRecords(), request, model="oddapp.kind", aggregates=["count"])
    assert counted["rows"] == [[len(shown)]]
    assert len(call(QueryRecords(), request, model="oddapp.kind", search="k")["rows"]) == 4


class PricedForm(forms.ModelForm):
    reason = forms.CharField(max_length=20)

    def clean_price(self):
        if self.cleaned_data["price"] > 50:
            raise forms.ValidationError("Too dear.")
        return self.cleaned_data["price"]


class PricedAdmin(admin.ModelAdmin):
    form = PricedForm

    def formfield_for_foreignkey(self, db_field, request, **options):
        if db_field.name == "author":
            options["queryset"] = Author.objects.exclude(name="Ghost")
        return super().formfield_for_foreignkey(db_field, request, **options)


def test_fewer_fields_are_written_through_the_same_form():
    class Fewer(AdminExposure):
        fields = ["title", "price", "author"]

    admins = admin.AdminSite("own")
    admins.register(Book, PricedAdmin)
    admins.register(Author)
    own = MCPSite("own", admin_site=admins)
    own.register(Book, Fewer)
    request, book, ghost = request_of(make_superuser(), own), make_book(), make_author("Ghost")
    given = {"model": "testapp.book", "pk": book.pk}
    for values, error in (
        ({"price": "60"}, "price: Too dear."),
        ({"author": ghost.pk}, "author: Select a valid choice."),
        ({"price": "6", "reason": ""}, "reason: This field is required."),
    ):
        assert error in refusal(UpdateRecord(), request, **given, values={"reason": "sale", **values})
    assert "cannot write 'status'" in refusal(UpdateRecord(), request, **given, values={"status": "published"})
    call(UpdateRecord(), request, **given, values={"price": "40", "reason": "sale"})
    book.refresh_from_db()
    assert book.price == 40


def test_a_field_of_the_form_alone_is_written_where_the_page_shows_it():
    class NotedForm(PricedForm):
        note = forms.CharField(required=False)

    class LaidOutAdmin(PricedAdmin):
        form = NotedForm
        fields = ("title", "price", "reason")

    admins = admin.AdminSite("own")
    admins.register(Book, LaidOutAdmin)
    request, book = request_of(make_superuser(), MCPSite("own", admin_site=admins)), make_book()
    given = {"model": "testapp.book", "pk": book.pk}
    told = refusal(UpdateRecord(), request, **given, values={"reason": "sale", "note": "x"})
    assert "cannot write 'note'" in told
    call(UpdateRecord(), request, **given, values={"price": "40", "reason": "sale"})
    book.refresh_from_db()
    assert book.price == 40


def own_hook(self, *args, **kwargs):
    raise NotImplementedError


FORM_CODE = [
    *("get_form", "get_fields", "get_fieldsets", "get_readonly_fields", "get_exclude", "get_field_queryset"),
    *("formfield_for_dbfield", "formfield_for_choice_field", "formfield_for_foreignkey", "formfield_for_manytomany"),
]


@pytest.mark.parametrize("hook", FORM_CODE)
def test_a_form_that_code_of_the_project_makes_is_made_for_each_call(hook):
    own_site = admin.AdminSite("own")
    own_site.register(
        Book, type("OwnAdmin", (admin.ModelAdmin,), {hook: own_hook, "fields": ["title", "author", "tags"]})
    )
    assert not MCPSite("own", admin_site=own_site).exposures[Book].options.has_fixed_form


def test_choices_that_are_computed_are_asked_for_in_each_call(monkeypatch):
    own_site = admin.AdminSite("own")
    own_site.register(Author, type("OwnAdmin", (admin.ModelAdmin,), {"fields": ["name", "email"]}))
    offered = ["a"]
    monkeypatch.setattr(Author._meta.get_field("name"), "choices", lambda: [(name, name) for name in offered])
    exposure = MCPSite("own", admin_site=own_site).exposures[Author]
    request = request_of(make_superuser(), exposure.site)
    for names in (["a"], ["b", "c"]):
        offered[:] = names
        form = exposure.get_form(request, Author(pk=1), change=True)
        assert [value for value, _ in form.base_fields["name"].choices if value] == names


def test_a_form_of_djangos_own_is_made_once_and_keeps_no_request():
    own_site = admin.AdminSite("own")
    own_site.register(Author, type("OwnAdmin", (admin.ModelAdmin,), {"fields": ["name", "email"]}))
    exposure = MCPSite("own", admin_site=own_site).exposures[Author]
    requests = [request_of(make_superuser(name), exposure.site) for name in ("ada", "bob")]
    first, second = (exposure.get_form(request, Author(pk=1), change=True) for request in requests)
    assert first is second
    assert first._meta.formfield_callback is None
    # Who may not change the row gets another one.
    nobody = request_of(make_user("nobody"), exposure.site)
    assert not exposure.get_form(nobody, Author(pk=1), change=True).base_fields


# What a page shows where hooks decide by row, fail, or are replaced by the exposure


def pages_of(model_admin, exposure=AdminExposure, model=Book):
    """Return the exposure of a model by a ``ModelAdmin``, and a request of a superuser."""
    own = admin.AdminSite("own")
    own.register(model, model_admin)
    pages = MCPSite("own", admin_site=own)
    if exposure is not AdminExposure:
        pages.register(model, exposure)
    return pages.exposures[model], request_of(make_superuser(), pages)


def test_a_page_that_fails_leaves_the_columns_of_the_list(caplog):
    class Broken(forms.ModelForm):
        class Meta:
            fields = ["nothing"]

    class Failing(admin.ModelAdmin):
        list_display = ["title"]
        form = Broken

    exposure, request = pages_of(Failing)
    assert exposure.get_fields(request) == ("id", "title")
    assert "The change page of testapp.book failed" in caplog.text


def test_without_a_row_the_fields_are_those_of_all_pages():
    class ByRow(admin.ModelAdmin):
        list_display = ["title"]

        def get_fields(self, request, obj=None):
            if obj is None or obj.pk is None:
                return []
            return ["title", "pages", "isbn" if obj.title == "Emma" else "price"]

    exposure, request = pages_of(ByRow)
    assert exposure.get_fields(request) == ("id", "title")
    make_book("Emma"), make_book("Persuasion")
    request = request_of(request.user, exposure.site)
    assert exposure.get_fields(request) == ("id", "title", "pages")


def test_a_function_of_the_list_is_a_column():
    def shout(book):
        return book.title.upper()

    class Loud(admin.ModelAdmin):
        list_display = ["title", shout]

    exposure, request = pages_of(Loud)
    assert exposure.get_fields(request)[:3] == ("id", "title", "shout")
    assert exposure.get_computed("shout")(Book(title="Emma")) == "EMMA"


def test_an_exposure_replaces_the_fields_the_search_and_the_form_of_the_admin():
    class Short(forms.ModelForm):
        class Meta:
            model = Book
            fields = ["title"]

    class Replaced(AdminExposure):
        search_fields = ["isbn"]
        form = Short
        stable_queryset = True

        def get_fields(self, request, obj=None):
            return [name for name in super().get_fields(request, obj) if name != "pages"]

    class Plain(admin.ModelAdmin):
        search_fields = ["title"]

    exposure, request = pages_of(Plain, Replaced)
    assert exposure.get_search_fields(request) == ["isbn"]
    assert list(exposure.get_form(request).base_fields) == ["title"]
    assert exposure.options.has_stable_queryset
    assert exposure.options.may_take(Book._meta.get_field("pages"))


def test_a_refusal_has_no_reason_where_no_sign_in_would_help():
    class Closed(admin.AdminSite):
        def has_permission(self, request):
            return False

    class ByBadge(admin.AdminSite):
        def has_permission(self, request):
            return request.session["badge"]

    reasons = {}
    for kind in (Closed, ByBadge):
        own = kind("own")
        own.register(Book)
        pages = MCPSite("own", admin_site=own)
        staff = make_user(kind.__name__, "testapp.view_book")
        reasons[kind] = pages.exposures[Book].get_refusal(request_of(staff, pages))
    assert reasons[Closed] == ""
    assert "does not let this user in through this client" in reasons[ByBadge]


def test_buttons_of_a_change_page_are_actions():
    class WithButtons(admin.ModelAdmin):
        change_actions = ["archive"]

        def get_change_actions(self, request, object_id, form_url):
            return self.change_actions

        def archive(self, request, obj):
            """Put it away."""

    exposure, request = pages_of(WithButtons)
    assert "archive" in exposure.get_actions(request)


def test_an_action_is_taken_apart_in_each_version_of_django():
    # Django 6.1 has objects for them.
    made = SimpleNamespace(func=len, name="count", plural_description="Count them")
    assert (
        AdminExposure.action_parts(made)
        == AdminExposure.action_parts((len, "count", "Count them"))
        == (len, "count", "Count them")
    )
