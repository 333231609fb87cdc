"""The readme and the links of the package on the package index, made when the package is built.

The index has none of the files that README.md links to. With the repository's URL, which a maintainer sets in
pyproject.toml, links and pictures become absolute; without it they are left out.
"""

import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

PICTURE = re.compile(r"!\[([^\]]*)\]\((?!https?:)([^)]*)\)(\n*)")
LINK = re.compile(r"(?<!!)\[([^\]]*)\]\((?!https?:)([^)]*)\)")


class ReadmeHook(MetadataHookInterface):
    """Sets the fields ``readme`` and ``urls`` of the package."""

    def update(self, metadata: dict[str, Any]) -> None:
        repository = str(self.config.get("repository", "")).rstrip("/")
        if repository and not repository.startswith("https://"):
            raise ValueError(f"repository is no https URL: {repository}")
        text, tag = (Path(self.root) / "README.md").read_text(encoding="utf-8"), f"v{metadata['version']}"
        if repository:
            text = PICTURE.sub(rf"![\1]({repository}/raw/{tag}/\2)\3", text)
            text = LINK.sub(rf"[\1]({repository}/blob/{tag}/\2)", text)
            metadata["urls"] = {
                "Repository": repository,
                "Documentation": f"{repository}/blob/{tag}/docs/index.md",
                "Changelog": f"{repository}/blob/{tag}/CHANGELOG.md",
                "Issues": f"{repository}/issues",
            }
        else:
            text = LINK.sub(r"\1", PICTURE.sub("", text))
        metadata["readme"] = {"content-type": "text/markdown", "text": text}
