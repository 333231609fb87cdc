"""The command: measures without a model, with one, or writes the snapshots of what clients are shown."""

import argparse
import sys
from collections.abc import Sequence

USAGE = """python -m evals [surface | reach FILE | run ... | obey ... | tasks ...]

without a word  measures what the shop can be asked, and writes evals/RESULTS.md and build/evals.json
surface         writes the snapshots of tools/list in evals/surface/
reach FILE      says which queries of a file in SQL one call answers
run             lets a model answer the questions: python -m evals run --help
obey CLIENT...  lets a model that obeys every text try to confirm a call, through claude, codex and gemini
tasks CLIENT... lets claude at a terminal, and the Inspector's mcpdo, make calls that go on as tasks"""


def main(arguments: Sequence[str]) -> int:
    """Run the command and return the exit status: 1 where a bar is missed."""
    if arguments[:1] == ["run"]:
        from .trials import main as run

        return run(arguments[1:])
    if arguments[:1] == ["obey"]:
        from .command_lines import main as obey

        return obey(arguments[1:])
    if arguments[:1] == ["tasks"]:
        from .task_clients import main as drive

        return drive(arguments[1:])
    if arguments[:1] == ["reach"]:
        parser = argparse.ArgumentParser(prog="python -m evals reach")
        parser.add_argument("file", help="JSON, a list of objects with SQL; or one query a line")
        parser.add_argument("--keys", help="JSON with the unique columns of each database and table")
        options = parser.parse_args(arguments[1:])
        from .reach import main as classify

        classify(options.file, options.keys)
        return 0
    if arguments not in ([], ["surface"]):
        print(USAGE, file=sys.stderr)
        return 2
    from .shop import shop

    with shop():
        from . import report, surface

        if arguments:
            surface.write()
            return 0
        measures = report.measured()
    report.write(measures)
    print(report.page(measures))
    return 0 if all(report.reached(measures, what) for what in report.BARS) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
