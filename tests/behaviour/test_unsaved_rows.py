"""Models are described by a row that is not stored. Hooks that rely on stored ones fail then, which is nobody's fault:
nothing of it is logged, and rows that are stored decide.
"""

import pytest
from django.contrib import admin
from django.urls import include, path

from mcp_django import MCPSite
from mcp_django.runtime import failing_hooks
from mcp_django.testing import MCPClient
from mcp_django.tools.query_records import QueryRecords
from tests.factories import make_book, make_superuser
from tests.testapp.models import Author, Book, Loan
from tests.tool_calls import call, request_of

pytestmark = [pytest.mark.django_db, pytest.mark.urls(__name__)]
# Every hook of Django's admin classes that takes the row.
HOOKS = """
has_change_permission has_delete_permission has_view_permission get_fields get_fieldsets get_readonly_fields
get_exclude get_form get_inlines get_inline_instances get_prepopulated_fields
get_formset_kwargs get_formset get_max_num get_min_num get_extra has_add_permission
""".split()


def looks(base, name):
    """Return a hook that reads the related rows of its row first."""
    stock = getattr(base, name)

    def hook(self, request, *args, **kwargs):
        if args and isinstance(args[0], Book):
            Loan.objects.filter(book=args[0]).count()
        return stock(self, request, *args, **kwargs)

    return hook


def looking(base, **options):
    names = [name for name in HOOKS if hasattr(base, name)]
    return type(f"Looking{base.__name__}", (base,), {**{name: looks(base, name) for name in names}, **options})


class ViewOnly:
    def has_add_permission(self, request, obj=None):
        return False


Loans = looking(admin.TabularInline, model=Loan)
BookAdmin = looking(admin.ModelAdmin, inlines=[Loans])
back = admin.AdminSite("back")
back.register(Book, BookAdmin)
back.register(Author)
closed = admin.AdminSite("closed")
closed.register(Book, type("Closed", (ViewOnly, BookAdmin), {"__module__": __name__}))
back_site, closed_site = MCPSite("unsaved", admin_site=back), MCPSite("unsaved_closed", admin_site=closed)
urlpatterns = [
    path("mcp", back_site.urls),
    path("closed/mcp", closed_site.urls),
    path("", include("tests.urls")),
    path("back/", back.urls),
    path("closed/", closed.urls),
]


@pytest.mark.parametrize("has_rows", [True, False])
@pytest.mark.parametrize("place", ["/mcp", "/closed/mcp"])
def test_no_hook_is_logged_for_a_row_that_is_not_stored(caplog, has_rows, place):
    failing_hooks._logged.clear()
    if has_rows:
        make_book()
    client = MCPClient(make_superuser(), path=place)
    described = client.call("describe_model", model="testapp.book").structured
    assert not has_rows or "loans" in described["inlines"]
    assert not client.call("list_models").is_error
    assert client.tools()
    assert [record.getMessage() for record in caplog.records if record.name == "mcp_django"] == []


def test_a_column_that_only_the_page_of_the_list_fills_says_so():
    """The page keeps something for its columns, which calls do not run."""
    own = admin.AdminSite("own")

    class Filled(admin.ModelAdmin):
        list_display = ("title", "loans_now", "note")
        readonly_fields = ("loans_now",)

        def changelist_view(self, request, extra_context=None):
            self.counts = {}
            return super().changelist_view(request, extra_context)

        def loans_now(self, book):
            return self.counts.get(book.pk)

        def note(self, book):
            return "new"

    own.register(Book, Filled)
    make_book()
    request = request_of(make_superuser(), MCPSite("own", admin_site=own))
    hint = call(QueryRecords(), request, model="testapp.book")["hint"]
    assert "loans_now is null in each row: the admin's list may fill it in its changelist_view" in hint
    assert "note" not in hint


def test_a_hook_that_fails_for_a_stored_row_is_logged(caplog, monkeypatch):
    failing_hooks._logged.clear()
    book = make_book()

    def fail(self, request, obj=None):
        raise ValueError("broken")

    monkeypatch.setattr(BookAdmin, "get_fieldsets", fail)
    MCPClient(make_superuser()).call("get_record", model="testapp.book", pk=book.pk)
    assert "of testapp.book failed" in caplog.text
