"""Chunk: what one call of the ACL dump callback brought, the value every other module speaks in."""

from __future__ import annotations

from dumpstream._native import Chunk

#: The offset of a chunk that goes to the current end of its file.
APPEND = -1

__all__ = ["APPEND", "Chunk"]
