"""What the site takes from outside this folder, and a check that the reference is whole.

The front page is the README, and the changelog, the guide for contributors and the notebooks stay where they are. Links are
written so that they work in the repository; here they are pointed at the site's own pages.
"""

from __future__ import annotations

import pathlib
import re
from typing import Any

from mkdocs.exceptions import PluginError
from mkdocs.plugins import event_priority
from mkdocs.structure.files import File

PAGES = {"index.md": "README.md", "contributing.md": "CONTRIBUTING.md", "changelog.md": "CHANGELOG.md"}


@event_priority(100)  # before mkdocs-jupyter looks for notebooks
def on_files(files: Any, config: Any) -> Any:
    """Add the pages and notebooks that lie outside."""
    root = pathlib.Path(config.config_file_path).parent
    for page, source in PAGES.items():
        files.append(File.generated(config, page, abs_src_path=str(root / source)))
    for notebook in sorted((root / "notebooks").glob("*.ipynb")):
        files.append(File(f"notebooks/{notebook.name}", str(root), config.site_dir, config.use_directory_urls))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Links of the repository become links of the site."""
    for there, here in (("](docs/", "]("), ("](../notebooks/", "](notebooks/"), ('src="docs/', 'src="')):
        markdown = markdown.replace(there, here)
    for here, there in PAGES.items():
        markdown = re.sub(rf"\]\((\.\./)*{re.escape(there)}", f"]({here}", markdown)
    return markdown


def on_post_build(config: Any) -> None:
    """Every public name has its place in the reference."""
    import stochasticrank_objectives as sr
    from stochasticrank_objectives import adapters

    pages = pathlib.Path(config.site_dir, "reference").glob("**/*.html")
    text = "".join(page.read_text("utf-8") for page in pages)
    found = {anchor.rpartition(".")[2] for anchor in re.findall(r'id="stochasticrank_objectives\.([\w.]+)"', text)}
    if missing := sorted({*sr.__all__, *adapters.__all__} - found):
        raise PluginError(f"not in the reference: {', '.join(missing)}; name their module in a page of docs/reference")
