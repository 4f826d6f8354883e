from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from dumpstream.objectstore.keys import Keys
from dumpstream.testing import HOSTILE_NAMES


def test_name_that_comes_again_takes_the_next_number() -> None:
    keys = Keys("files", suffix=".zst")

    taken = [keys.take("a/b") for _ in range(20)]

    assert taken == ["files/a/b.zst", *(f"files/a/b.{number}.zst" for number in range(2, 21))]


def test_part_behind_a_gap_begins_with_two() -> None:
    assert Keys("files", suffix=".zst").take("a", first=2) == "files/a.2.zst"


def test_key_that_was_there_before_is_not_taken_again() -> None:
    keys = Keys("files", suffix=".zst")
    keys.add("files/a.zst")

    assert keys.take("a") == "files/a.2.zst"


def test_hostile_names_get_keys_that_a_store_takes() -> None:
    keys = Keys("files", suffix=".zst", prefix_bytes=100)

    taken = [keys.take(name) for name in HOSTILE_NAMES]

    assert len(set(taken)) == len(taken)
    assert all(len(key.encode()) + 100 <= 1024 for key in taken)
    assert not any("//" in key or "/../" in key or not key.isprintable() for key in taken)


def test_names_that_differ_in_a_slash_and_a_backslash_get_keys_that_no_store_confuses() -> None:
    keys = Keys("files", suffix=".zst")

    taken = [keys.take(name) for name in ("a/b", "a\\b", "a\\\\b", "a_b")]

    assert len({key.replace("\\", "/") for key in taken}) == 4
    assert not any("\\" in key for key in taken)


@given(st.lists(st.sampled_from(["a", "b", "a.2", "a/b", "a.2.zst", "b.3"]), max_size=60))
@settings(max_examples=30, deadline=None)
def test_no_two_files_share_a_key(names: list[str]) -> None:
    keys = Keys("files", suffix=".zst")

    taken = [keys.take(name) for name in names]

    assert len(set(taken)) == len(taken)
