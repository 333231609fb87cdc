from datetime import UTC, datetime
from decimal import Decimal

import pytest
from django import forms
from django.contrib.postgres.forms import SimpleArrayField
from django.core.exceptions import ValidationError
from django.utils import translation

from mcp_django import ModelExposure
from mcp_django.emulation.form_filling import field_entries, keep, writable_names
from mcp_django.emulation.validation_errors import error_lines
from mcp_django.tools.write_tools import CreateRecord
from tests.factories import make_author, make_book, make_superuser
from tests.filterapp.models import Screening
from tests.testapp.models import Author, Loan, Note
from tests.tool_calls import call, refusal, request_of, site_with

pytestmark = [pytest.mark.postgresql, pytest.mark.one_server]

REQUEST = request_of(None)


def entries(field, value):
    return field_entries(REQUEST, field, "f", value)


COUNTRIES = [("BE", "Belgium"), ("FR", "France"), ("CD", "Congo, Republic of"), ("CG", "Congo")]


@pytest.mark.parametrize(
    ("text", "codes"),
    [
        ("Belgium, France", ["BE", "FR"]),
        ("BE,fr", ["BE", "FR"]),
        ("Congo, Republic of, Congo, France", ["CD", "CG", "FR"]),
        ("Belgium", ["BE"]),
    ],
)
def test_several_choices_are_sent_back_as_results_show_them(text, codes):
    field = forms.MultipleChoiceField(choices=COUNTRIES)
    assert entries(field, text) == [("f", code) for code in codes]
    for wrong in ("Belgium, Atlantis", "Belgium,", ",", "Belgium France"):
        with pytest.raises(ValidationError):
            entries(field, wrong)


@pytest.mark.parametrize(
    ("field", "value", "expected"),
    [
        (forms.CharField(), "a", [("f", "a")]),
        (forms.CharField(), 5, [("f", "5")]),
        (forms.CharField(), None, [("f", "")]),
        (forms.BooleanField(), True, [("f", "on")]),
        (forms.BooleanField(), "FALSE", []),
        (forms.BooleanField(), 0, []),
        (forms.BooleanField(), None, []),
        (forms.NullBooleanField(), None, [("f", "unknown")]),
        (forms.NullBooleanField(), "true", [("f", "true")]),
        (forms.JSONField(), {"a": None}, [("f", '{"a": null}')]),
        (forms.JSONField(), '{"a": null}', [("f", '{"a": null}')]),
        (forms.JSONField(), "a", [("f", '"a"')]),
        (forms.JSONField(), "5", [("f", '"5"')]),
        (forms.JSONField(), True, [("f", "true")]),
        (forms.MultipleChoiceField(), ["a", "b"], [("f", "a"), ("f", "b")]),
        (forms.MultipleChoiceField(), '["a"]', [("f", "a")]),
        (forms.TypedChoiceField(choices=[(True, "Yes")]), True, [("f", "True")]),
        (forms.DateTimeField(), "2030-01-02T03:04:05Z", [("f", "2030-01-02T03:04:05Z")]),
        (forms.SplitDateTimeField(), "2030-01-02T03:04:05.5", [("f_0", "2030-01-02"), ("f_1", "03:04:05.500000")]),
        (forms.SplitDateTimeField(), "2030-01-02 03:04", [("f_0", "2030-01-02"), ("f_1", "03:04:00")]),
        (forms.SplitDateTimeField(), ["2030-01-02", "03:04"], [("f_0", "2030-01-02"), ("f_1", "03:04")]),
        (forms.SplitDateTimeField(), None, [("f_0", ""), ("f_1", "")]),
        (SimpleArrayField(forms.CharField()), ["a,b", "c"], [("f", ["a,b", "c"])]),
    ],
)
def test_json_becomes_what_a_person_would_enter(field, value, expected):
    assert entries(field, value) == expected


@pytest.mark.parametrize(
    ("field", "value"),
    [
        (forms.CharField(), {}),
        (forms.CharField(), []),
        (forms.CharField(), False),
        (forms.IntegerField(), [1]),
        (forms.BooleanField(), "on"),
        (forms.BooleanField(), 2),
        (forms.BooleanField(), 1.5),
        (forms.BooleanField(), []),
        (forms.MultipleChoiceField(), "a"),
        (forms.SplitDateTimeField(), {"date": 1}),
    ],
)
def test_json_of_another_type_is_refused(field, value):
    with pytest.raises(ValidationError, match="Give "):
        entries(field, value)


def test_numbers_are_read_alike_in_every_language(settings):
    settings.USE_THOUSAND_SEPARATOR = True
    field = forms.DecimalField(localize=True)
    with translation.override("de"):
        for value in (1234.5, "1234.5"):
            (entry,) = entries(field, value)
            assert field.clean(entry[1]) == Decimal("1234.5")
        assert entries(field, "viel") == [("f", "viel")]


def test_disabled_fields_and_those_that_are_not_seen_are_not_writable():
    class Ask(forms.Form):
        a = forms.CharField()
        b = forms.CharField(disabled=True)
        c = forms.FileField()
        d = forms.CharField()

    assert writable_names(Ask(), {"a", "b", "c"}) == ["a", "c"]


def test_choices_are_named_where_one_is_wrong_but_not_without_end():
    class Ask(forms.Form):
        some = forms.ChoiceField(choices=[("Group", [(number, "x") for number in range(30)])])

    form = Ask({"some": "x"})
    (line,) = error_lines(form, ["some"])
    assert line.endswith("(valid: 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, …)")


def test_a_time_is_answered_with_one_that_is_understood():
    class Ask(forms.Form):
        opens = forms.TimeField()

    assert error_lines(Ask({"opens": "noon"}), ["opens"]) == ["opens: Enter a valid time. (such as 10:00)"]
    assert error_lines(Ask({}), ["opens"]) == ["opens: This field is required."]


@pytest.mark.django_db
def test_times_that_are_kept_lose_nothing():
    moment = datetime(2030, 1, 1, 1, 1, 1, 123456, tzinfo=UTC)
    loan = Loan(book=make_book(), borrower="Ann", due=moment)
    form_class = forms.modelform_factory(Loan, fields=["borrower", "due"])
    form = form_class({"borrower": "Bob"}, instance=loan)
    keep(form, loan, ["borrower"])
    assert form.is_valid()
    assert form.save(commit=False).due == moment


@pytest.fixture
def request_(db):
    return request_of(make_superuser())


def test_a_foreign_key_to_another_column_is_given_by_the_primary_key(request_):
    author = make_author("Ada")
    field = forms.ModelChoiceField(type(author).objects.all(), to_field_name="name")
    assert field_entries(request_, field, "f", author.pk) == [("f", "Ada")]
    assert field_entries(request_, field, "f", {"pk": author.pk, "label": "x"}) == [("f", "Ada")]


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("given", "stored"),
    [("M", "M"), ("m", "m"), ("Mini", "m"), ("mini", "X"), ("medium", "M"), ("MINI", None), ("huge", None)],
)
def test_a_choice_that_differs_in_case_from_another_is_the_one_that_is_written(given, stored):
    request = request_of(make_superuser(), site_with(Screening))
    values = {"size": given, "level": 1, "seats": 1, "takings": 1, "weight": 1}
    if stored is None:
        assert "size" in refusal(CreateRecord(), request, model="filterapp.screening", values=values)
        assert not Screening.objects.exists()
    else:
        call(CreateRecord(), request, model="filterapp.screening", values=values)
        assert Screening.objects.get().size == stored


def test_a_content_type_is_given_by_the_name_of_a_model_that_the_caller_sees(db):
    site = site_with(Author, **{"fields": ["name"]})
    site.register(Note, ModelExposure, fields=["content_type", "object_id", "target", "text"])
    request, author = request_of(make_superuser(), site), make_author("Ada")
    values = {"object_id": str(author.pk), "text": "hers"}
    made = call(CreateRecord(), request, model="testapp.note", values={**values, "content_type": "testapp.author"})
    assert made["fields"]["target"] == [author.pk, "Ada", "testapp.author"]
    for name in ("testapp.book", "testapp.nothing", "author"):
        text = refusal(CreateRecord(), request, model="testapp.note", values={**values, "content_type": name})
        assert text == "Nothing was saved:\ncontent_type: Give a model as list_models names it, or its key."
