"""The example shop, for tests with the settings of the example project, and the built documentation."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.db import transaction

from tests.documentation import DOCS, ROOT


@pytest.fixture(scope="module")
def shop(request: pytest.FixtureRequest, django_db_setup: None, django_db_blocker: Any) -> Iterator[None]:
    """The data of the evals, with SHOP_ORDERS orders if the module says so; rolled back after its last test."""
    from evals.shop import ORDERS, fill, quiet

    with quiet(), django_db_blocker.unblock(), transaction.atomic():
        fill(getattr(request.module, "SHOP_ORDERS", ORDERS))
        yield
        transaction.set_rollback(True)


@pytest.fixture(scope="session")
def built_docs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the documentation's site."""
    pytest.importorskip("sphinx")
    place = tmp_path_factory.mktemp("docs")
    command = [sys.executable, "-m", "sphinx", "--quiet", "-d", str(place / "doctrees"), str(DOCS), str(place / "html")]
    subprocess.run(command, cwd=ROOT, check=True)
    return place / "html"
