"""Files measured together have the rows that each would have alone."""

from __future__ import annotations

import threading

from hypothesis import given, settings
from hypothesis import strategies as st

from dumpstream.simulation import Workload
from dumpstream.sinks import WholeFile
from dumpstream.statistics.engine import measure_whole
from dumpstream.statistics.files import origin_of, whole_file

from .conftest import one_by_one, together, written

FILES = [
    WholeFile(file.name, file.data)
    for text in (
        "faults,steps=1,tensor_bytes=16-300",
        "models=1,ops=8,shape=3x5,null_address=0.5,nan=3,stats_text=4",
        "models=1,ops=3,tensor_bytes=40000-60000",
    )
    for file in Workload.parse(text).expected_files("/dump")
]


def test_simulated_files_give_the_same_rows_as_one_by_one() -> None:
    columns, measured, _ = measure_whole(FILES)

    assert len(measured) > len(FILES) / 2
    assert repr(written([columns])) == repr(one_by_one(*(FILES[number] for number in measured)))


@st.composite
def damaged_files(draw: st.DrawFn) -> WholeFile:
    file = draw(st.sampled_from(FILES))
    data = bytearray(file.data)
    for place in draw(st.lists(st.integers(0, min(len(data), 200) - 1), max_size=3)):
        data[place] = draw(st.integers(0, 255))
    return WholeFile(draw(st.sampled_from([file.name, "nothing", "a\udcff.b.1.2.3"])), bytes(data))


@given(st.lists(damaged_files(), min_size=1, max_size=10))
@settings(max_examples=100, deadline=None)
def test_a_damaged_file_has_the_same_rows_as_alone_or_none(files: list[WholeFile]) -> None:
    columns, measured, _ = measure_whole(files)

    assert repr(written([columns])) == repr(one_by_one(*(files[number] for number in measured)))


def test_what_was_measured_apart_is_written_as_if_together() -> None:
    parts = [measure_whole(FILES[start : start + 5]).columns for start in range(0, len(FILES), 5)]

    assert repr(written(parts)) == repr(together(*FILES))


def test_rows_and_columns_share_a_group() -> None:
    columns = measure_whole(FILES[:1]).columns

    rows = whole_file(origin_of("other"), memoryview(FILES[1].data))

    assert repr(written([columns], rows)) == repr(
        [*one_by_one(FILES[0]), *one_by_one(WholeFile("other", FILES[1].data))]
    )


def test_threads_may_measure_at_once() -> None:
    expected = repr(together(*FILES))
    found: list[str] = []

    threads = [threading.Thread(target=lambda: found.append(repr(together(*FILES)))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert found == [expected] * 4
