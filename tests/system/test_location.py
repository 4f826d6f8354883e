from __future__ import annotations

from pathlib import Path

import pytest
from obstore.store import MemoryStore

from dumpstream._errors import StoreError
from dumpstream.system.location import Prefix, as_location


def test_url_is_split_into_bucket_and_key() -> None:
    prefix = Prefix.parse("s3://bucket/a//b/")

    assert (prefix.scheme, prefix.bucket, prefix.key) == ("s3", "bucket", "a/b")
    assert str(prefix) == "s3://bucket/a/b"


def test_mark_of_a_fragment_is_part_of_the_key() -> None:
    assert Prefix.parse("s3://bucket/run#7/a").key == "run#7/a"


def test_name_is_joined_as_to_a_path() -> None:
    prefix = Prefix.parse("gs://bucket/run?") / "rank0"

    assert str(prefix) == "gs://bucket/run/rank0"
    assert prefix.name == "rank0"


def test_options_are_kept_by_joining_and_by_the_url() -> None:
    prefix = Prefix.parse("s3://bucket/run?region=x%26y&endpoint=https://obs.example") / "a"

    assert Prefix.parse(prefix.url) == prefix
    assert dict(prefix.options) == {"region": "x&y", "endpoint": "https://obs.example"}
    assert "example" not in str(prefix)


@pytest.mark.parametrize(
    "url",
    [
        "s3://key:marker@bucket/run",
        "s3://bucket/run?secret_access_key=marker",
        "s3://bucket/run?endpoint=https://key:marker@host",
        "az://container/run?sas=marker",
        "az://container/run?endpoint=https://host/?sig=marker",
    ],
)
def test_secret_in_a_url_is_refused_and_not_repeated(url: str) -> None:
    with pytest.raises(StoreError, match="credentials do not belong in a URL") as caught:
        Prefix.parse(url)

    assert "marker" not in str(caught.value)


@pytest.mark.parametrize("url", ["s3://", "http://bucket/run", "s3:bucket", "s3://bucket?addressing=odd"])
def test_url_that_names_no_place_is_refused(url: str) -> None:
    with pytest.raises(StoreError):
        Prefix.parse(url)


def test_destination_is_a_path_a_url_or_a_store() -> None:
    store = MemoryStore()

    assert as_location("s3/bucket") == Path("s3/bucket")
    assert as_location(Path("s3://bucket")) == Path("s3:/bucket")
    assert as_location("az://container") == Prefix("az", "container")
    assert as_location(store) == Prefix.of(store)
    with pytest.raises(TypeError, match="s3://bucket/prefix"):
        as_location(7)
