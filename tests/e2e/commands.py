"""Commands of `manage.py`, each in a process of its own: a fork of one that has the project ready.

To import Django and the project takes longer than nearly every command does. `run_command` starts one process for each
environment, and keeps the few that were used last. Run as a module it is that process: it reads a request from each
line of standard input, `{"arguments": [...], "typed": "..."}`, and writes what came of it as one line.
"""

import atexit
import json
import os
import subprocess
import sys
import tempfile
import threading
import traceback
from collections.abc import Mapping, Sequence
from typing import Any

from tests.e2e.forks import Dialogue

KEPT = 2


class ReadyProcess:
    """A process that has a project ready."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self.lock = threading.Lock()
        self.process = Dialogue([sys.executable, "-m", "tests.e2e.commands"], environment)

    def run(self, arguments: Sequence[str], typed: str) -> dict[str, Any]:
        """Run a command; one after the other."""
        with self.lock:
            answer: dict[str, Any] = self.process.ask({"arguments": [*arguments], "typed": typed})
            return answer

    def close(self) -> None:
        with self.lock:
            self.process.close()


_ready: dict[frozenset[tuple[str, str]], ReadyProcess] = {}
_choosing = threading.Lock()


def run_command(environment: Mapping[str, str], *arguments: str, typed: str = "") -> "subprocess.CompletedProcess[str]":
    """Run `manage.py` in this environment, and return its code and what it printed."""
    key = frozenset(environment.items())
    with _choosing:
        # The one that is used now is the last to go.
        found = _ready[key] = _ready.pop(key, None) or ReadyProcess(environment)
        while len(_ready) > KEPT:
            _ready.pop(next(iter(_ready))).close()
    answer = found.run(arguments, typed)
    return subprocess.CompletedProcess(["manage.py", *arguments], answer["code"], answer["stdout"], answer["stderr"])


@atexit.register
def _close() -> None:
    while _ready:
        _ready.popitem()[1].close()


def answer(arguments: list[str], typed: str) -> dict[str, Any]:
    """Run the command in a fork."""
    with tempfile.TemporaryFile() as given, tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        given.write(typed.encode())
        given.seek(0)
        child = os.fork()
        if child == 0:
            for number, file in enumerate((given, out, err)):
                os.dup2(file.fileno(), number)
            sys.stdin = open(0, closefd=False)  # noqa: SIM115
            # Not os._exit(): what waits to be told to other processes is sent when Python ends.
            sys.exit(be_manage(arguments))
        _, status = os.waitpid(child, 0)
        out.seek(0)
        err.seek(0)
        return {
            "code": os.waitstatus_to_exitcode(status),
            "stdout": out.read().decode(),
            "stderr": err.read().decode(),
        }


def be_manage(arguments: list[str]) -> int:
    from django.core.management import execute_from_command_line

    sys.argv = ["manage.py", *arguments]
    try:
        execute_from_command_line(sys.argv)
    except SystemExit as left:
        return left.code if isinstance(left.code, int) else int(left.code is not None)
    except BaseException:
        traceback.print_exc()
        return 1
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
    return 0


def main() -> None:
    import django
    from django.urls import get_resolver

    django.setup()
    assert get_resolver().url_patterns
    # A fork has the thread that forks and no other.
    assert threading.active_count() == 1
    for line in sys.stdin:
        request = json.loads(line)
        print(json.dumps(answer(request["arguments"], request["typed"])), flush=True)


if __name__ == "__main__":
    main()
