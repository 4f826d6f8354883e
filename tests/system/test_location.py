from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from obstore.store import MemoryStore

from dumpstream._errors import StoreError
from dumpstream.system.location import Prefix, as_location, as_path


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
    assert as_location("obs://bucket/run") == Prefix("obs", "bucket", "run")
    assert as_location("S3://bucket/run") == Prefix("s3", "bucket", "run")
    assert as_location("az://container") == Prefix("az", "container")
    assert as_location(store) == Prefix.of(store)
    with pytest.raises(TypeError, match="s3://bucket/prefix"):
        as_location(7)


@pytest.mark.parametrize(
    ("text", "remedy"),
    [
        ("http://host/marker", "write s3://bucket/prefix?endpoint=https://HOST"),
        ("HTTPS://user:marker@host", "write s3://bucket/prefix?endpoint=https://HOST"),
        ("file:///marker", "write the path without it"),
        ("file:/marker", "write the path without it"),
        ("s3:/marker/run", "write s3://bucket/prefix"),
        ("s3:marker", "write s3://bucket/prefix"),
        ("obs:/marker", "write obs://bucket/prefix"),
        ("s3a://marker/run", "write s3://bucket/prefix"),
        ("gcs://marker/run", "write gs://bucket/prefix"),
        ("abfss://marker/run", "write az://bucket/prefix"),
        ("foo:/marker", "write a path, or s3://bucket/prefix"),
        ("c:/marker", "write a path, or s3://bucket/prefix"),
        (" s3://marker/run", "write s3://bucket/prefix"),
        ("\ts3:/marker/run", "write s3://bucket/prefix"),
        ("'s3://marker/run'", "write s3://bucket/prefix"),
        ('"http://marker"', "write s3://bucket/prefix?endpoint=https://HOST"),
    ],
)
def test_what_looks_like_a_url_is_refused_with_what_to_write(text: str, remedy: str) -> None:
    for location in (text, Path(text)):
        with pytest.raises(StoreError, match=re.escape(remedy)) as caught:
            as_location(location)

        assert "marker" not in str(caught.value)


@pytest.mark.parametrize("text", ["a:b", "run:2/rank-0", "12:30/run", "-:/x", "/s3:/x", "a/http://b", "ü:/x"])
def test_path_may_have_a_colon(text: str) -> None:
    assert as_location(text) == Path(text)


def test_directory_that_is_called_like_a_url_is_written_with_a_dot(monkeypatch: pytest.MonkeyPatch) -> None:
    found = as_location("./s3:/bucket")

    assert found == Path("s3:/bucket").absolute()
    assert as_location(found) == found  # however often it is resolved


@given(st.from_regex(r"[A-Za-z][A-Za-z0-9+.-]{0,8}:/[a-z/:]{0,9}", fullmatch=True))
def test_url_is_never_taken_for_a_path(text: str) -> None:
    try:
        found = as_location(text)
    except StoreError:
        return
    assert isinstance(found, Prefix)
    assert text.lower().startswith(f"{found.scheme}://")


def test_path_is_wanted_where_a_url_cannot_be_used() -> None:
    assert as_path("a/b", "spill") == Path("a/b")
    with pytest.raises(
        StoreError, match=r"s3:\.\.\. is not a location; spill must be a path on this machine"
    ):
        as_path("s3://bucket/marker", "spill")
    with pytest.raises(StoreError, match="write the path without it"):
        as_path("file:///marker", "spill")


def test_empty_text_as_of_a_variable_that_is_not_set_is_refused() -> None:
    with pytest.raises(StoreError, match=r"the location is empty; write \. for the current directory"):
        as_location("")
    with pytest.raises(StoreError, match="the location is empty"):
        as_path("", "spill")
    assert as_location(".") == Path()


def test_only_a_path_object_is_told_that_it_loses_a_slash() -> None:
    with pytest.raises(StoreError, match="loses a slash"):
        as_location(Path("s3://bucket/run"))
    with pytest.raises(StoreError, match=r"write s3://bucket/prefix \(a directory"):
        as_location("s3:/bucket/run")
