"""Draw the mermaid diagrams of the pages as SVG, so that the site loads nothing from a network.

    npm pack mermaid@11.17.2 && tar -xzf mermaid-*.tgz package/dist/mermaid.min.js
    python docs/diagrams.py package/dist/mermaid.min.js

needs Chromium and playwright (in the extra `dev`). GitHub draws the blocks of the pages itself;
`docs/site.py` puts the pictures in their place. A picture is named after the text it is made from,
so a build fails if a diagram was changed and not drawn.
"""

import argparse
import hashlib
import re
import shutil
from pathlib import Path

DOCS = Path(__file__).parent
PICTURES = DOCS / "pictures"
BLOCK = re.compile(r"```mermaid\n(.*?)```", re.DOTALL)
THEMES = {"light": "neutral", "dark": "dark"}
"""Mermaid's themes by the site's."""
DRAW = """async ([text, theme]) => {
    mermaid.initialize({startOnLoad: false, theme, htmlLabels: false, deterministicIds: true});
    return (await mermaid.render("diagram", text)).svg;
}"""


def picture(text: str, theme: str) -> str:
    """Return the name of a diagram's picture."""
    return f"diagram-{hashlib.sha256(text.encode()).hexdigest()[:12]}-{theme}.svg"


def diagrams() -> list[str]:
    """Return the diagrams of all pages."""
    return [text for page in sorted(DOCS.rglob("*.md")) for text in BLOCK.findall(page.read_text())]


def main() -> None:
    """Draw all diagrams, and remove pictures of earlier ones."""
    from playwright.sync_api import sync_playwright

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("mermaid", type=Path, help="mermaid.min.js, from the npm package")
    given = parser.parse_args()
    for old in PICTURES.glob("diagram-*.svg"):
        old.unlink()
    with sync_playwright() as started:
        browser = started.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox"]
        )
        page = browser.new_page()
        page.add_script_tag(path=given.mermaid)
        for text in diagrams():
            for theme, name in THEMES.items():
                svg = page.evaluate(DRAW, [text, name])
                (PICTURES / picture(text, theme)).write_text(svg.rstrip() + "\n")
        browser.close()


if __name__ == "__main__":
    main()
