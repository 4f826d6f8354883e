"""Opening: the place that a path, a URL or a store stands for."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from dumpstream.archive.place import DirectoryPlace
from dumpstream.remote.place import StorePlace
from dumpstream.system.location import as_location

if TYPE_CHECKING:
    import os

    from dumpstream.archive.place import Place
    from dumpstream.system.location import Prefix


def open_place(path: str | os.PathLike[str] | Prefix | Any) -> Place:
    """Return the place that a path, a URL or a store of obstore stands for, without reading anything.

    Raises:
        StoreError: the store cannot be used.
    """
    location = as_location(path)
    return DirectoryPlace(location) if isinstance(location, Path) else StorePlace(location)
