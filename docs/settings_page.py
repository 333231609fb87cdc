"""Write docs/settings.md from the table of settings: `python docs/settings_page.py`."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mcp_django.conf.defaults import SECTIONS
from mcp_django.conf.value_kinds import Group, Setting

PAGE = Path(__file__).with_name("settings.md")
HEAD = """# Settings

After this page you can change what your project needs, and leave the rest. All settings are keys of one dict,
`MCP_DJANGO`. Only `BASE_URL` has to be set; every other key has a safe default. `manage.py check` reports unknown keys
and invalid values.

```python
# settings.py
from mcp_django.oauth import provider_settings

ALLOWED_HOSTS = ["shop.example"]
BASE_URL = "https://shop.example"
MCP_DJANGO = {"BASE_URL": BASE_URL, "SERVER": {"name": "shop"}, "READ_ONLY": True}
OAUTH2_PROVIDER = provider_settings(base_url=BASE_URL)
```

`OAUTH2_PROVIDER` is the setting of django-oauth-toolkit; [OAuth](oauth.md#provider_settings) describes
`provider_settings()`. A setting with several parts is a dict: write only the parts that you change, such as
`"RATES": {"calls": "600/m"}`. Rates are written as "number/period" with `s`, `m`, `h` or `d`; `None` means no limit.

Django's own `DATA_UPLOAD_MAX_MEMORY_SIZE` limits the size of a request body. [All limits](security.md#bounds).
"""


def written(value: Any) -> str:
    """Return a default as a project writes it."""
    if isinstance(value, dict):
        return "{" + ", ".join(f'"{name}": {written(item)}' for name, item in value.items()) + "}"
    if isinstance(value, list | tuple):
        inside = ", ".join(map(written, value))
        return f"[{inside}]" if isinstance(value, list) else f"({inside})"
    return f'"{value}"' if isinstance(value, str) else repr(value)


def rows(name: str, setting: Setting) -> Iterator[tuple[str, str, str]]:
    """Yield the rows of a setting, one for each part of it where it is a dict."""
    if isinstance(setting.kind, Group):
        for part, member in setting.kind.members.items():
            yield f'`{name}["{part}"]`', f"`{written(member.default)}`", member.meaning
    else:
        yield f"`{name}`", f"`{written(setting.default)}`", setting.meaning


def page() -> str:
    """Return the page."""
    parts = [HEAD]
    for title, settings in SECTIONS.items():
        lines = ["| setting | default | meaning |", "|---|---|---|"]
        lines += [f"| {' | '.join(row)} |" for name, setting in settings.items() for row in rows(name, setting)]
        parts.append(f"## {title}\n\n" + "\n".join(lines) + "\n")
    return "\n".join(parts)


if __name__ == "__main__":
    PAGE.write_text(page())
