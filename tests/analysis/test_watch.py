from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dumpstream.analysis.watch import Graph, Watched, WatchResult, find_watched, watch
from dumpstream.config import Operator
from dumpstream.format.verdict import Verdict
from dumpstream.reading.inputs import Input, find_inputs

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from tests.conftest import CaptureBuilder, DumpBuilder

    Dump = tuple[str, Sequence[float]]

RUN = "/dump/20260530164725/0/net/1"


def named(*names: str) -> list[Watched]:
    """Return what the names of files tell, without the files."""
    return find_watched(
        Input(label=name, name=f"{RUN}/{name}", bytes=0, named=False, path=None) for name in names
    )


def afters(watched: Watched) -> list[str]:
    return [dump.after for dump in watched.dumps]


class TestNames:
    def test_dumps_of_one_operator_are_put_in_the_order_of_time(self) -> None:
        (found,) = named(
            "0/Relu.B_To_C.4.1.30", "0/Relu.C.3.1.10", "0/Relu.A_To_C.2.1.20", "0/Relu.E_To_C.9.2.9999"
        )

        assert (found.op_name, found.early) == ("C", 0)
        assert afters(found) == ["C", "A", "B", "E"]

    def test_dumps_from_before_the_operator_ran_are_left_out(self) -> None:
        (found,) = named("0/Relu.A_To_C.2.1.10", "0/Relu.C.3.1.20", "0/Relu.B_To_C.4.1.30")

        assert (found.early, afters(found)) == (1, ["C", "B"])

    def test_iterations_operators_and_types_are_told_apart(self) -> None:
        found = named(
            *("0/Relu.C.3.1.10", "0/Relu.A_To_C.2.1.11", "0/Relu.D.5.1.12", "0/Relu.A_To_D.2.1.13"),
            *("1/Relu.C.3.1.20", "1/Relu.A_To_C.2.1.21", "1/Add.C.6.1.22", "1/Add.A_To_C.2.1.23"),
        )

        told = [(it.op_name, it.name.op_type, it.name.iteration, len(it.dumps)) for it in found]
        assert told == [("C", "Relu", 0, 2), ("D", "Relu", 0, 2), ("C", "Relu", 1, 2), ("C", "Add", 1, 2)]

    def test_operators_of_the_same_name_are_told_apart_by_their_types(self) -> None:
        first, second = named(
            *("0/Relu.C.3.1.10", "0/Add.C.4.1.20", "0/Relu.A_To_C.2.1.30", "0/Add.A_To_C.2.1.31"),
        )

        assert [dump.timestamp for dump in first.dumps] == [10, 30]
        assert [dump.timestamp for dump in second.dumps] == [20, 31]

    def test_operator_that_runs_again_begins_anew(self) -> None:
        found = named(
            *("0/Relu.C.3.1.10", "0/Relu.A_To_C.2.1.11", "0/Relu.C.3.1.20", "0/Relu.A_To_C.2.1.21"),
        )

        assert [[dump.timestamp for dump in it.dumps] for it in found] == [[10, 11], [20, 21]]

    def test_names_with_the_same_word_in_them_are_names(self) -> None:
        (found,) = named("0/Cast.Float_To_Half.3.1.10", "0/Cast.A_To_Float_To_Half.2.1.11")

        assert (found.op_name, afters(found)) == ("Float_To_Half", ["Float_To_Half", "A"])

    def test_operator_without_its_own_dump_is_not_judged(self) -> None:
        (found,) = named("0/Relu.A_To_C.2.1.10", "0/Relu.B_To_C.4.1.30")

        (result,) = watch([found])
        assert (found.op_name, found.early, found.dumps) == ("C", 2, ())
        assert not result.clean
        assert result.problems[0].startswith("C: its own dump is missing")

    def test_own_dump_that_is_missing_in_one_iteration_is_known_from_another(self) -> None:
        first, second = named("0/Relu.C.3.1.10", "0/Relu.A_To_C.2.1.11", "1/Relu.A_To_C.2.1.21")

        assert afters(first) == ["C", "A"]
        assert (second.op_name, second.early, second.dumps) == ("C", 1, ())

    def test_iterations_that_share_a_directory_begin_where_an_operator_comes_again(self) -> None:
        found = named(
            *("Relu.A_To_C.2.1.10", "Relu.C.3.1.11", "Relu.B_To_C.4.1.12"),
            *("Relu.A_To_C.2.1.20", "Relu.C.3.1.21", "Relu.B_To_C.4.1.22"),
        )

        assert [(it.early, [dump.timestamp for dump in it.dumps]) for it in found] == [
            (1, [11, 12]),
            (1, [21, 22]),
        ]

    def test_operator_that_was_only_dumped_after_itself_is_never_compared(self) -> None:
        found = named("0/Relu.C.3.1.10", "0/Relu.C.3.1.11", "0/Relu.C.3.1.12")

        assert [afters(it) for it in found] == [["C"], ["C"], ["C"]]

    def test_other_files_are_not_watched(self) -> None:
        assert not named("0/Relu.C.3.1.10.csv", "0/Opdebug.Node_OpDebug.3.1.10", "notes.txt")


class TestGraph:
    GRAPH = Graph(
        [
            Operator(name=name, model=model, order=order)
            for order, (name, model) in enumerate(
                [("a/1", "m"), ("b", "m"), ("x", "other"), ("c", ""), ("a/1", "other"), ("d", "m")]
            )
        ]
    )

    def test_operators_in_between_end_with_the_last(self) -> None:
        assert self.GRAPH.between("a_1", "d", "m") == ("b", "c", "d")

    def test_model_that_is_not_known_may_be_any(self) -> None:
        assert self.GRAPH.between("b", "c", None) == ("x", "c")

    @pytest.mark.parametrize(("first", "last"), [("a_1", "z"), ("z", "d"), ("d", "a_1"), ("d", "d")])
    def test_order_that_does_not_fit_is_no_answer(self, first: str, last: str) -> None:
        assert self.GRAPH.between(first, last, "m") is None


@pytest.fixture
def write(dump_of: Callable[[str], DumpBuilder]) -> Callable[[Path, Sequence[Dump]], Path]:
    """Return what writes the dumps of an operator C, a microsecond apart."""

    def _write(root: Path, dumps: Sequence[Dump]) -> Path:
        directory = root / "20260530164725/0/net/1/7"
        directory.mkdir(parents=True, exist_ok=True)
        for number, (name, values) in enumerate(dumps):
            data = dump_of(name).output(np.array(values, np.float32)).build()
            (directory / f"Relu.{name}.3.1.{1780159660546556 + number}").write_bytes(data)
        return root

    return _write


def watched_in(path: Path, graph: Graph | None = None) -> WatchResult:
    (result,) = watch(find_watched(find_inputs([path])), graph)
    return result


class TestWatch:
    def test_change_is_between_the_dumps_around_it(
        self, tmp_path: Path, write: Callable[[Path, Sequence[Dump]], Path]
    ) -> None:
        dumps = [("C", [1, 2, 3]), ("A_To_C", [1, 2, 3]), ("B_To_C", [1, 9, 3]), ("E_To_C", [1, 9, 3])]

        result = watched_in(write(tmp_path, dumps))

        (trampling,) = result.tramplings
        assert (trampling.before.after, trampling.after.after) == ("A", "B")
        assert (trampling.suspects, trampling.by_graph) == (("B",), False)
        assert trampling.differences[0].values == (((1,), 2.0, 9.0),)
        assert result.compared == 3
        assert not result.clean

    def test_what_the_operator_itself_writes_is_no_trampling(
        self, tmp_path: Path, write: Callable[[Path, Sequence[Dump]], Path]
    ) -> None:
        result = watched_in(write(tmp_path, [("A_To_C", [0, 0]), ("C", [1, 2]), ("B_To_C", [1, 2])]))

        assert result.clean
        assert result.watched.early == 1

    def test_graph_names_every_operator_in_between(
        self, tmp_path: Path, write: Callable[[Path, Sequence[Dump]], Path]
    ) -> None:
        graph = Graph(Operator(name=name, order=order) for order, name in enumerate("CXYB"))

        result = watched_in(write(tmp_path, [("C", [1]), ("B_To_C", [2])]), graph)

        assert result.tramplings[0].suspects == ("X", "Y", "B")
        assert result.tramplings[0].by_graph

    def test_damaged_dump_is_a_problem_and_those_around_it_are_compared(
        self, tmp_path: Path, write: Callable[[Path, Sequence[Dump]], Path]
    ) -> None:
        path = write(tmp_path, [("C", [1]), ("A_To_C", [1]), ("B_To_C", [2])])
        (damaged,) = path.rglob("Relu.A_To_C*")
        damaged.write_bytes(damaged.read_bytes()[:-1])

        result = watched_in(path)

        (problem,) = result.problems
        assert problem.startswith(f"{damaged}: ends inside output 0, which needs 1 bytes more")
        assert [it.suspects for it in result.tramplings] == [("A", "B")]

    def test_damaged_own_dump_leaves_the_later_ones_to_compare(
        self, tmp_path: Path, write: Callable[[Path, Sequence[Dump]], Path]
    ) -> None:
        path = write(tmp_path, [("C", [1]), ("A_To_C", [1]), ("B_To_C", [1])])
        (damaged,) = path.rglob("Relu.C*")
        damaged.write_bytes(b"")

        result = watched_in(path)

        assert (result.compared, len(result.problems), result.tramplings) == (1, 1, ())
        assert not result.clean

    def test_file_that_came_incomplete_is_not_compared(
        self, builder: CaptureBuilder, dump_of: Callable[[str], DumpBuilder]
    ) -> None:
        for name, verdict in [
            ("C", Verdict.COMPLETE),
            ("A_To_C", Verdict.LOST),
            ("B_To_C", Verdict.COMPLETE),
        ]:
            data = dump_of(name).output(np.ones(3, np.float32)).build()
            builder.add(f"{RUN}/7/Relu.{name}.3.1.{1780159660546556 + len(name)}", data, verdict)

        result = watched_in(builder.finish())

        assert result.problems == (f"{RUN}/7/Relu.A_To_C.3.1.1780159660546562: is not whole (lost)",)
        assert (result.compared, result.tramplings) == (1, ())

    def test_single_dump_is_not_called_clean(
        self, tmp_path: Path, write: Callable[[Path, Sequence[Dump]], Path]
    ) -> None:
        result = watched_in(write(tmp_path, [("C", [1])]))

        assert (result.clean, result.compared, result.problems) == (False, 0, ())

    @given(
        changes=st.lists(st.integers(-1, 15), min_size=1, max_size=8), early=st.integers(0, 2), data=st.data()
    )
    @settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
    def test_every_change_is_located_and_nothing_else(
        self,
        tmp_path_factory: pytest.TempPathFactory,
        write: Callable[[Path, Sequence[Dump]], Path],
        changes: list[int],
        early: int,
        data: st.DataObject,
    ) -> None:
        values = data.draw(st.lists(st.floats(width=32, allow_nan=False), min_size=16, max_size=16))
        dumps: list[Dump] = [(f"E{number}_To_C", [0.0] * 16) for number in range(early)]
        dumps.append(("C", values))
        for number, change in enumerate(changes):  # -1 changes nothing
            if change >= 0:
                values = [
                    -v if p == change and v else 1.0 if p == change else v for p, v in enumerate(values)
                ]
            dumps.append((f"A{number}_To_C", values))

        result = watched_in(write(tmp_path_factory.mktemp("run"), dumps))

        found = {it.after.after: it.differences[0].first for it in result.tramplings}
        assert found == {f"A{number}": (change,) for number, change in enumerate(changes) if change >= 0}
        assert all(it.differences[0].changed == 1 for it in result.tramplings)
        assert result.clean == (not found)
        assert result.watched.early == early
