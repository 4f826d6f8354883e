"""Every import points down: the layers of `docs/architecture.md`, held against the source."""

from __future__ import annotations

import ast
import re
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import dumpstream

if TYPE_CHECKING:
    from collections.abc import Iterator

_ROOT = Path(dumpstream.__file__).parent
_PROJECT = Path(__file__).parent.parent

#: Lowest first. A room is a folder or a module directly below the package.
LAYERS = (
    ("_native", "_errors", "codes", "chunk", "names", "custody"),
    ("codec",),
    ("system",),
    ("processes",),
    ("format",),
    ("config",),
    ("source", "chunksource", "sharedsource"),
    ("statistics",),
    ("archive",),
    ("objectstore",),
    ("remote",),
    ("sinks",),
    ("acl",),
    ("profiling",),
    ("stages", "reassemble", "pipeline"),
    ("reading",),
    ("analysis",),
    ("comparison",),
    ("engine",),
    ("diagnosis",),
    ("tables",),
    ("view",),
    ("run", "capture", "companion"),
    ("outside",),
    ("simulation", "testing"),
    ("cli",),
    ("filestats", "measurement", "__init__", "__main__"),
)
_LEVEL = {room: level for level, rooms in enumerate(LAYERS) for room in rooms}
#: What the reassembler is made of; it may use each other, chunk and format, and nothing that does I/O.
_PURE = {
    "reassemble",
    "stages.account",
    "stages.events",
    "stages.assembly",
    "stages.openfiles",
    "stages.overlap",
}
_MOST_MODULES = 18


def _modules() -> dict[str, Path]:
    """Return every module of the package by its name without ``dumpstream.``."""
    found = {}
    for path in _ROOT.rglob("*.py"):
        parts = path.relative_to(_ROOT).with_suffix("").parts
        found[".".join(parts[:-1] if len(parts) > 1 and parts[-1] == "__init__" else parts)] = path
    return found


def _imports(path: Path, modules: set[str]) -> Iterator[tuple[int, str]]:
    """Yield line and module of every import of the package, lazy and type-checking ones included."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: imports are written with the name of the package"
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        else:
            continue
        for name in names:
            package, _, module = name.partition(".")
            if package == "dumpstream":
                known = module in modules or module == "_native" or not module
                yield node.lineno, (module if known else module.rpartition(".")[0]) or "__init__"


@pytest.fixture(scope="module")
def edges() -> list[tuple[str, int, str]]:
    modules = _modules()
    names = set(modules)
    return [(name, line, used) for name, path in modules.items() for line, used in _imports(path, names)]


def test_every_room_has_a_layer() -> None:
    rooms = {name.partition(".")[0] for name in _modules()} | {"_native"}

    assert rooms == set(_LEVEL)


def test_no_import_points_up(edges: list[tuple[str, int, str]]) -> None:
    up = [
        f"{name}:{line} imports {used}"
        for name, line, used in edges
        if _LEVEL[used.partition(".")[0]] > _LEVEL[name.partition(".")[0]]
    ]

    assert not up


def test_the_reassembler_imports_only_chunk_and_format(edges: list[tuple[str, int, str]]) -> None:
    impure = [
        f"{name}:{line} imports {used}"
        for name, line, used in edges
        if name in _PURE
        and used not in _PURE | {"chunk"}
        and used.partition(".")[0] not in {"format", "_native"}
    ]

    assert not impure


def test_no_folder_is_crowded() -> None:
    folders = Counter(path.parent for path in _modules().values())
    del folders[_ROOT / "cli" / "commands"]  # one module for each command, however many there are

    assert [f"{path.name}: {count}" for path, count in folders.items() if count > _MOST_MODULES] == []


def test_the_architecture_page_has_the_same_layers() -> None:
    page = (_PROJECT / "docs/architecture.md").read_text("utf-8")
    table = page.partition("<!-- layers -->")[2].partition("<!-- /layers -->")[0]

    layers = [tuple(re.findall(r"`(\w+)`", row)) for row in re.findall(r"^\| (`.+?) \|", table, re.MULTILINE)]

    assert tuple(reversed(layers)) == LAYERS


def test_the_architecture_page_names_files_that_exist() -> None:
    page = (_PROJECT / "docs/architecture.md").read_text("utf-8")
    named = re.findall(r"`([\w/.]+(?:\.py|\.c|\.h|/))`", page)

    assert named
    roots = (_ROOT, _PROJECT / "src/dumpstream", _PROJECT)
    assert [name for name in named if not any((root / name).exists() for root in roots)] == []


def test_contributing_lists_the_folders_that_exist() -> None:
    tree = (
        (_PROJECT / "CONTRIBUTING.md")
        .read_text("utf-8")
        .partition("src/dumpstream/\n")[2]
        .partition("```")[0]
    )
    listed = set(re.findall(r"^  ([a-z_/]+)/ ", tree, re.MULTILINE))

    folders = {str(path.parent.relative_to(_ROOT)) for path in _modules().values()} - {"."}

    assert listed == folders | {"native"}
