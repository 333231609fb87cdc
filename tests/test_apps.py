import subprocess
import sys
import textwrap

from django.apps import apps
from django.core.checks.registry import registry

from mcp_django.checks import CHECKS


def test_the_checks_are_registered():
    assert set(CHECKS) <= set(registry.registered_checks)
    assert apps.get_app_config("mcp_django").verbose_name == "Model Context Protocol"


def test_every_mcp_module_is_imported_when_django_starts(tmp_path):
    (tmp_path / "shop").mkdir()
    (tmp_path / "shop" / "__init__.py").touch()
    (tmp_path / "shop" / "mcp.py").write_text(
        "import mcp_django\n@mcp_django.tool(read_only=True)\ndef hi(request) -> str:\n    'Hi.'\n    return 'hi'\n"
    )
    code = """
        import sys
        sys.path.insert(0, sys.argv[1])
        from django.conf import settings
        settings.configure(INSTALLED_APPS=["mcp_django", "shop", "django.contrib.admin", "django.contrib.auth",
            "django.contrib.contenttypes", "django.contrib.sessions", "django.contrib.messages", "oauth2_provider"])
        import django
        django.setup()
        import mcp_django
        print([tool.name for tool in mcp_django.site.function_tools()])
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code), str(tmp_path)], capture_output=True, text=True, check=False
    )
    assert done.stdout.strip() == "['hi']", done.stderr
