from collections.abc import Generator

import pytest

from mcp_django.exceptions import Cancelled
from mcp_django.functions.progress import finished, result_annotation
from tests.writing import request_of


@pytest.fixture
def request_():
    request = request_of(None)
    request.sent = []
    request.mcp.progress_token = "t"

    def notify(method, params):
        request.sent.append(tuple(params[name] for name in ("progress", "total", "message") if name in params))
        # Reports that follow each other too quickly are left out.
        request.mcp.told_at = 0.0

    request.mcp.notify = notify
    return request


def test_what_is_no_generator_is_the_value_itself(request_):
    assert finished(request_, 5) == 5
    assert list(finished(request_, (number for number in (1, 2)))) == [1, 2]
    assert request_.sent == []


def test_each_yield_reports_and_the_return_value_is_the_result(request_):
    def work():
        yield 1, 4
        yield
        yield 2, 4, "half"
        yield "nearly"
        yield 4, 4
        return "done"

    assert finished(request_, work()) == "done"
    assert [report[0] for report in request_.sent] == sorted({report[0] for report in request_.sent})
    assert request_.sent[0] == (1, 4)
    assert request_.sent[1] == (2, 4, "half")
    assert request_.sent[2][-1] == "nearly"
    assert int(request_.sent[2][0]) == 2
    assert request_.sent[3] == (4, 4)


def test_texts_alone_are_counted(request_):
    def work():
        yield "first"
        yield "second"

    assert finished(request_, work()) is None
    assert request_.sent == [(1, "first"), (2, "second")]


@pytest.mark.parametrize("report", [{"a": 1}, [1], (1,), ("a", 2), (1, 2, "x", 4)], ids=repr)
def test_what_is_no_report_is_an_error_of_the_project(request_, report):
    def work():
        yield report

    with pytest.raises(TypeError, match="yields its progress"):
        finished(request_, work())


def test_H154_a_call_that_nobody_waits_for_ends_at_the_next_yield_and_cleans_up(request_):
    seen = []

    def work():
        try:
            yield 1, 2
            request_.mcp.cancelled = True
            yield
            seen.append("went on")
        finally:
            seen.append("cleaned up")

    with pytest.raises(Cancelled):
        finished(request_, work())
    assert seen == ["cleaned up"]


def test_the_result_of_a_generator_is_what_it_returns():
    assert result_annotation(Generator[tuple[int, int], None, dict[str, int]]) == dict[str, int]
    assert result_annotation(dict[str, int]) == dict[str, int]
