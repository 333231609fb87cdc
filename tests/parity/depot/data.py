"""The rows that the cases start from."""

from datetime import UTC, datetime

from django.contrib.auth import get_user_model

from .models import Crate, Item, Mark, Remark, Shelf

STATES = ["open", "sealed", "lost"]


def make_depot() -> None:
    """Fill the depot: crates of each state, some hidden, some deleted, all on shelves that are in use."""
    users = get_user_model().objects
    users.create(username="keeper", is_staff=True, is_active=True)
    shelves = [Shelf.objects.create(name=f"S{number}", zone=["dry", "cold"][number % 2]) for number in range(4)]
    Shelf.objects.create(name="closed", active=False)
    # Who may not choose the internal one would unlink it in the admin, where the select has not got it.
    marks = [Mark.objects.create(name=f"M{number}", internal=number == 2) for number in range(3)]
    for number in range(10):
        crate = Crate.objects.create(
            code=f"C{number}",
            state=STATES[number % 3],
            rank=2 if number % 3 == 1 else 1,
            shelf=shelves[number % 4],
            weight=number * 7 % 10,
            opened=datetime(2025, 10, 25, 22 + number % 2, 30, tzinfo=UTC) if number % 3 else None,
            hidden=number in (4, 7),
            deleted=number == 8,
        )
        crate.marks.set(marks[number % 3 : 2])
        for part in range(number % 3):
            Item.objects.create(crate=crate, name=f"I{part}", quantity=20)
        if number % 2:
            Remark.objects.create(target=crate, text=f"R{number}")
