"""Which operator added an error, which inherit it, and which was first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from dumpstream.comparison.divergence import Finding, Trace
from dumpstream.comparison.sidetensor import Identity, SideTensor
from dumpstream.comparison.summary import summarise
from dumpstream.comparison.table import Agreement, ComparisonRow, Metrics, Role, Worst

_SAME, _CLOSE, _OTHER = Agreement.IDENTICAL, Agreement.CLOSE, Agreement.DIFFERENT
_LOST, _BROKEN = Agreement.UNMATCHED, Agreement.UNREADABLE
_ERRORS = {_SAME: 0.0, _CLOSE: 1e-7, _OTHER: 0.25}


def _finding(
    io: str,
    verdict: Agreement,
    *,
    index: int = 0,
    operator: str = "op",
    op_type: str = "MatMul",
    rank: int | None = 0,
    step: int | None = 0,
    address: int = 0,
    file: str = "file",
    guess: bool = False,
) -> Finding:
    rel = _ERRORS.get(verdict)
    worst = Worst((1, 2), 1.5, 1.0) if verdict is _OTHER else None
    row = ComparisonRow(
        rank=rank,
        step=step,
        op_type=op_type,
        op_name=operator,
        io=io,
        index=index,
        occurrence=0,
        verdict=verdict,
        metrics=Metrics(rel=rel, max_abs=rel, worst=worst),
    )
    identity = Identity(rank, None, step, op_type, operator, io, index, 0)
    return Finding(row, SideTensor(identity=identity, place=0, file=file, address=address), None, guess)


def _execution(inputs: Sequence[Agreement], outputs: Sequence[Agreement], **facts: object) -> list[Finding]:
    return [
        _finding(io, verdict, index=index, **facts)  # type: ignore[arg-type]
        for io, verdicts in (("input", inputs), ("output", outputs))
        for index, verdict in enumerate(verdicts)
    ]


def _role(findings: Sequence[Finding]) -> Role | None:
    return Trace().add(findings)[-1].role


def test_an_operator_whose_inputs_agree_adds_the_error() -> None:
    assert _role(_execution([_SAME, _CLOSE], [_OTHER])) is Role.ADDED


def test_an_operator_whose_error_may_be_that_of_its_inputs_grown_is_undecided() -> None:
    findings = _execution([_CLOSE], [_OTHER])
    row = findings[0].row
    large = replace(row, metrics=replace(row.metrics, rel=0.2))

    assert _role([findings[0]._replace(row=large), findings[1]]) is Role.UNDECIDED


def test_an_operator_with_an_input_that_differs_inherits_the_error() -> None:
    assert _role(_execution([_SAME, _OTHER], [_OTHER])) is Role.INHERITED


def test_an_operator_without_inputs_is_undecided() -> None:
    (row,) = Trace().add(_execution([], [_OTHER]))

    assert row.role is Role.UNDECIDED
    assert row.reason == "undecided: no inputs were dumped"


def test_an_operator_with_an_input_that_was_not_compared_is_undecided() -> None:
    assert _role(_execution([_SAME, _LOST], [_OTHER])) is Role.UNDECIDED
    assert _role(_execution([_BROKEN], [_OTHER])) is Role.UNDECIDED


def test_an_input_that_the_operator_has_overwritten_proves_nothing() -> None:
    findings = [
        _finding("input", _OTHER, address=64),
        _finding("input", _SAME, index=1, address=128),
        _finding("output", _OTHER, address=64),
    ]

    row = Trace().add(findings)[-1]

    assert row.role is Role.UNDECIDED
    assert row.reason is not None
    assert "input 0 was overwritten" in row.reason


def test_another_input_that_differs_decides_although_one_was_overwritten() -> None:
    findings = [
        _finding("input", _SAME, address=64),
        _finding("input", _OTHER, index=1, address=128),
        _finding("output", _OTHER, address=64),
    ]

    assert _role(findings) is Role.INHERITED


def test_an_input_that_was_dumped_before_the_operator_ran_is_not_overwritten() -> None:
    findings = [
        _finding("input", _SAME, address=64, file="before"),
        _finding("output", _OTHER, address=64, file="after"),
    ]

    assert _role(findings) is Role.ADDED


def test_address_zero_is_an_address_that_is_not_known() -> None:
    assert _role(_execution([_SAME], [_OTHER], address=0)) is Role.ADDED


def test_tensors_that_were_paired_by_a_guess_decide_nothing() -> None:
    assert _role(_execution([_SAME], [_OTHER], guess=True)) is Role.UNDECIDED
    assert _role(_execution([_OTHER], [_OTHER], guess=True)) is Role.UNDECIDED


def test_rows_have_the_error_of_the_inputs_and_what_was_added() -> None:
    rows = Trace().add(_execution([_SAME, _CLOSE], [_OTHER]))

    assert [row.input_error for row in rows] == [1e-7] * 3
    assert [row.added for row in rows] == [None, None, 0.25 - 1e-7]


def test_what_was_added_is_not_known_without_inputs() -> None:
    (row,) = Trace().add(_execution([], [_OTHER]))

    assert (row.input_error, row.added) == (None, None)


def test_the_first_divergence_is_the_first_in_the_order_of_the_run() -> None:
    trace = Trace()
    trace.add(_execution([_SAME], [_SAME], operator="a"))
    trace.add(_execution([_SAME], [_OTHER], operator="b"))
    trace.add(_execution([_SAME], [_OTHER], operator="c"))

    first = trace.first

    assert first is not None
    assert (first.row.op_name, first.role, first.doubts) == ("b", Role.ADDED, ())


def test_an_earlier_step_of_a_later_rank_comes_first() -> None:
    trace = Trace()
    trace.add(_execution([_SAME], [_OTHER], operator="late", rank=0, step=2))
    trace.add(_execution([_SAME], [_OTHER], operator="early", rank=1, step=1))

    assert trace.first is not None
    assert trace.first.row.op_name == "early"


def test_an_operator_comes_before_the_collective_that_sent_its_error_to_other_ranks() -> None:
    trace = Trace()
    trace.add(_execution([_SAME], [_OTHER], operator="reduce", op_type="HcomAllReduce", rank=0))
    for operator in ("a", "b", "c"):
        trace.add(_execution([_SAME], [_SAME], operator=operator, rank=1))
    trace.add(_execution([_SAME], [_OTHER], operator="d", rank=1))
    trace.add(_execution([_OTHER], [_OTHER], operator="reduce", op_type="HcomAllReduce", rank=1))

    assert trace.first is not None
    assert (trace.first.row.op_name, trace.first.row.rank) == ("d", 1)


def test_a_collective_whose_own_inputs_agree_is_undecided() -> None:
    assert _role(_execution([_SAME], [_OTHER], op_type="HcomAllReduce")) is Role.UNDECIDED


def test_within_a_step_the_operator_that_ran_earlier_on_its_rank_comes_first() -> None:
    trace = Trace()
    trace.skip(0, 0)
    trace.add(_execution([_SAME], [_OTHER], operator="second", rank=0))
    trace.add(_execution([_SAME], [_OTHER], operator="first", rank=1))

    assert trace.first is not None
    assert trace.first.row.op_name == "first"


def test_ranks_with_the_same_first_operator_are_named_together() -> None:
    trace = Trace()
    for rank in (0, 1, 2):
        trace.add(_execution([_SAME], [_OTHER] if rank != 1 else [_SAME], rank=rank))

    assert trace.first is not None
    assert trace.first.ranks == (0, 2)


def test_an_input_that_differs_before_any_output_is_the_first_divergence() -> None:
    trace = Trace()
    trace.add(_execution([_SAME, _OTHER], [_OTHER]))

    first = trace.first

    assert first is not None
    assert (first.row.io, first.row.index, first.role) == ("input", 1, Role.INHERITED)
    assert "from the beginning" in summarise({_OTHER: 2, _SAME: 1}, first).sentence


def test_tensors_that_were_not_compared_before_it_are_a_doubt() -> None:
    trace = Trace()
    trace.add(_execution([_SAME], [_LOST], operator="a"))
    trace.add(_execution([_SAME], [_OTHER], operator="b"))

    assert trace.first is not None
    assert trace.first.doubts == ("1 tensor of earlier operators could not be compared",)


def test_the_sentence_names_operator_rank_step_output_error_and_worst_element() -> None:
    trace = Trace()
    trace.add(_execution([_SAME], [_SAME, _OTHER], operator="layer/qkv", rank=3, step=7))

    sentence = summarise({_OTHER: 1, _SAME: 2}, trace.first).sentence

    assert sentence == (
        "The first operator whose inputs agree and whose outputs do not is layer/qkv (MatMul), rank 3, "
        "step 7: output 1 differs by rel 0.25, worst at [1, 2], 1.5 instead of 1."
    )


def test_the_sentence_counts_the_operators_behind_it() -> None:
    trace = Trace()
    for inputs in ([_SAME], [_OTHER], [_OTHER], [_SAME], []):
        trace.add(_execution(inputs, [_OTHER]))

    sentence = summarise({_OTHER: 7, _SAME: 2}, trace.first).sentence

    assert sentence.endswith(
        "Of the other operators that differ, 1 adds an error of its own, 2 inherit their error, "
        "1 is undecided."
    )


def test_the_sentence_of_runs_that_agree_says_how_many_tensors_were_compared() -> None:
    assert summarise({_SAME: 3}, None).sentence == (
        "Nothing is different: 3 tensors compared, all identical."
    )
    assert summarise({_SAME: 1, _CLOSE: 2}, None).sentence == (
        "Nothing is different: 3 tensors compared, 1 identical and 2 close."
    )


def test_the_sentence_says_what_could_not_be_compared() -> None:
    some = summarise({_SAME: 3, _LOST: 2, _BROKEN: 1}, None)
    nothing = summarise({_LOST: 1}, None)

    assert some.sentence == (
        "No difference among 3 tensors compared, all identical; "
        "3 tensors could not be compared (2 unmatched, 1 unreadable)."
    )
    assert nothing.sentence == "Nothing could be compared: of 1 tensor, 1 unmatched."
    assert not some.agrees
    assert not nothing.agrees


def test_sides_without_tensors_have_nothing_to_compare() -> None:
    assert summarise({}, None).sentence == "There is nothing to compare: neither side has a tensor."
