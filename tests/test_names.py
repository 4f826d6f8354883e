from __future__ import annotations

import os

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from dumpstream.names import (
    MAX_COMPONENT_BYTES,
    MAX_DEPTH,
    MAX_PATH_BYTES,
    clean_name,
    free_number,
    hashed_component,
    hashed_name,
    hashed_repetition,
)
from dumpstream.testing import HOSTILE_NAMES

parts = st.one_of(
    st.sampled_from(["", ".", "..", "a", "a.zst", "x" * 241, "é" * 121, "\x00", "\n", "\udcff"]),
    st.text(max_size=8),
    st.binary(max_size=8).map(os.fsdecode),
)
names = st.lists(parts, max_size=12).map("/".join)


def as_cann_means_it(name: str) -> list[str]:
    return [part for part in name.split("/") if part not in ("", ".")]


@settings(deadline=None, max_examples=500)
@given(names)
@example("x/" * 2047)
@example("y" * 4095)
def test_a_cleaned_name_stays_below_its_destination_and_fits(name: str) -> None:
    components = clean_name(name)

    assert components
    assert len(components) <= MAX_DEPTH
    assert len("/".join(components).encode()) <= MAX_PATH_BYTES
    for component in components:
        assert component not in ("", ".", "..")
        assert "/" not in component
        assert component.isprintable()
        assert len(component.encode()) <= MAX_COMPONENT_BYTES


@settings(deadline=None, max_examples=500)
@given(names)
def test_cleaning_gives_the_same_every_time_and_a_name_of_its_own_to_what_it_has_changed(name: str) -> None:
    components = clean_name(name)
    unchanged = list(components) == as_cann_means_it(name)

    assert clean_name(name) == components
    assert (clean_name("/".join(components)) == components) == unchanged


@settings(deadline=None, max_examples=500)
@given(names, names)
@example("a\x01", "a\x02")
@example("\udcfe", "\udcff")
@example("..", "...")
@example("/", "//")
@example("x" * 300, "x" * 301)
@example("x/" * 2000 + "a", "x/" * 2000 + "b")
@example("..", "/".join(clean_name("..")))
@example("/", hashed_name("/"))
@example("..", hashed_name(".."))
@example("a\n", hashed_component("a\n"))
def test_different_names_get_different_paths(one: str, other: str) -> None:
    same = clean_name(one) == clean_name(other)

    assert same == (one == other or (as_cann_means_it(one) == as_cann_means_it(other) != []))


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("/dump/2026//0//model//Conv2D.conv1.1.2.3", "dump/2026/0/model/Conv2D.conv1.1.2.3"),
        ("./relative/./name", "relative/name"),
        ("10.0.0.1:/remote", "10.0.0.1:/remote"),
        ("名前/ünï cödé", "名前/ünï cödé"),
        ("trailing/", "trailing"),
        ("...", "..."),
    ],
)
def test_a_normal_name_is_its_own_path(name: str, path: str) -> None:
    assert "/".join(clean_name(name)) == path


def test_what_is_changed_stays_readable_and_only_there() -> None:
    directory, file = clean_name("fine/bad\nname")

    assert directory == "fine"
    assert file.startswith("bad_name~")


def test_a_climb_is_a_directory_like_any_other() -> None:
    first, second, *rest = clean_name("../../etc/passwd")

    assert first == second
    assert first.startswith("__~")
    assert rest == ["etc", "passwd"]


@pytest.mark.parametrize("name", HOSTILE_NAMES)
def test_a_hashed_name_is_one_component_that_no_other_name_is_cleaned_to(name: str) -> None:
    hashed = hashed_name(name)
    (again,) = clean_name(hashed)

    assert hashed.isprintable()
    assert "/" not in hashed
    assert len(hashed.encode()) <= MAX_COMPONENT_BYTES
    assert again != hashed
    assert len({hashed, hashed_component(name), hashed_repetition(name, "", 0), again}) == 4


@pytest.mark.parametrize("name", ["~", "a~b", "a~0123456789abcdef", "~/x", "a~" + "0" * 31, "a~" + "g" * 32])
def test_a_tilde_alone_changes_nothing(name: str) -> None:
    assert "/".join(clean_name(name)) == name


def test_hashed_names_differ_by_directory_too() -> None:
    assert hashed_name("a/file") != hashed_name("b/file")
    assert hashed_name("a/file").startswith("file~")


@pytest.mark.parametrize("taken", [1, 2, 3, 7, 8, 1000])
def test_the_first_free_number_is_found_after_a_few_looks(taken: int) -> None:
    looks: list[int] = []

    def is_taken(number: int) -> bool:
        looks.append(number)
        return number <= taken

    assert free_number(is_taken, 1) == taken + 1
    assert len(looks) <= 20
