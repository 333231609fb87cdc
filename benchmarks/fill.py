"""`python -m benchmarks.fill ROWS`: makes the very long table and prints, as JSON, the pages that are measured."""

import json
import sys


def main() -> None:
    """Fill the database of the settings."""
    import django

    django.setup()
    from .project import visits

    print(json.dumps(visits.create(int(sys.argv[1]))))


if __name__ == "__main__":
    main()
