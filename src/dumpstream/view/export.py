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
from dumpstream.view.against import NOT_COMPARED, Against
from dumpstream.view.details import Details
from dumpstream.view.page import page_text
from dumpstream.view.scene import Scene
from dumpstream.view.snapshot import Snapshot

#: The modules of the page, each behind those that it imports.
_MODULES = (
    *("words", "colours", "data", "measures", "grid", "pixels", "map", "charts", "panel", "status"),
    "main",
)
#: Tensors whose details are in the file.
_MOST_DETAILS = 200
_IMPORT = re.compile(r"^import .*?;\n", re.MULTILINE | re.DOTALL)
_EXPORT = re.compile(r"^export (?=(?:async )?(?:class|const|function)\b)", re.MULTILINE)


def export_page(snapshot: Snapshot, status: dict[str, Any], against: Against | None = None) -> str:
    """Return the page of *snapshot* as one HTML file, with what a comparison says *against* another run."""
    style, script = page_text("style.css"), _script()
    data = base64.b64encode(gzip.compress(_packed(snapshot, status, against), 6, mtime=0)).decode()
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


def _packed(snapshot: Snapshot, status: dict[str, Any], against: Against | None) -> bytes:
    scene, details = snapshot.scene(), snapshot.details()
    opened = {str(row): _opened(details, row, against) for row in _chosen(scene, against)}
    said = details.said()
    told = {**status, "sentence": said.sentence, "origin": said.origin}
    if against is None:
        return scene.packed(told, details=opened)
    told["against"] = against.told(status["version"])
    return scene.packed(told, against.drawn(scene.cells.columns["row"]), details=opened)


def _chosen(scene: Scene, against: Against | None) -> Iterator[int]:
    """Yield the rows whose details are worth their space: bad ones first, and their operators' others."""
    columns = scene.cells.columns
    bad = (columns["nan"] > 0) | (columns["inf"] > 0)
    if against is not None:
        bad |= against.drawn(columns["row"])["difference"] > NOT_COMPARED
    order = np.lexsort((columns["operator"], columns["step"], ~bad))
    yield from columns["row"][order[:_MOST_DETAILS]].tolist()


def _opened(details: Details, row: int, against: Against | None) -> dict[str, Any]:
    try:
        content = details.content(row)
    except (DumpstreamError, OSError):
        content = None
    tensor = {**details.tensor(row), "against": None if against is None else against.of(row)}
    return {"tensor": tensor, "content": content}
