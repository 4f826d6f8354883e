"""Sets and tables of paths, on disk where they are many."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor

from hypothesis import given
from hypothesis import strategies as st

from dumpstream.system.paths import PathSet, PathTable

#: Any that the system can have, also those that are not UTF-8.
_PATHS = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=20) | st.binary(
    max_size=20
).map(lambda data: os.fsdecode(data.replace(b"\0", b"/")))
_ROWS = st.lists(
    st.tuples(_PATHS, st.none() | st.integers(0, 2**62), st.none() | st.text(max_size=9), st.booleans())
)


@given(st.lists(_PATHS), st.lists(_PATHS))
def test_a_set_has_the_paths_that_were_added(added: list[str], others: list[str]) -> None:
    with PathSet() as paths:
        for path in added:
            paths.add(path)
        assert {it for it in (*added, *others) if it in paths} == set(added)


@given(_ROWS, _PATHS)
def test_a_table_has_the_latest_row_of_each_path(
    rows: list[tuple[str, int | None, str | None, bool]], other: str
) -> None:
    latest = {row[0]: row for row in rows}
    with PathTable() as table:
        table.add(rows)

        assert {row[0]: row for row in table} == latest
        assert table.get(other) == latest.get(other)
        assert [table.get(path) for path in latest] == [*latest.values()]


def test_a_table_has_paths_that_are_not_utf_8() -> None:
    row = ("files/\udcff", 1, None, False)
    with PathTable() as table:
        table.add([row])
        assert [*table] == [row]


def test_many_threads_may_ask_a_table() -> None:
    rows = [(f"packs/{number:05}", number, None, False) for number in range(2000)]
    with PathTable() as table, ThreadPoolExecutor(4) as threads:
        table.add(rows)
        assert [*threads.map(lambda row: table.get(row[0]), rows)] == rows
