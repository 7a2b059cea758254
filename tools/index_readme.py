"""The README as a package index shows it: there, relative links and pictures lead nowhere.

Hatchling calls :class:`IndexReadme` when it builds or installs the package; see ``pyproject.toml``.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

_LINK = re.compile(r"(?P<picture>!?)\[(?P<text>[^\]]*)\]\((?P<target>[^)\s]+)\)")
_WHERE = "*Pages named here, such as `docs/results.md`, are in the source distribution, with their pictures.*"


class IndexReadme(MetadataHookInterface):
    """Supplies the project's long description."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Set ``readme`` in the project's metadata."""
        readme = (Path(self.root) / "README.md").read_text(encoding="utf-8")
        metadata["readme"] = {"content-type": "text/markdown", "text": index_readme(readme)}


def index_readme(readme: str) -> str:
    """A README without relative links: pages become their paths in the repository, pictures are left out.

    Args:
        readme: Markdown that begins with a heading and a blank line; links stand on one line each, written
            as ``[text](target)``.
    """
    parts = re.split(r"(^```.*?^```$)", readme, flags=re.MULTILINE | re.DOTALL)
    # Every other part is a block of code, which is left as it is.
    parts[::2] = [_LINK.sub(_without_link, part) for part in parts[::2]]
    heading, rest = "".join(parts).split("\n\n", 1)
    return f"{heading}\n\n{_WHERE}\n\n{rest.lstrip()}"


def _without_link(link: re.Match[str]) -> str:
    picture, text, target = link["picture"], link["text"], link["target"]
    if re.match(r"https?://|#", target):
        return link[0]
    if picture:
        return ""
    return f"`{target}`" if text == target else f"{text} (`{target}`)"
