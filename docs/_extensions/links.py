"""Finds dead internal links of a built site: `python docs/_extensions/links.py docs/_build/html`.

Sphinx checks what it resolves itself. This reads the HTML that came out, links in raw Markdown and
in the theme included: every link to a file of the site needs the file, and every `#name` the
element. Links to other hosts are not followed.
"""

import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit


class Page(HTMLParser):
    """Collects the links of a page and the names of its elements."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.links: list[str] = []
        self.names: set[str] = set()
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Called by the parser for each element."""
        for key, value in attrs:
            if key in ("href", "src") and value and tag != "base":
                self.links.append(value)
            if key in ("id", "name") and value:
                self.names.add(value)


def dead_links(site: Path) -> list[str]:
    """Returns a line `page: link` for each link that leads nowhere."""
    pages = {path.resolve(): Page(path) for path in sorted(site.rglob("*.html"))}
    dead = []
    for path, page in pages.items():
        for link in page.links:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            if target.is_dir():
                target /= "index.html"
            names = pages[target].names if target in pages else None
            missing = not target.exists()
            if missing or (parts.fragment and names is not None
                           and unquote(parts.fragment) not in names):  # fmt: skip
                dead.append(f"{path.relative_to(site.resolve())}: {link}")
    return dead


if __name__ == "__main__":
    found = dead_links(Path(sys.argv[1]))
    print("\n".join(found) or "no dead internal link")
    raise SystemExit(bool(found))
