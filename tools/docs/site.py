"""Builds the site: the pages of the repository and those made from the code, as HTML that needs nothing from elsewhere.

The lists of docs/index.md are the navigation. A page that is in none of them is an error.
"""

from __future__ import annotations

import posixpath
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from tools.docs.links import is_external, resolve
from tools.docs.pages import ROOT, Page, parse_page

INDEX: Final = "docs/index.md"
_CONFIGURATION: Final = """\
project = "efo"
extensions = ["myst_parser"]
myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 6
html_theme = "furo"
html_title = "efo"
html_show_copyright = False
html_show_sphinx = False
html_copy_source = False
html_show_sourcelink = False
smartquotes = False
html_theme_options = {"footer_icons": []}
python_display_short_literal_types = True
suppress_warnings = ["misc.highlighting_failure"]  # JSON with "..." is no JSON
"""
_REQUEST: Final = re.compile(
    r"""<(?:script|img|iframe|source|video|audio|embed)\b[^>]*\bsrc=["'](?P<src>(?:https?:)?//[^"']+)"""
    r"""|<link\b(?![^>]*rel=["']canonical)[^>]*\bhref=["'](?P<href>(?:https?:)?//[^"']+)"""
    r"""|url\(["']?(?P<url>(?:https?:)?//[^"')]+)|@import\s+["'](?P<import>(?:https?:)?//[^"']+)"""
)
"""What a browser would fetch from elsewhere when it shows a page."""


class SiteError(Exception):
    """The site cannot be built as the pages are."""


def sections(index: Page) -> dict[str, list[str]]:
    """Return the pages of each section of docs/index.md, in their order. A section is a heading of level two."""
    found: dict[str, list[str]] = {}
    for part in index.text.split("\n## ")[1:]:
        title = part.partition("\n")[0].strip()
        links = [link for link in parse_page(INDEX, part).links if not is_external(link)]
        found[title] = [path for path in dict.fromkeys(resolve(link)[0] for link in links) if path.endswith(".md")]
    return found


def navigation_problems(pages: Sequence[Page]) -> list[str]:
    """Return the pages that docs/index.md does not list, or lists twice, and what it lists that is no page."""
    index = next((page for page in pages if page.path == INDEX), None)
    if index is None:
        return [f"{INDEX} is missing"]
    listed = [path for paths in sections(index).values() for path in paths]
    missing = [page.path for page in pages if page.path not in listed and page.path != INDEX]
    return [
        *(f"{path} is in no list of {INDEX}: add it to the section where a reader looks for it" for path in missing),
        *(
            f"{path} is in a list of {INDEX}, and no page of the site: link to its folder"
            for path in dict.fromkeys(listed)
            if path not in {page.path for page in pages}
        ),
        *(f"{path} is listed twice in {INDEX}" for path in dict.fromkeys(listed) if listed.count(path) > 1),
    ]


def name_of(path: str) -> str:
    """Return the path of a page in the site's source. Pages of docs/ move up, those beside it get lower-case names."""
    if path.startswith("docs/"):
        return path.removeprefix("docs/")
    return "overview.md" if path == "README.md" else path.lower()


def assemble(pages: Sequence[Page], made: Mapping[str, tuple[str, str]], target: Path, root: Path = ROOT) -> None:
    """Write the source of the site. `made`: paths, descriptions and texts of the pages made from the code."""
    shutil.rmtree(target, ignore_errors=True)
    known = {page.path for page in pages}
    for page in pages:
        text = _moved(page, known, target, root)
        if page.path == INDEX:
            text += _toctrees(page, made)
        _write(target / name_of(page.path), text)
    for path, (_, text) in made.items():
        _write(
            target / path,
            _moved(parse_page(f"docs/{path}", text), known | {f"docs/{one}" for one in made}, target, root),
        )
    _write(target / "conf.py", _CONFIGURATION)


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def _moved(page: Page, known: set[str], target: Path, root: Path) -> str:
    """Return the text of a page with its links as they are in the site; copy the files to which it links."""
    text = re.sub(r"^```mermaid$", "```text", page.text, flags=re.MULTILINE)
    own = posixpath.dirname(name_of(page.path))
    for link in {link.target: link for link in page.links if not is_external(link)}.values():
        path, anchor = resolve(link)
        if path in known:
            moved = posixpath.relpath(name_of(path), own or ".") + (f"#{anchor}" if anchor else "")
            text = text.replace(f"]({link.target})", f"]({moved if path != page.path else '#' + anchor})")
        elif (root / path).is_file():
            text = text.replace(f"]({link.target})", f"]({_copied(path, own, target, root)})")
        else:  # a folder: the site has none
            text = re.sub(r"\[([^\]]*)\]\(" + re.escape(link.target) + r"\)", r"\1", text)
    return text


def _copied(path: str, own: str, target: Path, root: Path) -> str:
    name = path.removeprefix("docs/") if path.startswith("docs/") else f"files/{path}"
    (target / name).parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(root / path, target / name)
    return posixpath.relpath(name, own or ".")


def _toctrees(index: Page, made: Mapping[str, tuple[str, str]]) -> str:
    """Return the pages made from the code as a list, and the navigation as directives of Sphinx."""
    listed = "".join(f"- [{parse_page(path, text).title}]({path}): {what}\n" for path, (what, text) in made.items())
    trees = []
    for title, paths in sections(index).items():
        names = [name_of(path) for path in paths] + (list(made) if title == "Reference" else [])
        trees.append(f"```{{toctree}}\n:hidden:\n:caption: {title}\n\n{chr(10).join(names)}\n```\n")
    return f"\n## Made from the code\n\n{listed}\n" + "\n".join(trees)


def build(source: Path, target: Path, python: Path) -> None:
    """Run Sphinx on the assembled source; every warning is an error. Raises SiteError with what it says."""
    shutil.rmtree(target, ignore_errors=True)
    command = [str(python), "-m", "sphinx", "-W", "--keep-going", "-q", "-j", "auto", "-b", "html", "-d"]
    result = subprocess.run(
        [*command, str(source.parent / "doctrees"), str(source), str(target)],
        capture_output=True,
        text=True,
        check=False,
    )
    if result.returncode:
        raise SiteError(f"sphinx exits with {result.returncode}:\n{result.stdout}{result.stderr}")


def requests_elsewhere(site: Path) -> list[str]:
    """Return what a browser would fetch from elsewhere when it shows the site: fonts, scripts, styles, images."""
    return [
        f"{path.relative_to(site)}: {next(filter(None, match.groups()))}"
        for path in sorted(site.rglob("*"))
        if path.suffix in {".html", ".css", ".svg"}
        for match in _REQUEST.finditer(path.read_text(encoding="utf-8"))
    ]
