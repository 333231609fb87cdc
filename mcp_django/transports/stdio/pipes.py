"""Pipes of stdio: messages as lines on standard input and output, taken away from everything else in the process.

Reading and writing have a thread each, as descriptors of any kind (pipes, files, terminals) can be waited for in one.
Both are bounded: no line is longer than ``limit``, and no more is read while too much waits to be written.
"""

import asyncio
import contextlib
import os
import sys
import threading
from collections.abc import Callable
from concurrent.futures import CancelledError
from functools import cache
from queue import SimpleQueue
from typing import Final

CHUNK: Final = 65_536
# Lines that are read ahead.
AHEAD: Final = 16
# Bytes that may wait to be written before what can be left out is left out, and no more is read.
FULL: Final = 4 * 1024 * 1024


class LineTooLong(Exception):
    """A line on the pipe of standard input crossed the limit; the line was read to its end and dropped."""


@cache
def claim() -> tuple[int, int]:
    """Take over the pipes of standard input and output for messages; return their new file descriptors.

    Whatever else the process or its children write to standard output goes to standard error, and standard input is
    empty for them. What was printed before and not written yet goes there too.
    """
    empty = os.open(os.devnull, os.O_RDWR)
    while empty <= 2:  # one of the three was closed, and is this from now on
        empty = os.open(os.devnull, os.O_RDWR)
    messages_in, messages_out = os.dup(0), os.dup(1)
    os.dup2(empty, 0)
    os.dup2(2, 1)
    os.close(empty)
    for descriptor in (messages_in, messages_out):
        # A parent's program may have set the other mode on what both share.
        with contextlib.suppress(OSError):
            os.set_blocking(descriptor, True)
    with contextlib.suppress(AttributeError, ValueError):  # someone has put another object there
        sys.stdout.flush()
        sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    return messages_in, messages_out


# A thread has a descriptor of its own and closes it itself: one that is closed while a thread waits for it may be given
# to another file, which the thread would go on with.


class Input:
    """Reads lines from a pipe's file descriptor in a thread, for the event loop that made the reader."""

    def __init__(self, descriptor: int, limit: int) -> None:
        self.descriptor, self.limit = os.dup(descriptor), limit
        self._loop = asyncio.get_running_loop()
        self._lines: asyncio.Queue[bytes | LineTooLong | None] = asyncio.Queue(AHEAD)
        # A daemon, as nothing can interrupt a read when the process is to end.
        threading.Thread(target=self._read, name="mcp-input", daemon=True).start()

    async def line(self) -> bytes | None:
        """Return the next line from the pipe of standard input, None at its end."""
        found = await self._lines.get()
        if isinstance(found, LineTooLong):
            raise found
        return found

    def _read(self) -> None:
        # The loop may end before the input does.
        with contextlib.suppress(RuntimeError, CancelledError):
            self._read_lines()
            self._hand_over(None)
        os.close(self.descriptor)

    def _read_lines(self) -> None:
        line = bytearray()
        dropping = False
        while chunk := self._chunk():
            *ends, rest = chunk.split(b"\n")
            for end in ends:
                if not dropping and len(line) + len(end) <= self.limit:
                    self._hand_over(bytes(line) + end)
                elif not dropping:
                    self._hand_over(LineTooLong())
                line.clear()
                dropping = False
            if not dropping and len(line) + len(rest) > self.limit:
                self._hand_over(LineTooLong())
                line.clear()
                dropping = True
            elif not dropping:
                line += rest
        if line:
            self._hand_over(bytes(line))

    def _chunk(self) -> bytes:
        try:
            return os.read(self.descriptor, CHUNK)
        except OSError:  # the other end was torn away, or a terminal is gone
            return b""

    def _hand_over(self, item: "bytes | LineTooLong | None") -> None:
        coroutine = self._lines.put(item)
        try:
            asyncio.run_coroutine_threadsafe(coroutine, self._loop).result()
        except RuntimeError:
            coroutine.close()
            raise


class Output:
    """Writes lines to a pipe's file descriptor in a thread.

    Made on the event loop that writes them; ``broken`` is called there when nobody reads any more.
    """

    def __init__(self, descriptor: int, broken: Callable[[], None]) -> None:
        self.descriptor, self.broken = os.dup(descriptor), broken
        self._loop = asyncio.get_running_loop()
        self._waiting: SimpleQueue[bytes | None] = SimpleQueue()
        self._size = 0
        self._is_broken = False
        self._room = asyncio.Event()
        self._room.set()
        self._done = asyncio.Event()
        threading.Thread(target=self._write, name="mcp-output", daemon=True).start()

    @property
    def is_full(self) -> bool:
        """Whether so many bytes wait for the pipe of standard output that notifications are left out."""
        return not self._room.is_set()

    def send(self, message: bytes) -> None:
        """Queue a message to be written to the pipe of standard output as one line."""
        line = message + b"\n"
        self._size += len(line)
        if self._size > FULL:
            self._room.clear()
        self._waiting.put(line)

    async def room(self) -> None:
        await self._room.wait()

    async def close(self, timeout: float) -> None:
        """Wait until all lines are written to the pipe of standard output, ``timeout`` seconds at most."""
        self._waiting.put(None)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._done.wait(), timeout)

    def _write(self) -> None:
        # The loop may end before the output does.
        with contextlib.suppress(RuntimeError):
            while (line := self._waiting.get()) is not None:
                view = memoryview(line)
                try:
                    while view and not self._is_broken:
                        view = view[os.write(self.descriptor, view) :]
                except OSError:
                    self._is_broken = True
                    self._loop.call_soon_threadsafe(self.broken)
                self._loop.call_soon_threadsafe(self._written, len(line))
            self._loop.call_soon_threadsafe(self._done.set)
        os.close(self.descriptor)

    def _written(self, size: int) -> None:
        self._size -= size
        if self._size <= FULL:
            self._room.set()
