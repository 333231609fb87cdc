"""``python -m mcp_django``: its port, its folder and its ends. The shop that it serves is made in ``tryout/``."""

import os
import signal
import socket
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any

import pytest

from mcp_django import __main__ as entry

pytestmark = pytest.mark.one_django

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
Served = dict[str, Any]


@pytest.fixture(autouse=True)
def kept_signals() -> Iterator[None]:
    before = [signal.getsignal(number) for number in SIGNALS]
    yield
    for number, handler in zip(SIGNALS, before, strict=True):
        signal.signal(number, handler)


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Served:
    """What the shop was opened with. It leaves a file, and then ends as ``end`` says."""
    found: Served = {"end": lambda: None}

    def serve(folder: Path, host: str, port: int, fate: str) -> None:
        (folder / "data").write_text("rows")
        found.update(folder=folder, host=host, port=port, fate=fate)
        found["end"]()

    monkeypatch.setitem(sys.modules, "mcp_django.tryout.shop", SimpleNamespace(serve=serve))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    return found


def run(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> None:
    monkeypatch.setattr(sys, "argv", ["mcp_django", *arguments])
    entry.main()


def send(number: int) -> None:
    os.kill(os.getpid(), number)


def fail() -> None:
    raise RuntimeError("no room left")


@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_removes_the_folder(monkeypatch: pytest.MonkeyPatch, served: Served, number: int) -> None:
    served["end"] = lambda: send(number)
    with pytest.raises(SystemExit) as ended:
        run(monkeypatch, "--port", "0")
    assert ended.value.code == 130
    assert not served["folder"].exists()
    assert "removed" in served["fate"]


def test_a_second_signal_while_the_folder_is_removed_leaves_nothing(
    monkeypatch: pytest.MonkeyPatch, served: Served
) -> None:
    def remove(directory: TemporaryDirectory[str]) -> None:
        send(signal.SIGINT)
        cleanup(directory)

    cleanup = TemporaryDirectory.cleanup
    monkeypatch.setattr(TemporaryDirectory, "cleanup", remove)
    served["end"] = lambda: send(signal.SIGINT)
    with pytest.raises(SystemExit) as ended:
        run(monkeypatch, "--port", "0")
    assert ended.value.code == 130
    assert not served["folder"].exists()


@pytest.mark.parametrize(("end", "error"), [(lambda: None, None), (fail, RuntimeError)])
def test_so_do_an_error_and_an_end_by_itself(
    monkeypatch: pytest.MonkeyPatch, served: Served, end: Callable[[], None], error: type[Exception] | None
) -> None:
    served["end"] = end
    if error is None:
        run(monkeypatch, "--port", "0")
    else:
        with pytest.raises(error, match="no room left"):
            run(monkeypatch, "--port", "0")
    assert not served["folder"].exists()


def test_a_folder_to_keep_is_made_and_stays(monkeypatch: pytest.MonkeyPatch, served: Served, tmp_path: Path) -> None:
    kept = tmp_path / "some" / "where"
    run(monkeypatch, "--port", "0", "--keep", str(kept))
    assert (kept / "data").exists()
    assert served["fate"] == f"Its data stays in {kept}."


def test_only_this_machine_reaches_it(monkeypatch: pytest.MonkeyPatch, served: Served) -> None:
    run(monkeypatch, "--port", "0")
    assert served["host"] == "127.0.0.1"


def test_another_port_is_taken_where_the_usual_one_is_not_free(
    monkeypatch: pytest.MonkeyPatch, served: Served, capsys: pytest.CaptureFixture[str]
) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        taken = other.getsockname()[1]
        monkeypatch.setattr(entry, "USUAL_PORT", taken)
        run(monkeypatch)
        assert served["port"] not in (0, taken)
        assert f"Port {taken} is taken." in capsys.readouterr().out
        # Who asks for a port wants that one.
        with pytest.raises(SystemExit) as refused:
            run(monkeypatch, "--port", str(taken))
    assert refused.value.code == 2
    assert f"--port {taken}" in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [("--port", "99999"), ("--port", "-1"), ("--keep", __file__)])
def test_what_cannot_be_done_is_said(
    monkeypatch: pytest.MonkeyPatch, served: Served, capsys: pytest.CaptureFixture[str], arguments: tuple[str, str]
) -> None:
    with pytest.raises(SystemExit) as refused:
        run(monkeypatch, *arguments)
    assert refused.value.code == 2
    assert " ".join(arguments) in capsys.readouterr().err
    assert "folder" not in served


def test_without_a_server_it_says_how_to_install_one(
    monkeypatch: pytest.MonkeyPatch, served: Served, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(entry, "find_spec", lambda name: None)
    with pytest.raises(SystemExit) as refused:
        run(monkeypatch)
    assert refused.value.code == 2
    assert f"{sys.executable} -m pip install daphne" in capsys.readouterr().err
    assert "folder" not in served
