import os
import subprocess
import sys
import uuid

import pytest

from mcp_django.context.call_record import IDS, MAX_DETAIL, CallRecord


def test_the_first_outcome_stands_as_who_knows_more_says_it_first():
    record = CallRecord()
    record.settle("refused:permission", "x" * 500)
    record.settle("tool_error", "other")
    assert (record.outcome, record.detail) == ("refused:permission", "x" * MAX_DETAIL)


def test_tokens_are_four_bytes_each():
    assert [CallRecord(size=size).tokens for size in (0, 1, 4, 5)] == [0, 1, 1, 2]


def test_each_record_has_an_id_of_its_own():
    ids = [CallRecord().id for _ in range(3 * IDS)]
    assert len(set(ids)) == len(ids)
    assert {(found.version, found.variant) for found in ids} == {(4, uuid.RFC_4122)}


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")
def test_a_forked_process_has_other_ids():
    # In a process of its own, which has no threads: this one may have some.
    # Each writes its line at once: in pieces, those of both could mix.
    program = (
        "import os; from mcp_django.context.call_record import new_id; new_id(); os.fork(); "
        "os.write(1, f'{new_id()}\\n'.encode())"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert len(set(done.stdout.split())) == 2
