import pytest
from django.contrib import admin
from django.contrib.contenttypes.models import ContentType
from django.db.models import Manager
from django.forms import CharField, ModelForm

from mcp_django import MCPSite, ModelExposure, action
from mcp_django.context.request import MCPContext, MCPRequest
from mcp_django.exposures.model_exposure import DeletionSite, InlineExposure
from mcp_django.tools.describe_model import DescribeModel
from mcp_django.tools.write_tools import UpdateRecord
from tests import tool_calls
from tests.factories import make_author, make_book, make_superuser, make_user
from tests.testapp.models import Author, Book, Loan, Tag
from tests.tool_calls import call, refusal

pytestmark = [pytest.mark.postgresql, pytest.mark.one_server, pytest.mark.django_db]


class AuthorExposure(ModelExposure):
    fields = ["name", "born", "initial"]
    search_fields = ["name"]
    actions = ["rename"]

    def initial(self, author):
        return author.name[0]

    @action(permissions=["change"], destructive=False)
    def rename(self, request, queryset, *, name: str):
        """Rename them."""
        queryset.update(name=name)


@pytest.fixture
def site():
    site = MCPSite("own")
    site.register(Author, AuthorExposure)
    return site


def request_of(user, site):
    request = MCPRequest()
    request.user = user
    request.mcp = MCPContext(site=site)
    return request


def test_the_primary_key_is_always_first(site):
    request = request_of(make_superuser(), site)
    assert site.exposures[Author].get_fields(request) == ("id", "name", "born", "initial")


def test_G130_an_exposure_without_fields_shows_the_primary_key_alone(site):
    site.register(Tag)
    exposure = MCPSite("other")
    exposure.register(Tag, ModelExposure)
    assert exposure.exposures[Tag].get_fields(request_of(make_superuser(), site)) == ("id",)


def test_G129_all_fields_are_all_but_the_sensitive_ones():
    site = MCPSite("own")
    site.register(Author, ModelExposure, fields="__all__")
    fields = site.exposures[Author].get_fields(request_of(make_superuser(), site))
    assert "email" in fields
    assert "secret_token" not in fields


def test_excluded_fields_are_left_out():
    site = MCPSite("own")
    site.register(Author, AuthorExposure, exclude=["born"])
    assert "born" not in site.exposures[Author].options.fields


def test_a_method_of_the_exposure_is_a_column(site):
    assert site.exposures[Author].get_computed("initial")(make_author("Ada")) == "A"
    assert site.exposures[Author].get_computed("name") is None
    # Hooks are not columns: only what fields names is.
    assert site.exposures[Author].get_computed("get_queryset") is None


def test_permissions_are_those_of_the_model(site):
    exposure = site.exposures[Author]
    viewer = request_of(make_user("viewer", "testapp.view_author"), site)
    editor = request_of(make_user("editor", "testapp.change_author"), site)
    nobody = request_of(make_user("nobody"), site)
    assert [exposure.has_view_permission(r) for r in (viewer, editor, nobody)] == [True, True, False]
    assert [exposure.has_change_permission(r) for r in (viewer, editor, nobody)] == [False, True, False]
    assert not exposure.has_add_permission(editor)
    assert not exposure.has_delete_permission(editor)


def test_actions_are_listed_for_those_who_may_run_them(site):
    exposure = site.exposures[Author]
    assert set(exposure.get_actions(request_of(make_superuser(), site))) == {"rename"}
    assert exposure.get_actions(request_of(make_user("viewer", "testapp.view_author"), site)) == {}


def test_the_form_has_the_writable_fields_alone(site):
    form = site.exposures[Author].get_form(request_of(make_superuser(), site))
    assert list(form.base_fields) == ["name", "born"]


class RetitleForm(ModelForm):
    reason = CharField(max_length=20)

    class Meta:
        model = Book
        fields = ["title", "isbn"]


def test_an_own_form_says_what_is_written_of_what_is_shown():
    class Retitled(ModelExposure):
        fields = ["title", "status", "author"]
        form = RetitleForm

        def save_model(self, request, obj, form, change):
            obj.title += f" ({form.cleaned_data['reason']})"
            super().save_model(request, obj, form, change)

    own = MCPSite("own")
    own.register(Book, Retitled)
    request, book = tool_calls.request_of(make_superuser(), own, scopes={"mcp:read", "mcp:write"}), make_book("Old")
    given = {"model": "testapp.book", "pk": book.pk}
    described = call(DescribeModel(), request, model="testapp.book", detail=True)
    assert described["input_schema"]["properties"].keys() == {"title", "reason"}
    assert "cannot write 'status'" in refusal(UpdateRecord(), request, **given, values={"status": "published"})
    assert "reason: This field is required." in refusal(UpdateRecord(), request, **given, values={"title": "New"})
    call(UpdateRecord(), request, **given, values={"title": "New", "reason": "typo"})
    book.refresh_from_db()
    assert book.title == "New (typo)"


def test_search_follows_the_rules_of_the_admin(site):
    ada, _ = make_author("Ada Lovelace"), make_author("Grace")
    request = request_of(make_superuser(), site)
    found, duplicates = site.exposures[Author].get_search_results(request, Author.objects.all(), "love ada")
    assert (list(found), duplicates) == ([ada], False)


def test_a_query_is_stable_unless_code_of_the_project_makes_it():
    class Own(ModelExposure):
        def get_queryset(self, request):
            return super().get_queryset(request)

    site = MCPSite("own")
    assert ModelExposure(Book, site).options.has_stable_queryset
    assert not Own(Book, site).options.has_stable_queryset
    assert not ModelExposure(Loan, site).options.has_stable_queryset
    assert type("Declared", (Own,), {"stable_queryset": True})(Book, site).options.has_stable_queryset
    assert isinstance(Loan._default_manager, Manager)


def test_R22_the_columns_of_a_page_are_those_that_fit_into_a_line_where_none_are_named():
    site = MCPSite("own")
    site.register(Book, ModelExposure, fields=["title", "data", "blob", "price"])
    exposure = site.exposures[Book]
    assert exposure.get_list_display(request_of(make_superuser(), site)) == ["id", "title", "price"]


def test_a_field_that_the_exposure_leaves_out_is_known_to_be_left_out(site):
    site.register(Book, ModelExposure, fields="__all__", exclude=["isbn"])
    options = site.exposures[Book].options
    assert options.leaves_out("isbn")
    assert not options.leaves_out("title")
    assert site.exposures[Author].options.leaves_out("email")
    assert not site.exposures[Author].options.leaves_out("initial")


def test_an_exposure_may_name_the_inlines_that_it_shows():
    class Loans(admin.TabularInline):
        model = Loan

    class Other(admin.TabularInline):
        model = Loan

    class Inlined(ModelExposure):
        inlines = [Loans]

    own = MCPSite("own")
    own.register(Book, Inlined)
    options = own.exposures[Book].options
    assert options.shows_inline(Loans(Book, admin.site))
    assert not options.shows_inline(Other(Book, admin.site))


def test_a_search_in_hidden_paths_alone_finds_nothing():
    own = MCPSite("own")
    own.register(Author, AuthorExposure)
    own.register(Book, ModelExposure, fields=["title"], search_fields=["author__name"])
    book = make_book(author=make_author("Ada"))
    for user, expected in ((make_superuser(), [book]), (make_user("u", "testapp.view_book"), [])):
        found, _ = own.exposures[Book].get_search_results(request_of(user, own), Book.objects.all(), "Ada")
        assert list(found) == expected


def test_inlines_are_those_that_a_hook_of_the_admin_gives():
    class Loans(admin.TabularInline):
        model = Loan

    class Odd(admin.ModelAdmin):
        inlines = [Loans]

        def get_formsets_with_inlines(self, request, obj=None):
            for formset, inline in super().get_formsets_with_inlines(request, obj):
                if obj is not None:
                    yield formset, inline

    pages = admin.AdminSite("pages")
    pages.register(Book, Odd)
    pages.register(Loan)
    own = MCPSite("own", admin_site=pages)
    request = request_of(make_superuser(), own)
    assert own.exposures[Book].get_inlines(request) == []
    assert [type(inline) for inline in own.exposures[Book].get_inlines(request, make_book())] == [Loans]


def test_columns_of_an_inlines_rows_are_made_by_the_inline_of_their_page():
    class Loans(admin.TabularInline):
        model = Loan
        readonly_fields = [lambda loan: "first"]

        def late(self, loan):
            return f"{self.word} {loan.borrower}"

        word = "by"

    Loans.readonly_fields[0].__name__ = "first"
    inline = Loans(Book, admin.site)
    exposure = InlineExposure(Loan, MCPSite("own"), inline)
    assert exposure.get_computed("borrower") is None
    assert exposure.get_computed("first")(None) == "first"
    loan = Loan(borrower="Ann")
    loan.mcp_inline = inline
    assert exposure.get_computed("late")(loan) == "by Ann"
    assert exposure.get_computed("nothing") is None


def test_what_a_deletion_takes_along_is_asked_of_the_exposure_or_of_the_admin():
    own = MCPSite("own")
    own.register(Author, AuthorExposure)
    found = DeletionSite(own)
    assert found.is_registered(Author)
    assert found.get_model_admin(Author) is own.exposures[Author]
    assert found.is_registered(Book)
    assert found.get_model_admin(Book) is admin.site.get_model_admin(Book)
    assert not found.is_registered(ContentType)


def test_a_model_that_only_the_admin_shows_has_no_exposure_by_itself(site):
    assert site.exposures[Author].options.closed_exposure(Book) is None
