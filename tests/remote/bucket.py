"""Bucket: what a test finds in a store."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import obstore

from dumpstream.codec.decoding import original_of_view
from s3server import BUCKET

if TYPE_CHECKING:
    from s3server import S3Server


class Bucket:
    """What is in a store below a prefix, read with nothing of dumpstream but its codec."""

    def __init__(self, client: Any, prefix: str) -> None:
        self.client, self.prefix = client, prefix
        self.url = f"s3://{BUCKET}/{prefix}"

    def keys(self) -> dict[str, int]:
        """Return the size of every object."""
        metas = (meta for page in obstore.list(self.client, self.prefix) for meta in page)
        return {meta["path"].removeprefix(f"{self.prefix}/"): meta["size"] for meta in metas}

    def get(self, key: str) -> bytes:
        return bytes(obstore.get(self.client, f"{self.prefix}/{key}").bytes())

    def put(self, key: str, data: bytes) -> None:
        obstore.put(self.client, f"{self.prefix}/{key}", data)

    def get_range(self, key: str, start: int, length: int) -> bytes:
        path = f"{self.prefix}/{key}"
        return bytes(obstore.get_range(self.client, path, start=start, length=length))

    def rows(self) -> list[dict[str, Any]]:
        """Return the rows of the journal, merged or not."""
        keys = self.keys()
        text = self.get("journal.jsonl") if "journal.jsonl" in keys else b""
        segments = sorted(key for key in keys if key.startswith("journal/"))
        return [json.loads(line) for line in (text + b"".join(map(self.get, segments))).splitlines()]

    def files(self) -> dict[str, bytes]:
        """Return every file in the journal, which must name each once, with its bytes."""
        found: dict[str, bytes] = {}
        for row in self.rows():
            if row["type"] == "file":
                assert row["name"] not in found
                found[row["name"]] = b"".join(self._read(part) for part in row["stored"])
                assert len(found[row["name"]]) == row["bytes"]
        return found

    def _read(self, part: dict[str, Any]) -> bytes:
        path = part["path"]
        if "://" in path:
            path = path.partition(f"/{self.prefix}/")[2]
        if "start" in part:
            data = self.get_range(path, part["start"], part["stored_bytes"])
        else:
            data = self.get(path)
            assert len(data) == part["stored_bytes"]
        return b"".join(map(bytes, original_of_view(memoryview(data))))


def bucket_of(server: S3Server, prefix: str) -> Bucket:
    return Bucket(server.client(), prefix)
