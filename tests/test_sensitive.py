"""Which names hold credentials, alone and with the model that they are of."""

from typing import Any

import pytest
from django.db import models
from django.test.utils import isolate_apps

from mcp_django.sensitive import HIDDEN, holds_hidden, is_sensitive, members


def model_of(name: str, **fields: Any) -> type[models.Model]:
    with isolate_apps("tests.testapp"):
        attributes = {"__module__": "tests.testapp.models", "Meta": type("Meta", (), {"app_label": "testapp"})}
        return type(name, (models.Model,), attributes | fields)


def text() -> Any:
    return models.CharField(max_length=100)


@pytest.mark.parametrize(
    "name",
    "password apiKey session_data certificate_key cert_key client_key webhook_key hmac_key master_key backup_codes "
    "hotp_seed TOTPSecret userPIN".split(),
)
def test_row_129_names_that_say_it_by_themselves(name: str) -> None:
    assert is_sensitive(name)


@pytest.mark.parametrize("name", "key code data value seed digest keyboard public_key_id metadata certificate".split())
def test_names_that_do_not(name: str) -> None:
    assert not is_sensitive(name)


@pytest.mark.parametrize("model", "Authenticator EmailConfirmation HOTPDevice TOTPDevice AuthToken Passkey".split())
@pytest.mark.parametrize("name", ["key", "code", "data", "seed", "value"])
def test_row_129_a_name_that_says_nothing_is_one_in_a_model_of_credentials(model: str, name: str) -> None:
    holder = model_of(model, **{name: text()})
    assert is_sensitive(name, holder)
    assert not is_sensitive("title", holder)


@pytest.mark.parametrize("model", "Device Author Keyboard Preference Hotplate".split())
def test_a_key_of_another_model_is_none(model: str) -> None:
    assert not any(is_sensitive(name, model_of(model, key=text(), value=text())) for name in ("key", "value"))


def test_row_129_a_key_beside_a_credential_is_one() -> None:
    assert is_sensitive("key", model_of("App", key=text(), client_secret=text()))
    assert not is_sensitive("code", model_of("App", code=text(), client_secret=text()))
    assert not is_sensitive("key", model_of("App", key=text(), is_secret=models.BooleanField()))


def test_row_129_secrets_within_json_are_hidden_and_numbers_are_not() -> None:
    value = {
        "certificate_key": "abc",
        "tokens": 152,
        "password": None,
        "secret": "",
        "name": "x",
        "secrets": ["a"],
        3: 4,
    }
    shown = {"certificate_key": HIDDEN, "tokens": 152, "password": None, "secret": "", "name": "x", "secrets": HIDDEN}
    assert dict(members(value)) == {**shown, "3": 4}


@pytest.mark.parametrize(
    ("value", "found"),
    [
        ({"a": [{"b": HIDDEN}]}, True),
        (HIDDEN, True),
        ([HIDDEN], True),
        ({"a": f"{HIDDEN}!"}, False),
        ({HIDDEN: 1}, False),
        (None, False),
    ],
)
def test_what_hides_a_secret_is_found_before_it_is_written(value: Any, found: bool) -> None:
    assert holds_hidden(value) is found
