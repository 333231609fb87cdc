"""A terminal in which a program runs that draws for people, and somebody who reads it and types."""

import fcntl
import os
import pty
import re
import select
import signal
import struct
import termios
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Final

ROWS, COLUMNS = 50, 160
LOOK_EVERY: Final = 0.2
# What moves the cursor or sets colours; programs also move it in place of writing spaces.
CONTROL: Final = re.compile(rb"\x1b\[[0-9;?<>=]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|\x1b.")


class Terminal:
    """A program in a terminal of its own, until the block ends.

    Raises:
        TimeoutError: of :meth:`wait_for`.
    """

    def __init__(self, command: Sequence[str], environment: Mapping[str, str], directory: Path) -> None:
        self._output = b""
        self._read = 0
        self._process, self._file = pty.fork()
        if self._process == 0:
            os.chdir(directory)
            os.execvpe(command[0], list(command), environment)
        fcntl.ioctl(self._file, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))

    def __enter__(self) -> "Terminal":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, raised: BaseException | None, traceback: TracebackType | None
    ) -> None:
        os.kill(self._process, signal.SIGKILL)
        os.waitpid(self._process, 0)
        os.close(self._file)

    @property
    def text(self) -> str:
        """What the program has drawn since it was last answered, without spaces."""
        drawn = CONTROL.sub(b"", self._output[self._read :]).decode(errors="replace")
        return "".join(drawn.split())

    def draw(self, seconds: float) -> None:
        """Let the program draw for a while."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            if select.select([self._file], [], [], LOOK_EVERY)[0]:
                try:
                    self._output += os.read(self._file, 65_536)
                except OSError:
                    return

    def wait_for(self, text: str, seconds: float) -> None:
        """Wait until the program has drawn a text."""
        wanted = "".join(text.split())
        until = time.monotonic() + seconds
        while wanted not in self.text:
            if time.monotonic() > until:
                raise TimeoutError(f"{text!r} was not drawn: {self.text[-500:]}")
            self.draw(LOOK_EVERY)

    def type(self, *keys: str) -> None:
        """Press keys one after the other, as a person would."""
        self.draw(0.5)
        self._read = len(self._output)
        for key in keys:
            os.write(self._file, key.encode())
            self.draw(0.5)
