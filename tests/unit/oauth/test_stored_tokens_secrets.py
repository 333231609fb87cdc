import pytest

from mcp_django.oauth.stored_tokens import hashed_secret, is_hashed_here, same_secret


def test_a_secret_is_stored_so_that_it_can_be_compared_and_not_read() -> None:
    stored = hashed_secret("s3cret")
    assert "s3cret" not in stored
    assert is_hashed_here(stored)
    assert same_secret("s3cret", stored)


@pytest.mark.parametrize("given", ["", "S3cret", "s3cret ", hashed_secret("s3cret")])
def test_nothing_else_is_the_secret_and_what_is_stored_neither(given: str) -> None:
    assert not same_secret(given, hashed_secret("s3cret"))


@pytest.mark.parametrize("stored", ["", "plain", "pbkdf2_sha256$1000$salt$hash", "md5$salt$hash"])
def test_what_others_stored_is_theirs_to_compare(stored: str) -> None:
    assert not is_hashed_here(stored)
