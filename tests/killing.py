"""Child processes that are killed or frozen at one of their statements, to be looked at from beside them."""

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from django.db import connection, connections

KILLED = -signal.SIGKILL


class Child:
    """A fork of this process that does something, and gets a signal from itself at its statement of this number.

    A commit counts twice: the child can get the signal before the database hears of the commit, and once it has
    answered.
    """

    def __init__(self, number: int, act: Callable[[], Any], name: signal.Signals) -> None:
        connections.close_all()
        self.pid = os.fork()
        if self.pid == 0:
            code = 1
            try:
                _run_to(number, act, name)
                code = 0
            finally:
                # No code of the test runs a second time.
                os._exit(code)
        _, self.status = os.waitpid(self.pid, os.WUNTRACED)

    @property
    def is_frozen(self) -> bool:
        """Whether the child was stopped, and has not ended."""
        return os.WIFSTOPPED(self.status)

    @property
    def was_killed(self) -> bool:
        """Whether the child was killed. It has not failed in any case."""
        code = os.waitstatus_to_exitcode(self.status)
        assert code in (0, KILLED), f"the child has failed: {code}"
        return code == KILLED

    def thaw(self) -> None:
        """Let a frozen child go on to its end."""
        os.kill(self.pid, signal.SIGCONT)
        _, self.status = os.waitpid(self.pid, 0)


def killed_at(number: int, act: Callable[[], Any]) -> bool:
    """Run something in a child process that is killed at its statement of this number; return whether it was."""
    return Child(number, act, signal.SIGKILL).was_killed


@contextmanager
def frozen_at(number: int, act: Callable[[], Any]) -> Iterator[bool]:
    """Run something in a child process that is frozen at its statement of this number, and goes on after the block.
    Give whether it was: it has ended if not."""
    child = Child(number, act, signal.SIGSTOP)
    is_frozen = child.is_frozen
    try:
        yield is_frozen
    finally:
        if is_frozen:
            child.thaw()
    assert not child.was_killed


def _run_to(number: int, act: Callable[[], Any], name: signal.Signals) -> None:
    left = number

    def step() -> None:
        nonlocal left
        left -= 1
        if left == 0:
            os.kill(os.getpid(), name)

    def execute(run: Any, *args: Any) -> Any:
        step()
        return run(*args)

    commit = connection._commit

    def committed() -> None:
        step()
        commit()
        step()

    connection._commit = committed
    with connection.execute_wrapper(execute):
        act()
