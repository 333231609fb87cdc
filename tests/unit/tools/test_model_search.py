"""Models by what is asked about: every word that the caller can see counts, and no other."""

from typing import Any

import pytest
from django.contrib import admin
from django.contrib.auth.models import Group, User
from django.db import models
from django.test import override_settings
from django.test.utils import isolate_apps
from django.utils import translation

from benchmarks.catalogue import catalogue
from benchmarks.tokens import asking
from mcp_django import AdminExposure, MCPSite, ModelExposure
from mcp_django.context.request import MCPRequest
from mcp_django.orm.access import access_of
from mcp_django.tools import model_search
from mcp_django.tools.list_models import ListModels
from tests.factories import make_superuser, make_user
from tests.library import reader, site_with
from tests.testapp.models import Author, Book, Loan, Placement, Profile, Shelf, Tag
from tests.tool_calls import call, request_of

pytestmark = [pytest.mark.postgresql, pytest.mark.one_server, pytest.mark.django_db]
LIST = ListModels()


def labels(request: MCPRequest, query: str) -> list[str]:
    return [row[0].partition(".")[2] for row in call(LIST, request, query=query)["rows"]]


@pytest.fixture
def library() -> MCPRequest:
    site = site_with(Book, Author, Tag, Profile, Shelf, Placement, Loan)
    return reader(make_superuser(), site)


@pytest.mark.parametrize(
    ("query", "model"),
    [
        ("authors", "author"),
        ("auhtors", "author"),
        ("testapp.shelf", "shelf"),
        ("shelves", "shelf"),
        ("ISBN", "book"),
        ("withdrawn", "book"),
        ("books in preparation", "book"),
        ("what is due, and who is the borrower", "loan"),
        ("biographies", "profile"),
        ("price with tax", "book"),
        ("placements by position", "placement"),
    ],
)
def test_the_model_of_a_question_comes_first(library: MCPRequest, query: str, model: str) -> None:
    assert labels(library, query)[0] == model


def test_search_terms_are_other_words_for_the_rows() -> None:
    class OwnWords(ModelExposure):
        fields = ["borrower", "due"]
        search_terms = ["lent items", "Ausleihe"]

    class LaterWords(ModelExposure):
        fields = ["name"]

        def get_search_terms(self, request: MCPRequest) -> list[str]:
            return ["keyword"] if request.user.is_superuser else []

    site = MCPSite()
    site.register(Loan, OwnWords)
    site.register(Tag, LaterWords)
    site.register(Book, ModelExposure, fields=["title"])
    request = reader(make_superuser(), site)
    assert labels(request, "all lent items")[0] == "loan"
    assert labels(request, "Ausleihen")[0] == "loan"
    assert labels(request, "keywords")[0] == "tag"
    other = reader(make_user("u", "testapp.view_tag", "testapp.view_book"), site)
    assert "No model matches" in call(LIST, other, query="keywords")["hint"]


def test_an_admin_and_an_inline_carry_search_terms() -> None:
    class LoanInline(admin.TabularInline):
        model = Loan
        mcp_search_terms = ["lending"]

    class BookAdmin(admin.ModelAdmin):
        inlines = [LoanInline]
        mcp_search_terms = ["publications"]

    class AuthorAdmin(admin.ModelAdmin):
        pass

    class Exposure(AdminExposure):
        search_terms = ["poets"]

    admin_site = admin.AdminSite("own")
    admin_site.register(Book, BookAdmin)
    admin_site.register(Author, AuthorAdmin)
    site = MCPSite(admin_site=admin_site)
    site.register(Author, Exposure)
    request = reader(make_superuser(), site)
    assert labels(request, "publication")[0] == "book"
    assert labels(request, "poet")[0] == "author"
    assert labels(request, "lendings")[0] == "loan"


def test_terms_that_cannot_be_made_leave_the_model_to_its_other_words() -> None:
    class Broken(ModelExposure):
        fields = ["name"]

        def get_search_terms(self, request: MCPRequest) -> list[str]:
            raise ValueError("broken")

    site = MCPSite()
    site.register(Tag, Broken)
    assert labels(reader(make_superuser(), site), "tags") == ["tag"]


def test_words_of_the_clients_language_and_of_the_projects_both_count() -> None:
    site = MCPSite()
    site.register(User, ModelExposure, fields=["username", "last_login"])
    site.register(Group, ModelExposure, fields=["name"])
    request = reader(make_superuser(), site)
    assert "No model matches" in call(LIST, request, query="Benutzer")["hint"]
    with translation.override("de"):
        assert labels(request, "Benutzer")[0] == "user"
        assert labels(request, "letzte Anmeldung")[0] == "user"
        assert labels(request, "groups")[0] == "group"
    # What one caller's language gave is not kept for another's.
    assert "No model matches" in call(LIST, request, query="Benutzer")["hint"]


def test_the_answer_is_small_and_the_best_comes_first(library: MCPRequest) -> None:
    found = call(LIST, library, query="tags of books")
    assert {row[0] for row in found["rows"][:2]} == {"testapp.tag", "testapp.book"}
    assert set(labels(library, "Which authors have never had a loan?")[:2]) == {"author", "loan"}
    assert 2 <= found["returned"] < 7
    assert found["hint"].startswith("Best first.")
    assert "all 7" in found["hint"]


def test_where_nothing_fits_all_models_are_shown_and_said_to_be(library: MCPRequest) -> None:
    found = call(LIST, library, query="xylophone")
    assert found["returned"] == 7
    assert found["hint"].startswith("No model matches, so these are all")
    for nothing in ("", " ", None):
        assert call(LIST, library, query=nothing)["rows"] == found["rows"]


HIDDEN = "secret zebra quagga"


def test_hidden_words_change_no_answer() -> None:
    def answers(words: str) -> list[Any]:
        class Ledger(models.Model):
            name = models.CharField(max_length=10)
            hidden = models.CharField(words, max_length=10, help_text=words, choices=[(words, words)])

            class Meta:
                app_label = "testapp"

        class Vault(models.Model):
            ledger = models.ForeignKey(Ledger, models.CASCADE, related_name=words.replace(" ", "_"))

            class Meta:
                app_label = "testapp"
                verbose_name = words

        class Closed(ModelExposure):
            fields = ["ledger"]
            description = words
            search_terms = [words]

            def has_view_permission(self, request: MCPRequest, obj: Any = None) -> bool:
                return False

        class WithActions(ModelExposure):
            fields = ["id", "name"]

            def get_actions(self, request: MCPRequest) -> dict[str, Any]:
                return {}

        site = MCPSite()
        site.register(Ledger, WithActions)
        site.register(Vault, Closed)
        site.register(Tag, ModelExposure, fields=["name"])
        request = reader(make_user(f"u{words}", "testapp.view_tag"), site)
        # Permissions of a model that has no table cannot be granted.
        WithActions.has_view_permission = lambda *about: True  # type: ignore[method-assign]
        return [
            call(LIST, request, query=query) for query in (HIDDEN, "zebra", "ledger name", "quagga tag", "zebar tag")
        ]

    with isolate_apps("tests.testapp"):
        first = answers(HIDDEN)
    with isolate_apps("tests.testapp"):
        assert answers("nothing of that") == first


def test_masked_fields_are_no_words() -> None:
    site = MCPSite(admin_site=admin.site)
    request = reader(make_superuser(), site)
    assert "No model matches" in call(LIST, request, query="secret_token")["hint"]


def test_choices_that_code_makes_for_each_call_are_not_kept() -> None:
    asked: list[int] = []

    def choices() -> list[tuple[str, str]]:
        asked.append(1)
        return [("zebra", "Zebra")]

    with isolate_apps("tests.testapp"):

        class Animal(models.Model):
            kind = models.CharField(max_length=10, choices=choices)

            class Meta:
                app_label = "testapp"

        site = MCPSite()
        site.register(Animal, ModelExposure, fields=["kind"])
        request = reader(make_superuser(), site)
        asked.clear()
        assert "No model matches" in call(LIST, request, query="zebra")["hint"]
        assert not asked


def test_actions_count_for_those_who_may_run_them() -> None:
    site = MCPSite(admin_site=admin.site)
    user = make_user("u", "testapp.view_book", "testapp.view_author", "testapp.publish_book")
    assert labels(reader(user, site), "export")[0] == "book"
    only_reads = request_of(user, site, scopes=frozenset({"mcp:read"}))
    assert "No model matches" in call(LIST, only_reads, query="export")["hint"]


def test_the_words_of_a_model_are_read_once() -> None:
    site = catalogue()
    request = asking(site)
    model_search._weights.cache_clear()
    for query in ("open invoices", "late shipments", "totals"):
        call(LIST, request, query=query)
    info = model_search._weights.cache_info()
    assert (info.misses, info.hits) == (50, 100)
    assert info.maxsize is not None
    with override_settings(MCP_DJANGO={"READ_ONLY": True}):
        call(LIST, asking(site), query="close")
    # Without the actions they are others.
    assert model_search._weights.cache_info().misses == 100


def test_the_right_one_of_fifty_models_is_found() -> None:
    request = asking(catalogue())
    assert len(access_of(request).exposures) == 50
    for query, label in [
        ("invoices that are overdue", "invoice"),
        ("notes on contracts", "contractnote"),
        ("lines of invoices", "invoiceline"),
        ("shippment events", "shipmentevent"),
        ("leads", "lead"),
    ]:
        assert label in labels(request, query)[:3], query


@pytest.mark.parametrize(
    "query", ["\0", "🦓", "%s", "a" * 100_000, "?" * 100_000, "j " * 50_000, "{}", "'; --", "\ud800"]
)
def test_odd_questions_are_answered(library: MCPRequest, query: str) -> None:
    assert call(LIST, library, query=query)["returned"] == 7
