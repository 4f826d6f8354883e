"""Inventory: what object stores have of a capture, listed a thousand objects at a time."""

from dumpstream.archive.place import Listed
from dumpstream.archive.rows import StoredPart
from dumpstream.reading.stored import StoredCapture
from dumpstream.reading.storedfile import is_readable, misfit
from dumpstream.system.location import is_url


def take_inventory(capture: StoredCapture) -> dict[str, Listed]:
    """Return the objects of *capture* by the path that rows have for them; raises `StoreError`."""
    found: dict[str, Listed] = {}
    if capture.in_store:
        found = {listed.path: listed for listed in capture.place.list()}
    if not capture.totals.at_urls:
        return found
    parts = (part for row in capture.files.rows() for part in row.stored if is_readable(part))
    urls = {part.path for part in parts if part.path is not None and is_url(part.path)}
    return found | {listed.path: listed for listed in capture.buckets.list(urls) if listed.path in urls}


def is_as_stored(part: StoredPart, listed: Listed | None) -> bool:
    """Whether size and entity tag of *listed* are those of *part*; if not, only reading can tell."""
    if listed is None or listed.size is None or misfit(part, listed.size):
        return False
    return part.etag is None or listed.etag is None or part.etag.strip('"') == listed.etag.strip('"')
