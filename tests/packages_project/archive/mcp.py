from mcp_django import MCPSite
from tests.packages_project.archive.admin import archive_admin

archive = MCPSite("archive_mcp", admin_site=archive_admin)
