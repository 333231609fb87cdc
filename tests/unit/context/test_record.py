from mcp_django.context.record import MAX_DETAIL, CallRecord


def test_the_first_outcome_stands_as_who_knows_more_says_it_first():
    record = CallRecord()
    record.settle("refused:permission", "x" * 500)
    record.settle("tool_error", "other")
    assert (record.outcome, record.detail) == ("refused:permission", "x" * MAX_DETAIL)


def test_tokens_are_four_bytes_each():
    assert [CallRecord(size=size).tokens for size in (0, 1, 4, 5)] == [0, 1, 1, 2]


def test_each_record_has_an_id_of_its_own():
    assert CallRecord().id != CallRecord().id
