import pytest

from mcp_django.context.call_record import CallRecord
from mcp_django.operating.failure_causes import cause_of, place_of, reason_of


def failure(detail: str = "", outcome: str = "tool_error", tool: str = "query_records") -> CallRecord:
    return CallRecord(outcome=outcome, detail=detail, tool=tool, method="tools/call")


@pytest.mark.parametrize(
    ("message", "kept"),
    [
        ("shop.order has no field 'totl'. Fields: id, total", "shop.order has no field 'totl'. Fields: id, total"),
        ("There is no customer 'Anna Schmidt'.", "There is no customer '…'."),
        ('No row with email "anna@example.com".', 'No row with email "…".'),
        ("Nobody is called 'Anna'.", "Nobody is called '…'."),
        ("Name it «Ängström» or “Ö”.", "Name it «…» or “…”."),
        ("The first line.\nnext: {}", "The first line."),
        ("It doesn't know what 'total' is", "It doesn't know what 'total' is"),
        ("", ""),
    ],
)
def test_what_a_message_quotes_is_kept_only_if_it_is_written_like_a_name(message: str, kept: str) -> None:
    assert reason_of(message) == kept


def test_no_secret_is_kept() -> None:
    kept = reason_of("The key sk_live_abcdefgh12345678 has expired.")
    assert "abcdefgh" not in kept
    assert kept.endswith("has expired.")


def test_a_reason_fits_into_the_log() -> None:
    assert len(reason_of("long " * 1_000)) <= 200
    assert reason_of("a\x00b\u202ec") == reason_of("a\x00b\u202ec").replace("\x00", "")


@pytest.mark.parametrize("outcome", ["", "ok", "asked", "tried", "task", "cancelled"])
def test_a_call_that_did_not_fail_has_no_cause(outcome: str) -> None:
    assert cause_of(failure(outcome=outcome)) == ""


def test_equal_failures_have_one_cause_whatever_their_numbers() -> None:
    same = {
        cause_of(failure("Row 17 is gone (error 0123456789ab)")),
        cause_of(failure("Row 4711 is gone (error ba9876543210)")),
        cause_of(failure("Row 3 is gone (error 00000000000a)")),
    }
    assert len(same) == 1
    assert len(same.pop()) == 16


def test_other_reasons_tools_and_outcomes_are_other_causes() -> None:
    different = [
        failure("no field 'totl'"),
        failure("no field 'stat'"),
        failure("no field 'totl'", tool="aggregate_records"),
        failure("no field 'totl'", outcome="error:-32602"),
        failure(outcome="error:timeout"),
    ]
    assert len(set(map(cause_of, different))) == len(different)


def test_a_failure_of_own_code_is_known_by_the_function_that_raised_it() -> None:
    def ship() -> None:
        raise KeyError("x")

    with pytest.raises(KeyError) as raised:
        ship()
    name = test_a_failure_of_own_code_is_known_by_the_function_that_raised_it.__name__
    assert place_of(raised.value) == f"KeyError in {__name__}.{name}.<locals>.ship"
    assert place_of(ValueError("never raised")) == "ValueError"
