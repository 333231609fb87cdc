import functools

import pytest
from django import forms
from django.contrib.admin.helpers import ActionForm
from django.contrib.auth import forms as auth_forms
from django.http import HttpRequest

import mcp_django as mcp
from mcp_django.exposures.action_options import ActionOptions, page_form, runs_anywhere
from mcp_django.functions.progress import finished
from tests.writing import request_of


def test_a_generator_runs_to_its_end_without_mcp():
    seen, request = [], request_of(None)

    class Admin:
        @runs_anywhere
        def work(self, request, queryset):
            """Work."""
            seen.append(queryset)
            yield 1, 2
            seen.append("end")
            return "done"

        @runs_anywhere
        def plain(self, request, queryset):
            return queryset

    assert Admin().work(HttpRequest(), "rows") == "done"
    assert seen == ["rows", "end"]
    assert finished(request, Admin().work(request, "rows")) == "done"
    assert request.mcp.last_progress is None
    assert Admin.work.__doc__ == "Work."
    assert Admin().plain(HttpRequest(), 5) == 5


def test_an_action_carries_what_was_declared_of_it():
    @mcp.action(permissions=["view"], description="Look.", destructive=False, read_only=True)
    def look(self, request, queryset): ...

    assert look.mcp_action == ActionOptions(
        permissions=("view",), description="Look.", destructive=False, read_only=True
    )


def test_an_option_that_there_is_not_is_refused_where_it_is_written():
    with pytest.raises(TypeError, match="dangerous"):

        @mcp.action(dangerous=True)
        def look(self, request, queryset): ...


# The form of an action's page


class ReasonForm(forms.Form):
    reason = forms.CharField()


class OtherForm(forms.Form):
    other = forms.CharField()


class Picked(ActionForm):
    extra = forms.CharField()


def logged(function):
    @functools.wraps(function)
    def wrapper(*args):
        return function(*args)

    return wrapper


class Actions:
    def simple(self, request, queryset):
        return ReasonForm(request.POST)

    def nested(self, request, queryset):
        def ask():
            return ReasonForm()

        return [ask() for _ in queryset]

    @logged
    def decorated(self, request, queryset):
        return ReasonForm()

    def by_module(self, request, queryset):
        return auth_forms.SetPasswordForm(request.user)

    def none(self, request, queryset):
        return forms.Form

    def two(self, request, queryset):
        return ReasonForm() if request.POST else OtherForm()

    def of_the_list(self, request, queryset):
        return Picked()

    def declared(self, request, queryset):
        return self.form_class()

    declared.mcp_form = OtherForm

    def silent(self, request, queryset):
        return ReasonForm()

    silent.mcp_form = None


def made_here():
    class Inner(forms.Form):
        inner = forms.CharField()

    def closed(admin, request, queryset):
        return Inner()

    return closed, Inner


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("simple", ReasonForm),
        ("nested", ReasonForm),
        ("decorated", ReasonForm),
        ("by_module", auth_forms.SetPasswordForm),
        ("none", None),
        ("two", None),
        ("of_the_list", None),
        ("declared", OtherForm),
        ("silent", None),
    ],
)
def test_the_form_of_a_page_is_known_before_it_is_shown(name, expected):
    assert page_form(getattr(Actions, name)) is expected
    assert page_form(getattr(Actions(), name)) is expected


def test_a_form_may_come_from_around_the_action():
    closed, inner = made_here()
    assert page_form(closed) is inner


@pytest.mark.parametrize("function", [len, functools.partial(len, []), type("Callable", (), {"__call__": len})()])
def test_what_has_no_code_has_no_form(function):
    assert page_form(function) is None
