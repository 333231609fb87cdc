"""Names of applications as liars choose them, and as people of many languages do."""

import unicodedata

import pytest

from mcp_django.context.untrusted_text import DIGITS, TWINS, doubts_about

UNSEEN, MIXED, LONG, CLAIMED = "cannot be seen", "several alphabets", "very long", "makers of that product"
SEAL = "check mark"
EVIL = ("tools.evil.example",)


def kinds(name: str, *hosts: str) -> list[str]:
    """Which doubts there are, in their order."""
    told = doubts_about(name, hosts)
    found = [next(kind for kind in (UNSEEN, MIXED, SEAL, LONG, CLAIMED) if kind in doubt) for doubt in told]
    assert len(set(found)) == len(found)
    return found


@pytest.mark.parametrize(
    "name",
    [
        *("Claude", "Claude Code", "ChatGPT", "Visual Studio Code", "Cursor", "Gemini CLI"),
        *("Robot", "", "MCP Inspector 2", "Café Über-Straße", "O'Reilly & Söhne", "<b>x</b>", "A/B  C"),
        *("Яндекс Браузер", "Яндекс Browser", "роса и сова у реки", "Ελληνικά", "ΑΓΟΡΑ", "Հայերեն", "ქართული"),
        *("東京アプリ Tokyo", "ローマ字入力", "搜索助手App", "한국 앱", "漢字 한글", "मेरा ऐप", "تطبيق", "יישום", "ไทย"),
    ],
)
def test_an_ordinary_name_of_any_language_is_left_alone(name: str) -> None:
    # Of an application on the user's computer nothing is verified, so nothing is contradicted.
    assert kinds(name) == []


@pytest.mark.parametrize(
    "name",
    [
        "Clаude",  # Cyrillic a
        "Сlaude Code",  # Cyrillic C
        "ChatGΡT",  # Greek rho
        "pay\u1d1bаl",
        "Ꮯlaude",  # Cherokee
        "аррӏе",  # Cyrillic alone
        "РАСРОС Bank",
        "ραγρορ",  # Greek alone
    ],
)
def test_letters_that_pass_for_those_of_another_alphabet_are_told_of(name: str) -> None:
    assert kinds(name) == [MIXED]


@pytest.mark.parametrize(
    "name",
    [
        *("\u202eedualC", "Cla\u200bude", "Clau\u00adde", "\u2066Robot\u2069", "Rob\ufeffot", "Ro\nbot", "Rob\x00ot"),
        *("Ro\ufffdbot", "Robot\u3164", "\u2028Robot", "Robot\U000e0041", "Z" + "\u0301\u0302" * 3 + "algo"),
    ],
)
def test_what_is_not_seen_and_what_covers_is_told_of(name: str) -> None:
    assert kinds(name) == [UNSEEN]


@pytest.mark.parametrize(
    ("name", "own"),
    [
        ("CIaude", "claude.ai"),  # a capital i
        ("CIaude Code", "claude.ai"),
        ("OpenAl", "openai.com"),  # a small l
        ("ᴄʟᴀᴜᴅᴇ", "claude.ai"),  # small capitals
        ("VlsuaI Studio", "vscode.dev"),
    ],
)
def test_letters_of_the_same_stroke_and_small_capitals_are_told_of(name: str, own: str) -> None:
    assert kinds(name) == [MIXED]
    assert kinds(name, own) == [MIXED]
    assert kinds(name, *EVIL) == [MIXED, CLAIMED]


@pytest.mark.parametrize("name", ["OPENAI", "GEMINI CLI", "Illinois CLI", "OpenAL Soft", "Alliance"])
def test_capitals_that_are_meant_so_are_left_alone(name: str) -> None:
    assert kinds(name) == []


@pytest.mark.parametrize("name", ["Robot ✓", "✅ Claude", "Robot ☑\ufe0f"])
def test_a_check_mark_proves_nothing(name: str) -> None:
    assert kinds(name) == [SEAL]


def test_a_name_that_is_cut_is_told_of() -> None:
    assert (kinds("x" * 99), kinds("x" * 100), kinds("x" * 255)) == ([], [LONG], [LONG])


@pytest.mark.parametrize(
    ("name", "own"),
    [
        ("Claude", "claude.ai"),
        ("claude code", "claude.ai"),
        ("ClaudeDesktop", "api.anthropic.com"),
        ("C l a u d e", "claude.com"),
        ("Cl4ude", "claude.ai"),
        ("ＣＬＡＵＤＥ", "claude.ai"),
        ("𝐂𝐥𝐚𝐮𝐝𝐞", "claude.ai"),
        ("Cláude", "claude.ai"),
        ("Official Claude by Anthropic", "claude.ai"),
        ("0penAI", "chatgpt.com"),
        ("Chat GPT", "chatgpt.com"),
        ("VS-Code", "vscode.dev"),
        ("Visual Studio Code", "vscode.dev"),
        ("GitHub Copilot", "github.com"),
        ("Cursor", "www.cursor.com"),
        ("Gemini CLI", "gemini.google.com"),
        ("Codex", "chatgpt.com"),
    ],
)
def test_a_product_s_name_from_another_s_host_is_told_of(name: str, own: str) -> None:
    assert kinds(name, *EVIL) == [CLAIMED]
    assert kinds(name, own) == []
    # It is not enough to name the maker's address beside one's own.
    assert kinds(name, own, *EVIL) == [CLAIMED]
    assert kinds(name, "not" + ".".join(own.split(".")[-2:])) == [CLAIMED]
    assert kinds(name, f"{own}.evil.example") == [CLAIMED]


@pytest.mark.parametrize("name", ["Recursor", "Text cursor", "My Gemini", "Codexes", "Clauses", "Code", "Open air"])
def test_words_are_no_claims(name: str) -> None:
    assert kinds(name, *EVIL) == []


def test_all_that_is_odd_is_told_with_the_host() -> None:
    name = "Сlaude\u202e" + "x" * 100
    assert kinds(name, *EVIL) == [UNSEEN, MIXED, LONG, CLAIMED]
    assert doubts_about(name, EVIL)[-1] == (
        "Its name suggests “claude”, but tools.evil.example does not belong to the makers of that product."
    )


def test_twins_are_letters_of_cyrillic_and_greek_and_stand_for_latin_ones() -> None:
    for char, twin in TWINS.items():
        assert unicodedata.name(chr(char)).split()[0] in ("CYRILLIC", "GREEK")
        assert chr(twin).isascii()
        assert chr(twin).isalpha()
    assert all(chr(digit).isdigit() for digit in DIGITS)
