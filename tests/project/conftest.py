"""The example shop, for tests with the settings of the example project."""

from collections.abc import Iterator
from typing import Any

import pytest
from django.db import transaction


@pytest.fixture(scope="module")
def shop(request: pytest.FixtureRequest, django_db_setup: None, django_db_blocker: Any) -> Iterator[None]:
    """The data of the evals, with SHOP_ORDERS orders if the module says so; rolled back after its last test."""
    from evals.shop import ORDERS, fill, quiet

    with quiet(), django_db_blocker.unblock(), transaction.atomic():
        fill(getattr(request.module, "SHOP_ORDERS", ORDERS))
        yield
        transaction.set_rollback(True)
