"""Where the source makes, replaces and removes files: few modules, each with the reason why it may.

What is inside a capture, or made from one, is touched only below a descriptor and never through a link
(`system/nofollow.py`, `system/removal.py`, `system/publishing.py`), so that neither a name nor a link nor the
manifest of a capture can lead elsewhere.
"""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import dumpstream

_ROOT = Path(dumpstream.__file__).parent
_BELOW_A_DESCRIPTOR = "below a descriptor, or without following a link"
_USERS_PATH = "the user names this very path"
_NAMELESS = "a file without a name"
_NO_FILE = "a link of the data flow, which changes no file"
_PRIVATE = "in a temporary directory of its own"

#: By module: what it may use, and why.
_ALLOWED: dict[str, tuple[set[str], str]] = {
    "system/nofollow.py": ({"mkdir", "open"}, _BELOW_A_DESCRIPTOR),
    "system/publishing.py": (
        {"new_files", "open", "rename_noreplace", "replace", "unlink"},
        _BELOW_A_DESCRIPTOR,
    ),
    "system/removal.py": ({"rmdir", "unlink"}, _BELOW_A_DESCRIPTOR),
    "system/tree.py": ({"mkdir", "open"}, f"{_BELOW_A_DESCRIPTOR}; {_USERS_PATH} as the root"),
    "system/walk.py": ({"open"}, "a directory, for reading: the one above, compared with where the walk was"),
    "system/cache.py": ({"TemporaryFile", "mkdir", "unlink"}, "a private directory of the user's"),
    "system/scratch.py": ({"mkdtemp", "open", "rename"}, "a temporary directory of this process's own"),
    "system/heldbytes.py": ({"TemporaryFile"}, _NAMELESS),
    "analysis/npyfiles.py": ({"new_npy_files"}, _BELOW_A_DESCRIPTOR),
    "archive/destination.py": ({"mkdir", "rmdir"}, f"{_USERS_PATH} for a capture, and the directories to it"),
    "archive/journal.py": ({"TemporaryFile", "open"}, f"{_NAMELESS}; the journal by `open_regular`"),
    "archive/journalfile.py": ({"TemporaryFile"}, _NAMELESS),
    "reassemble.py": ({"touch"}, "a method of its own, which changes no file"),
    "comparison/dumpelements.py": ({"TemporaryFile"}, _NAMELESS),
    "engine/comparing.py": ({"TemporaryFile"}, _NAMELESS),
    "engine/computing.py": ({"TemporaryFile"}, _NAMELESS),
    "sinks/tables/storetables.py": ({"TemporaryFile"}, _NAMELESS),
    "statistics/sorting.py": ({"TemporaryFile"}, _NAMELESS),
    "source.py": ({"unlink"}, f"{_USERS_PATH} for a ring"),
    "companion.py": ({"unlink"}, f"{_USERS_PATH} for a ring"),
    "profiling/exclusion.py": ({"mkdir"}, "a directory in the system's, opened without following a link"),
    "profiling/profile.py": ({"mkdir"}, f"{_USERS_PATH}, or `Destination.make_profile` has made it"),
    "outside/collectorpreparation.py": ({"unlink"}, "the socket that this process has made"),
    "outside/connection.py": ({"TemporaryDirectory", "unlink"}, "a socket that no process listens at"),
    "outside/shares.py": ({"mkdir", "unlink"}, f"{_USERS_PATH} for rings, and they have random names"),
    "reading/index.py": ({"unlink"}, "a damaged index, in a private directory of the user's"),
    "reading/removal.py": ({"unlink"}, _BELOW_A_DESCRIPTOR),
    "remote/outbox.py": (
        {"link", "mkdir", "rename", "rmdir", "unlink"},
        "below a descriptor, in a private directory with a random name",
    ),
    "remote/outboxes.py": ({"rmdir", "unlink"}, _BELOW_A_DESCRIPTOR),
    "diagnosis/dataflow/flow.py": ({"link"}, _NO_FILE),
    "diagnosis/origins.py": ({"link"}, _NO_FILE),
    "tables/edgetable.py": ({"TemporaryFile"}, _NAMELESS),
    "tables/filetable.py": ({"TemporaryFile"}, _NAMELESS),
    "tables/perfetto.py": ({"link"}, _NO_FILE),
    "tables/tensortable.py": ({"TemporaryFile"}, _NAMELESS),
    "view/scene.py": ({"link"}, _NO_FILE),
    "view/details.py": ({"link"}, _NO_FILE),
    "cli/_streams.py": ({"open"}, "the null device"),
    "cli/commands/capture.py": ({"TemporaryDirectory", "write_text"}, _PRIVATE),
    "cli/commands/config.py": ({"open"}, _USERS_PATH),
    "cli/commands/simulate.py": ({"TemporaryDirectory", "write_text"}, _PRIVATE),
}

_CHANGES = {
    *("unlink", "rename", "renames", "rename_noreplace", "rmdir", "removedirs", "rmtree"),
    *("symlink", "symlink_to", "link", "hardlink_to", "mkdir", "makedirs", "mkfifo", "mknod", "chmod"),
    *("new_files", "new_npy_files"),
    *("write_text", "write_bytes", "touch", "copyfile", "copytree", "copy2"),
    *("NamedTemporaryFile", "TemporaryDirectory", "TemporaryFile", "mkstemp", "mkdtemp"),
}
_WRITING_FLAGS = {"O_WRONLY", "O_RDWR", "O_CREAT", "O_APPEND", "O_TRUNC"}


def _name(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def _change(node: ast.AST) -> str | None:
    """Return what *node* does to a file system, in a word; None if it changes nothing there."""
    if isinstance(node, ast.Attribute | ast.Name) and _name(node) in _CHANGES:
        return _name(node)  # also if it is not called here, but given to another function
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute | ast.Name):
        return None
    name = _name(node.func)
    owner = _name(node.func.value) if isinstance(node.func, ast.Attribute) else ""
    if owner == "os" and name in {"remove", "replace", "truncate"}:
        return name
    if name == "replace" and owner and len(node.args) == 1 and not node.keywords:
        return name  # of a path: that of a text takes two, and that of a data class keywords
    return "open" if name == "open" and _opens_for_writing(node, owner) else None


def _opens_for_writing(call: ast.Call, owner: str) -> bool:
    if owner == "os":
        names = {_name(node) for node in ast.walk(call.args[1]) if isinstance(node, ast.Name | ast.Attribute)}
        return bool(names & _WRITING_FLAGS) or any(not name.startswith("O_") for name in names - {"os"})
    given = [*call.args[:2], *(keyword.value for keyword in call.keywords if keyword.arg == "mode")]
    modes = [it.value for it in given if isinstance(it, ast.Constant) and isinstance(it.value, str)]
    return any(len(mode) <= 3 and set(mode) & set("wax+") for mode in modes)


def _changes(text: str) -> set[str]:
    return {change for node in ast.walk(ast.parse(text)) if (change := _change(node)) is not None}


def test_files_are_changed_only_where_that_is_known_to_be_safe() -> None:
    found = {str(path.relative_to(_ROOT)): _changes(path.read_text()) for path in _ROOT.rglob("*.py")}

    unexplained = {
        module: more
        for module, changes in found.items()
        if (more := changes - _ALLOWED.get(module, (set(), ""))[0])
    }

    assert unexplained == {}


@pytest.mark.parametrize(
    ("text", "change"),
    [
        ("path.unlink()", "unlink"),
        ("run_sync(partial(path.unlink, missing_ok=True))", "unlink"),
        ("os.remove(path)", "remove"),
        ("from os import rename; rename(a, b)", "rename"),
        ("path.replace(other)", "replace"),
        ("shutil.rmtree(path)", "rmtree"),
        ("os.open(path, os.O_WRONLY)", "open"),
        ("os.open(path, flags)", "open"),
        ("open(path, 'a')", "open"),
        ("path.open(mode='r+b')", "open"),
    ],
)
def test_changes_are_seen(text: str, change: str) -> None:
    assert _changes(text) == {change}


@pytest.mark.parametrize(
    "text",
    [
        "open(path)",
        "path.open('rb')",
        "os.open(path, os.O_RDONLY)",
        "text.replace('a', 'b')",
        "replace(it, x=1)",
    ],
)
def test_what_only_reads_is_not_a_change(text: str) -> None:
    assert _changes(text) == set()
