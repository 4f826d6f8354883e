from __future__ import annotations

import pytest

from dumpstream.outside.collectorrequest import sink_below


@pytest.mark.parametrize(
    ("sink", "of_process"),
    [
        ("s3://bucket/run?region=x", "s3://bucket/run/rank-0?region=x"),
        ("stats:dir?format=csv", "stats:dir/rank-0?format=csv"),
        ("stats:?format=csv", "stats:?format=csv"),
        ("zstd:", "zstd:"),
    ],
)
def test_each_process_of_a_collector_has_a_place_of_its_own(sink: str, of_process: str) -> None:
    assert sink_below(sink, "rank-0") == of_process
