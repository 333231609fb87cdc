import asyncio
import json
import os
import subprocess
import sys
import threading

import pytest

from mcp_django.transports.stdio import pipes
from mcp_django.transports.stdio.pipes import Input, LineTooLong, Output

TIMEOUT = 10


@pytest.fixture
def pipe():
    """The two ends of a pipe; what the test has not closed is closed after it."""
    ends = list(os.pipe())
    yield ends
    for end in ends:
        if end is not None:
            os.close(end)


def write(ends, data):
    """Write to a pipe that someone else reads, however much it is, and close it."""

    def run():
        with os.fdopen(ends[1], "wb") as file:
            file.write(data)

    writer = threading.Thread(target=run)
    writer.start()
    ends[1] = None
    return writer


def read(end, size):
    """Read so many bytes."""
    while size:
        size -= len(os.read(end, size))


async def lines(ends, data, limit=100):
    """What comes of the data: lines, and the exception's class for one that is too long."""
    writer = write(ends, data)
    found = []
    reading = Input(ends[0], limit)
    async with asyncio.timeout(TIMEOUT):
        while True:
            try:
                line = await reading.line()
            except LineTooLong:
                line = LineTooLong
            if line is None:
                break
            found.append(line)
    writer.join(TIMEOUT)
    return found


async def test_lines_come_one_by_one_without_their_ends(pipe):
    assert await lines(pipe, b'{"a":1}\n\n[]\r\n' + "é".encode() + b"\n") == [b'{"a":1}', b"", b"[]\r", "é".encode()]


async def test_the_last_line_needs_no_end(pipe):
    assert await lines(pipe, b"a\nb") == [b"a", b"b"]


async def test_lines_that_arrive_in_pieces_are_whole(pipe):
    text = b"x" * pipes.CHUNK
    assert await lines(pipe, text + b"y\nz\n" + text + text, limit=3 * pipes.CHUNK) == [text + b"y", b"z", text + text]


@pytest.mark.parametrize("length", [101, pipes.CHUNK - 1, pipes.CHUNK, 5 * pipes.CHUNK])
async def test_a_line_that_is_too_long_is_dropped_to_its_end(pipe, length):
    data = b"a\n" + b"x" * length + b"\n" + b"y" * 100 + b"\n" + b"x" * length
    assert await lines(pipe, data) == [b"a", LineTooLong, b"y" * 100, LineTooLong]


async def test_no_more_is_read_than_a_few_lines_ahead(pipe):
    data = b"".join(b"%d\n" % number for number in range(1000)) + b"x" * 10 * pipes.CHUNK
    writer = write(pipe, data)
    reading = Input(pipe[0], len(data))
    async with asyncio.timeout(TIMEOUT):
        assert await reading.line() == b"0"
        while not reading._lines.full():
            await asyncio.sleep(0)
        # What the pipe and the reader do not take stays with the writer.
        assert writer.is_alive()
        found = [await reading.line() for _ in range(1000)]
        assert found[-1] == b"x" * 10 * pipes.CHUNK
    writer.join(TIMEOUT)


async def test_what_is_sent_arrives_as_lines(pipe):
    output = Output(pipe[1], lambda: None)
    output.send(b"one")
    output.send(b"two")
    await output.close(TIMEOUT)
    assert os.read(pipe[0], 100) == b"one\ntwo\n"


async def test_while_nobody_reads_there_is_no_room_and_later_there_is(pipe, monkeypatch):
    monkeypatch.setattr(pipes, "FULL", 3 * pipes.CHUNK)
    output = Output(pipe[1], lambda: None)
    for _ in range(20):
        output.send(b"x" * pipes.CHUNK)
    assert output.is_full
    waiting = asyncio.ensure_future(output.room())
    await asyncio.sleep(0)
    assert not waiting.done()
    received = threading.Thread(target=lambda: read(pipe[0], 20 * (pipes.CHUNK + 1)))
    received.start()
    await asyncio.wait_for(waiting, TIMEOUT)
    assert not output.is_full
    await output.close(TIMEOUT)
    received.join(TIMEOUT)


async def test_a_reader_that_is_gone_is_told_once_and_nothing_waits_for_it(pipe):
    os.close(pipe[0])
    pipe[0] = None
    told = []
    output = Output(pipe[1], lambda: told.append(True))
    for _ in range(3):
        output.send(b"x")
    await output.close(TIMEOUT)
    assert told == [True]


async def test_closing_waits_no_longer_than_it_may(pipe):
    output = Output(pipe[1], lambda: None)
    output.send(b"x" * 10 * pipes.CHUNK)
    await output.close(0.01)
    # Lets the thread end.
    os.close(pipe[0])
    pipe[0] = None


PROGRAM = """
import os, subprocess, sys
print("printed before")
from mcp_django.transports.stdio.pipes import claim
messages_in, messages_out = claim()
assert claim() == (messages_in, messages_out)
print("printed after")
os.write(1, b"written to descriptor 1\\n")
subprocess.run(["echo", "by a child"], check=True)
assert sys.stdin.read() == "" and subprocess.run(["cat"], capture_output=True).stdout == b""
assert not os.get_inheritable(messages_in) and not os.get_inheritable(messages_out)
os.write(messages_out, os.read(messages_in, 100))
"""


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_only_messages_reach_standard_output_once_it_is_claimed(unbuffered):
    environment = os.environ | {"PYTHONUNBUFFERED": unbuffered}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], input=json.dumps({"id": 1}), env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    # What an unbuffered program prints before is out already.
    before = "printed before\n" if unbuffered else ""
    assert done.stdout == before + '{"id": 1}'
    told = ["printed after", "written to descriptor 1", "by a child"]
    assert done.stderr.splitlines() == (told if unbuffered else ["printed before", *told])


def test_without_standard_error_what_is_printed_is_lost():
    done = subprocess.run(
        ["sh", "-c", f"exec {sys.executable} -c '{LOST}' 2>&-"], input="", capture_output=True, text=True, check=True
    )
    assert done.stdout == "message"


LOST = """
import os
from mcp_django.transports.stdio.pipes import claim
_, messages_out = claim()
print("lost")
os.write(messages_out, b"message")
"""
