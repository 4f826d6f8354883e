from __future__ import annotations

import math

from dumpstream.cli._table import Table


def test_all_lines_are_as_wide_as_the_widest() -> None:
    table = Table(["op_name", "max"])
    table.add({"op_name": ["a"], "max": [1.0]})
    table.add({"op_name": ["longer"], "max": [2**64 - 1]})

    assert "".join(table.lines()) == (
        "op_name                   max\na                           1\nlonger   18446744073709551615\n"
    )
    assert table.rows == 2


def test_lines_that_are_asked_for_early_know_only_what_came_before() -> None:
    table = Table(["op_name", "nan"])
    table.add({"op_name": ["a"], "nan": [1]})
    early = [*table.lines()]
    table.add({"op_name": ["longer_name"], "nan": [2]})

    assert "".join(early) == "op_name  nan\na          1\n"
    assert "".join(table.lines()) == "longer_name    2\n"
    assert [*table.lines()] == []


def test_the_lead_comes_first_if_a_row_knows_it() -> None:
    table = Table(["op_name"], lead="rank")
    table.add({"op_name": ["a"], "rank": [None]})
    without = [*table.lines()]
    table.add({"op_name": ["b", "c"], "rank": [None, 7]})

    assert "".join(without) == "op_name\na\n"
    assert "".join(table.lines()) == "rank  op_name\n   -  b\n   7  c\n"


def test_cells_that_are_equal_as_numbers_stay_what_they_are() -> None:
    table = Table(["max", "shape"])
    table.add({"max": [0.0, -0.0, 10**6, 1e6, math.nan, None], "shape": [(), (2, 3), None, (), (), ()]})

    assert [line.split() for line in "".join(table.lines()).splitlines()[1:]] == [
        ["0", "-"],
        ["-0", "2x3"],
        ["1000000", "-"],
        ["1e+06", "-"],
        ["nan", "-"],
        ["-", "-"],
    ]


def test_a_table_without_rows_has_no_lines() -> None:
    table = Table(["op_name"])
    table.add({"op_name": []})

    assert [*table.lines()] == []
