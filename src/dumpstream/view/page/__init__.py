"""The files of the page, which are not Python."""

from importlib.resources import files

#: The files, by their types; nothing else is served.
PAGE = {
    "index.html": "text/html",
    "style.css": "text/css",
    **dict.fromkeys(
        (
            *("charts.js", "colours.js", "data.js", "grid.js", "main.js"),
            *("map.js", "measures.js", "panel.js", "pixels.js", "status.js", "words.js"),
        ),
        "text/javascript",
    ),
}


def page_text(name: str) -> str:
    """Return the file *name*."""
    return files("dumpstream.view.page").joinpath(name).read_text("utf-8")
