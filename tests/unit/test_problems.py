from mcp_django.problems import nearest


def test_names_are_near_whatever_their_case():
    assert nearest("pagesize", ["PAGE_SIZE", "SESSIONS"]) == " Did you mean 'PAGE_SIZE'?"
    assert nearest("colour", ["PAGE_SIZE", "SESSIONS"]) == ""
