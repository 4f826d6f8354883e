from __future__ import annotations

import io
import math
import os
import pty
import re
import termios
from dataclasses import replace
from typing import TYPE_CHECKING, TextIO

import pytest

from dumpstream.cli._display import printable
from dumpstream.cli.screen.colour import Style
from dumpstream.cli.screen.layout import Column
from dumpstream.cli.screen.table import Table
from dumpstream.cli.screen.tensors import tensor_column, tensor_columns

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_NAMES = Column(name="name", least=8, ample=10, folds=True, importance=2)
_COUNT = Column(name="count", numeric=True, ample=6, importance=1)
_EXTRA = Column(name="extra", importance=0)


def _text(table: Table) -> str:
    return "".join(table.lines())


class Terminal:
    """A terminal whose width can be changed."""

    def __init__(self) -> None:
        self._terminal, end = pty.openpty()
        self.file: TextIO = os.fdopen(end, "w", encoding="utf-8")

    def resize(self, columns: int) -> TextIO:
        termios.tcsetwinsize(self._terminal, (24, columns))
        return self.file

    def close(self) -> None:
        self.file.close()
        os.close(self._terminal)


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Iterator[Terminal]:
    monkeypatch.setenv("NO_COLOR", "1")
    it = Terminal()
    yield it
    it.close()


class TestElsewhere:
    """Tables that are not on a terminal."""

    def test_all_lines_are_as_wide_as_the_widest(self) -> None:
        table = Table(tensor_columns(["op_name", "max"]), file=io.StringIO())
        table.add({"op_name": ["a"], "max": [1.0]})
        table.add({"op_name": ["longer"], "max": [2**64 - 1]})

        assert _text(table) == (
            "op_name                   max\na                           1\nlonger   18446744073709551615\n"
        )
        assert table.rows == 2

    def test_later_lines_keep_the_layout_and_nothing_of_them_is_lost(self) -> None:
        table = Table(tensor_columns(["op_name", "nan"]), file=io.StringIO())
        table.add({"op_name": ["a"], "nan": [1]})
        early = _text(table)
        table.add({"op_name": ["longer_name", "b"], "nan": [2, 3]})

        assert early == "op_name  nan\na          1\n"
        assert _text(table) == "longer_name    2\nb          3\n"
        assert [*table.lines()] == []

    def test_the_lead_comes_first_if_a_row_knows_it(self) -> None:
        table = Table(tensor_columns(["op_name"]), leads=[tensor_column("rank")], file=io.StringIO())
        table.add({"op_name": ["a"], "rank": [None]})
        without = _text(table)
        table.add({"op_name": ["b", "c"], "rank": [None, 7]})

        assert without == "op_name\na\n"
        assert _text(table) == "rank  op_name\n   -  b\n   7  c\n"

    def test_cells_that_are_equal_as_numbers_stay_what_they_are(self) -> None:
        table = Table(tensor_columns(["max", "shape"]), file=io.StringIO())
        table.add({"max": [0.0, -0.0, 10**6, 1e6, math.nan, None], "shape": [(), (2, 3), None, (), (), ()]})

        assert [line.split() for line in _text(table).splitlines()[1:]] == [
            ["0", "-"],
            ["-0", "2x3"],
            ["1000000", "-"],
            ["1e+06", "-"],
            ["nan", "-"],
            ["-", "-"],
        ]

    def test_a_table_without_rows_has_no_lines(self) -> None:
        table = Table(tensor_columns(["op_name"]), file=io.StringIO())
        table.add({"op_name": []})

        assert [*table.lines()] == []

    def test_names_are_whole(self) -> None:
        table = Table([_NAMES], file=io.StringIO())
        table.add({"name": ["model/layer/a", "model/layer/b"]})

        assert _text(table) == "name\nmodel/layer/a\nmodel/layer/b\n"

    def test_each_line_is_what_formatting_it_alone_would_give(self) -> None:
        repeated = replace(_COUNT, name="repeated", repeats=True)
        names = ["a b", "", " ", "ends in spaces   ", "\u754c"]
        for columns in ([repeated, _COUNT, _NAMES], [_NAMES, repeated], [repeated, _EXTRA]):
            for counts in ([7] * 5, [1, 10**9, 1, 2, 2]):
                cells: dict[str, Sequence[object]] = {
                    "repeated": counts,
                    "count": counts,
                    "name": names,
                    "extra": names,
                }
                table = Table(columns, file=io.StringIO(), indent=1)
                table.add(cells)

                widths = [max(len(str(it)) for it in [*cells[of.name], of.name]) for of in columns]
                line = " " + "  ".join(
                    f"%{'' if of.numeric else '-'}{width}s" for of, width in zip(columns, widths, strict=True)
                )
                rows = zip(*(cells[of.name] for of in columns), strict=True)
                assert _text(table).split("\n")[1:-1] == [(line % row).rstrip() for row in rows]

    def test_control_characters_of_names_are_shown_as_text(self) -> None:
        table = Table(tensor_columns(["op_name"]), file=io.StringIO())
        table.add({"op_name": ["a\x1b[31m\n[bold]b[/bold]\u202e"]})

        assert _text(table) == "op_name\na\\x1b[31m\\n[bold]b[/bold]\\u202e\n"

    def test_control_characters_in_one_of_many_texts_are_found(self) -> None:
        table = Table([replace(_NAMES, text=printable)], file=io.StringIO())
        table.add({"name": ["before", "a\x1b[31m\x7f", "behind"]})

        assert _text(table) == "name\nbefore\na\\x1b[31m\\x7f\nbehind\n"


class TestTerminal:
    """Tables that fit the terminal."""

    @pytest.mark.parametrize("columns", [10, 40, 80, 120])
    def test_no_line_is_wider_and_no_word_is_cut_without_a_mark(
        self, terminal: Terminal, columns: int
    ) -> None:
        names = ["op_name", "shape", "max", "min", "mean", "nan", "dtype", "model"]
        table = Table(tensor_columns(names), file=terminal.resize(columns), grows=True)
        for scale in (1, 10**5):
            table.add(
                {
                    "op_name": [f"layer_{scale}", "decoder_block_attention_with_a_long_name"],
                    "shape": [(2,), (scale, 16, 224, 224)],
                    **{name: [scale / 7, -1e-30 / 3] for name in ("max", "min", "mean")},
                    "nan": [0, scale],
                    "dtype": ["float32", "float32"],
                    "model": ["transformer_0", "transformer_0"],
                }
            )
            lines = _text(table).splitlines()

            assert lines
            assert max(map(len, lines)) <= columns
        assert "op_name" not in table.left_out

    def test_least_important_column_is_left_out_first(self, terminal: Terminal) -> None:
        table = Table([_NAMES, _COUNT, _EXTRA], file=terminal.resize(18))
        table.add({"name": ["a" * 8], "count": [12], "extra": ["x"]})

        assert _text(table) == "name      count\naaaaaaaa     12\n"
        assert table.left_out == ["extra"]

    def test_common_beginning_is_shown_once(self, terminal: Terminal) -> None:
        table = Table([_NAMES, _COUNT], file=terminal.resize(40))
        table.add({"name": ["model/layer/a", "model/layer/b/c"], "count": [1, 2]})

        assert _text(table) == "name below model/layer/\nname  count\na         1\nb/c       2\n"

    def test_another_beginning_is_told_before_its_rows(self, terminal: Terminal) -> None:
        table = Table([_NAMES], file=terminal.resize(40))
        table.add({"name": ["rank-0/layer/a", "rank-0/layer/b"]})
        first = _text(table)
        table.add({"name": ["rank-0/layer/c"]})
        same = _text(table)
        table.add({"name": ["rank-1/layer/a", "rank-1/layer/b"]})

        assert first == "name below rank-0/layer/\nname\na\nb\n"
        assert same == "c\n"
        assert _text(table) == "name below rank-1/layer/\na\nb\n"

    def test_layout_stays_until_the_terminal_is_resized(self, terminal: Terminal) -> None:
        table = Table([_NAMES, _COUNT], file=terminal.resize(40), grows=True)
        table.add({"name": ["abc"], "count": [1]})
        _text(table)
        table.add({"name": ["longer than the others"], "count": [123_456_789]})
        later = _text(table)
        terminal.resize(20)
        table.add({"name": ["longer than the others"], "count": [1]})

        assert later == "longer…ers    123M\n"
        assert _text(table) == "name           count\nlonger t…hers      1\n"

    def test_terminal_without_unicode_gets_no_ellipsis(self, terminal: Terminal) -> None:
        terminal.resize(10)
        with os.fdopen(os.dup(terminal.file.fileno()), "w", encoding="ascii") as file:
            table = Table([_NAMES], file=file)
            table.add({"name": ["abcdefghijklmnop"]})

            assert _text(table) == "name\nabcdef~nop\n"

    def test_characters_that_take_two_columns_are_counted_twice(self, terminal: Terminal) -> None:
        table = Table([_NAMES, _COUNT], file=terminal.resize(20))
        table.add({"name": ["张量" * 8], "count": [1]})

        assert _text(table).splitlines()[1] == "张量张量…张量      1"

    def test_colours_do_not_move_columns(self, terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delenv("NO_COLOR")
        monkeypatch.setenv("TERM", "xterm")
        column = Column(name="verdict", style=lambda text: Style.GOOD if text == "complete" else Style.BAD)
        table = Table([column, _COUNT], file=terminal.resize(40))
        table.add({"verdict": ["complete", "gap"], "count": [1, 2]})

        text = _text(table)

        assert "\x1b[32mcomplete\x1b[0m" in text
        assert "\x1b[31mgap\x1b[0m" in text
        plain = re.sub(r"\x1b\[[0-9;]*m", "", text)
        assert plain == "verdict   count\ncomplete      1\ngap           2\n"
