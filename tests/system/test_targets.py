from __future__ import annotations

import re
import tracemalloc

from hypothesis import example, given, settings
from hypothesis import strategies as st

from dumpstream.names import clean_name, hashed_component, hashed_name, hashed_repetition
from dumpstream.system.targets import Target, Targets
from dumpstream.testing import HOSTILE_NAMES

_RESERVED = re.compile(r"mapping\.csv|.*\.input\.\d\.npy")

#: Few different parts, so that names are often in each other's way.
parts = st.one_of(
    st.sampled_from(["", ".", "..", "p", "q", "p.input.0.npy", "mapping.csv", "x" * 241, "\n", "\udcff"]),
    st.sampled_from(["p", "..", "p/q", "\n", "/p"]).map(hashed_component),
    st.sampled_from(["p", "..", "p/q", "/"]).map(hashed_name),
    st.sampled_from(["p", "//p", "p/q"]).map(lambda name: hashed_repetition(name, "", 1)),
)
names = st.lists(parts, min_size=1, max_size=4).map("/".join)


def choose(them: list[str], reserved: re.Pattern[str] | None = None) -> list[Target]:
    targets = Targets(lambda: them, reserved=reserved)
    return [targets.choose(name) for name in them]


def assert_disjoint(files: list[Target]) -> None:
    """Check that all of *files* can exist in one directory at the same time."""
    folders = {file[:depth] for file in files for depth in range(1, len(file))}

    assert len(set(files)) == len(files)
    assert folders.isdisjoint(files)
    for file in files:
        assert ".." not in file
        assert all(part and "/" not in part and len(part.encode()) <= 255 for part in file)


@settings(deadline=None, max_examples=500)
@given(st.lists(names, max_size=12))
@example(["p/q", "p~0d72d5bd89f3691f", "p"])
@example(["../x", ".."])
@example(["p", "/p", "p/", "p//q", "p/./q", "p/q"])
@example(["p/q", "p", hashed_repetition("p", "", 0)])
@example([*HOSTILE_NAMES, *HOSTILE_NAMES])
def test_every_name_has_a_path_of_its_own(them: list[str]) -> None:
    assert_disjoint(choose(them))


@settings(deadline=None, max_examples=500)
@given(st.lists(names, max_size=12))
@example(["p", "p.input.0.npy/q", "mapping.csv/x", "p.input.0.npy"])
def test_files_made_from_a_name_are_in_the_way_of_no_other(them: list[str]) -> None:
    chosen = choose(them, _RESERVED)
    made = [(*target[:-1], f"{target[-1][:200]}.input.0.npy") for target in chosen]

    assert_disjoint([*made, ("mapping.csv",)])


def test_ordinary_names_keep_their_paths_in_any_order() -> None:
    ordinary = ["/dump/2026//0/Conv2D.conv1.1.2.3", "a~b", "p/q", "p/q.2", "x/p", "名前", "a/b/c", "a/bc"]

    for them in (ordinary, ordinary[::-1]):
        assert choose(them) == [clean_name(name) for name in them]


def test_only_names_that_are_in_the_way_get_a_hash() -> None:
    first, same, directory, below, other = choose(["x/a", "/x//a", "p", "p/q", "other"])

    assert (first, below, other) == (("x", "a"), ("p", "q"), ("other",))
    assert same[0] == "x"
    assert re.fullmatch(r"a~[0-9a-f]{32}", same[1])
    assert re.fullmatch(r"p~[0-9a-f]{32}", directory[0])


def test_equal_names_of_several_sources_differ() -> None:
    targets = Targets(lambda: ["a"] * 4)

    chosen = [targets.choose("a", source) for source in ("run1", "run2", "run3", "run3")]

    assert chosen[0] == ("a",)
    assert_disjoint(chosen)


def test_names_that_are_not_in_the_way_are_not_kept() -> None:
    many = 20_000
    names = [f"model/{number % 50}/Op.name{number}.1.2.{number}" for number in range(many)]

    Targets(lambda: names)  # loads what sorts many of them
    tracemalloc.start()
    targets = Targets(lambda: names)
    kept, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert kept < many
    assert targets.choose(names[0]) == clean_name(names[0])
