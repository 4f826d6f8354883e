"""Export: the page with its run inside, as one file that needs neither a server nor a network."""

from __future__ import annotations

import base64
import gzip
import hashlib
import re
from collections.abc import Iterator
from typing import Any

import numpy as np

from dumpstream._errors import DumpstreamError
from dumpstream.view.details import Details
from dumpstream.view.page import page_text
from dumpstream.view.scene import Scene

#: The modules of the page, each behind those that it imports.
_MODULES = ("colours", "data", "measures", "grid", "map", "charts", "panel", "main")
#: Tensors whose details are in the file.
_MOST_DETAILS = 200
_IMPORT = re.compile(r"^import .*?;\n", re.MULTILINE | re.DOTALL)
_EXPORT = re.compile(r"^export (?=(?:async )?(?:class|const|function)\b)", re.MULTILINE)


def export_page(scene: Scene, status: dict[str, Any]) -> str:
    """Return the page of *scene* as one HTML file."""
    style, script = page_text("style.css"), _script()
    data = base64.b64encode(gzip.compress(_packed(scene, status), 6, mtime=0)).decode()
    policy = (
        f"default-src 'none'; script-src '{_digest(script)}'; style-src '{_digest(style)}'; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )
    page = page_text("index.html")
    page = page.replace('<link rel="stylesheet" href="style.css">', f"<style>{style}</style>")
    page = page.replace(
        '<meta charset="utf-8">',
        f'<meta charset="utf-8">\n<meta http-equiv="Content-Security-Policy" content="{policy}">',
    )
    return page.replace(
        '<script type="module" src="main.js"></script>',
        f'<script type="application/octet-stream" id="embedded-run">{data}</script>\n'
        f'<script type="module">{script}</script>',
    )


def _script() -> str:
    """Return all modules as one, without imports and exports: no two have the same name at their top."""
    modules = (_IMPORT.sub("", page_text(f"{name}.js")) for name in _MODULES)
    return "\n".join(_EXPORT.sub("", module) for module in modules)


def _digest(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


def _packed(scene: Scene, status: dict[str, Any]) -> bytes:
    opened = {str(row): _opened(scene.details, row) for row in _chosen(scene)}
    return scene.packed(status, opened=opened)


def _chosen(scene: Scene) -> Iterator[int]:
    """Yield the rows whose details are worth their space: bad ones first, and their operators' others."""
    columns = scene.cells.columns
    bad = (columns["nan"] > 0) | (columns["inf"] > 0)
    order = np.lexsort((columns["operator"], columns["step"], ~bad))
    yield from columns["row"][order[:_MOST_DETAILS]].tolist()


def _opened(details: Details, row: int) -> dict[str, Any]:
    try:
        content = details.content(row)
    except (DumpstreamError, OSError):
        content = None
    return {"tensor": details.tensor(row), "content": content}
