"""Comparison: two runs in, judged rows out, in the order in which operators ran."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Collection, Generator, Iterator, Mapping, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Self

import numpy as np

from dumpstream._errors import DumpstreamError
from dumpstream.comparison.divergence import Finding, Trace
from dumpstream.comparison.examination import Examination
from dumpstream.comparison.execution import Execution
from dumpstream.comparison.limits import LimitRules, Limits, checked_tolerance, parse_limit, read_rules
from dumpstream.comparison.pairs.correspondence import EVERYTHING, Ties
from dumpstream.comparison.pairs.fusion import read_fusion
from dumpstream.comparison.pairs.namemap import read_name_map
from dumpstream.comparison.pairs.pairing import Pairing, PairingOptions, pair_sides
from dumpstream.comparison.plain.block import PairBlock
from dumpstream.comparison.plain.comparing import ComparedBlock, PlainComparison
from dumpstream.comparison.plain.following import follow
from dumpstream.comparison.plain.verdicts import AGREEMENTS
from dumpstream.comparison.sharding.gathering import GatheredSide
from dumpstream.comparison.sharding.mesh import Mesh
from dumpstream.comparison.sharding.rules import ShardRules, read_shard_rules
from dumpstream.comparison.sides.side import Side, agree_on_ranks, open_side
from dumpstream.comparison.summary import Summary, summarise
from dumpstream.comparison.table import Agreement, ComparisonRow
from dumpstream.comparison.worst import WorstRows
from dumpstream.system.batches import run_batches
from dumpstream.system.location import Prefix

_BATCH_EXECUTIONS = 256
_KL = "kl"
_AGREE = {Agreement.IDENTICAL, Agreement.CLOSE}


class Comparison:
    """The rows of a comparison, which can be iterated over once; use it in a ``with`` block.

    Rows come as the tensors are compared, in the order in which operators ran on each rank. Takes memory for
    a few blocks of the tensors that are compared at the moment, and none for the rows.
    """

    def __init__(self, pairing: Pairing, examination: Examination, workers: int | None = None) -> None:
        self.bytes = 0  #: of the elements that were compared, of both sides
        self.pairing, self.examination = pairing, examination
        self._workers = workers
        self._counts: Counter[Agreement] = Counter()
        self._trace = Trace()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __iter__(self) -> Iterator[ComparisonRow]:
        return (finding.row for finding in self.findings())

    @property
    def notes(self) -> Sequence[str]:
        """What was assumed, and what is wrong with the sides, one line each; complete with the first row."""
        return self.pairing.notes

    @property
    def tensors(self) -> int:
        """How many rows there are so far."""
        return self._counts.total()

    @property
    def summary(self) -> Summary:
        """The answer; complete with the last row."""
        return summarise(self._counts, self._trace.first)

    def close(self) -> None:
        """End the comparison, and remove what it keeps on the disk; does nothing if that was done."""
        self.pairing.close()

    def findings(
        self, *, agreeing: bool = True, tell: Callable[[int, int], None] | None = None
    ) -> Generator[Finding, None, None]:
        """Yield the rows with the tensors that they are about.

        Without those that are *agreeing*, identical and close ones are only counted, which takes less time.
        *tell* is called with the tensors and the bytes that were compared so far.

        Raises:
            DumpstreamError: a side cannot be read.
        """
        if not agreeing:
            copied = self.pairing.count_copied(lambda count: None if tell is None else tell(count, 0))
            if copied is not None:
                self._counts[Agreement.IDENTICAL] += copied
                return
        plain = self._plain()
        if plain is not None:
            yield from self._plain_findings(plain, agreeing=agreeing, tell=tell)
        else:
            yield from self._catalogued(agreeing=agreeing, tell=tell)

    def _catalogued(
        self, *, agreeing: bool, tell: Callable[[int, int], None] | None
    ) -> Generator[Finding, None, None]:
        examined = run_batches(
            self._examined,
            self.pairing,
            bytes_of=bytes_of,
            most_items=_BATCH_EXECUTIONS,
            workers=self._workers,
        )
        with closing(examined):
            for execution, found in examined:
                if tell is not None:
                    tell(self.tensors, self.bytes)
                if found is None:
                    self._counts[Agreement.IDENTICAL] += len(execution.pairs)
                    self._trace.skip(execution.rank, execution.step)
                    if agreeing:
                        yield from self._with_errors(self.examination.findings_of(execution), Trace())
                    continue
                self.bytes += bytes_of(execution)
                verdicts = [it.row.verdict for it in found]
                self._counts.update(verdicts)
                if not agreeing and _AGREE.issuperset(verdicts):
                    self._trace.skip(execution.rank, execution.step)
                    continue
                for finding in self._with_errors(found, self._trace):
                    if agreeing or finding.row.verdict not in _AGREE:
                        yield finding

    def worst(self, most: int, *, tell: Callable[[int, int], None] | None = None) -> list[ComparisonRow]:
        """Return the *most* rows that agree least, the worst first.

        Rows that agree are not among them. Of many small files, rows are made only of these, so that it takes
        a fraction of the time of `findings`, and memory for them. *tell* is as for `findings`.

        Raises:
            DumpstreamError: a side cannot be read.
        """
        plain = self._plain()
        worst = WorstRows(most)
        if plain is None:
            for finding in self.findings(agreeing=False, tell=tell):
                worst.add(finding.row)
        else:
            for compared, others in self._followed(plain, tell):
                worst.add_block(compared, others, partial(self._rows_of, plain, compared.block))
        return worst.rows()

    def _rows_of(self, plain: PlainComparison, block: PairBlock, number: int) -> list[ComparisonRow]:
        return [it.row for it in self._with_errors(plain.findings(block, number), Trace())]

    def _plain(self) -> PlainComparison | None:
        """Return what compares both sides as columns; None if that is not possible."""
        rules = self.examination.limits
        if rules.needs_kl and not (rules.base.needs_kl or self.examination.kl):
            return None
        pairs = self.pairing.plain()
        return None if pairs is None else PlainComparison(pairs, self.examination)

    def _plain_findings(
        self, plain: PlainComparison, *, agreeing: bool, tell: Callable[[int, int], None] | None
    ) -> Generator[Finding, None, None]:
        for compared, others in self._followed(plain, tell):
            numbers = {*compared.block.differing(compared.verdicts), *others}
            for number in range(compared.block.count) if agreeing else sorted(numbers):
                if number in others:
                    found = _with_rows(compared.others[number], others[number])
                else:
                    found = self._with_errors(plain.findings(compared.block, number), Trace())
                yield from (it for it in found if agreeing or it.row.verdict not in _AGREE)

    def _followed(
        self, plain: PlainComparison, tell: Callable[[int, int], None] | None
    ) -> Generator[tuple[ComparedBlock, Mapping[int, list[ComparisonRow]]], None, None]:
        """Yield blocks that were counted and followed, each with the rows of what has no records."""
        blocks = plain.blocks(self._workers)
        with closing(blocks):
            for compared in blocks:
                self.bytes += compared.bytes
                counts = np.bincount(compared.verdicts, minlength=len(AGREEMENTS)).tolist()
                self._counts.update(
                    {it: count for it, count in zip(AGREEMENTS, counts, strict=True) if count}
                )
                for found in compared.others.values():
                    self._counts.update(it.row.verdict for it in found)
                others = follow(self._trace, compared, partial(plain.findings, compared.block))
                if tell is not None:
                    tell(self.tensors, self.bytes)
                yield compared, others

    def _examined(self, executions: Sequence[Execution]) -> list[tuple[Execution, list[Finding] | None]]:
        """Return what is found of each execution; None if all its tensors are known to be identical."""
        return [(it, None if it.identical else self.examination.findings_of(it)) for it in executions]

    def _with_errors(self, findings: Sequence[Finding], trace: Trace) -> list[Finding]:
        return _with_rows(findings, trace.add(findings))


def _with_rows(findings: Sequence[Finding], rows: Sequence[ComparisonRow]) -> list[Finding]:
    return [finding._replace(row=row) for finding, row in zip(findings, rows, strict=True)]


def bytes_of(execution: Execution) -> int:
    """Return how many bytes are read to compare the tensors of *execution*."""
    return sum(
        (pair.mine.size or 0) + (pair.golden.size or 0)
        for pair in (() if execution.identical else execution.pairs)
        if not pair.known_identical and pair.mine is not None and pair.golden is not None
    )


def compare(
    mine: str | os.PathLike[str] | Prefix,
    golden: str | os.PathLike[str] | Prefix,
    *,
    rank: Sequence[str] = (),
    model: Sequence[str] = (),
    step: Sequence[str] = (),
    names: str | os.PathLike[str] | None = None,
    fusion: str | os.PathLike[str] | None = None,
    rtol: float | None = None,
    atol: float | None = None,
    limit: Mapping[str, float] | None = None,
    limits: str | os.PathLike[str] | None = None,
    mesh: str | None = None,
    golden_mesh: str | None = None,
    shards: str | os.PathLike[str] | None = None,
    metrics: Collection[str] = (),
    workers: int | None = None,
) -> Comparison:
    """Compare two runs, tensor by tensor.

    Args:
        mine: the run in question: a capture (directory or URL), a directory of dump or npy files, a file, or
            a table of statistics.
        golden: the run that it should agree with, likewise.
        rank: ranks to compare, as ``0``, or as ``0:3`` if rank 0 of mine is rank 3 of the golden.
        model: models, likewise.
        step: steps, likewise.
        names: a file with patterns that say what the golden calls the operators of mine.
        fusion: the JSON file of GE that says what fused operators were made of.
        rtol: the relative tolerance of all tensors; by default it depends on their types.
        atol: the absolute tolerance, likewise.
        limit: limits of metrics by their names.
        limits: a JSON file with limits by the names of operators.
        mesh: how the ranks of mine are arranged, such as ``tp=2,dp=2``, to put their tensors together.
        golden_mesh: the same for the golden; by default it has one rank.
        shards: a JSON file with rules that say what is split, replicated or a partial sum.
        metrics: further metrics to compute: ``kl``.
        workers: threads that compare; by default as many as there are cores, at most 8.

    Raises:
        DumpstreamError: a side does not exist, or a file of options cannot be read.
        ValueError: an option cannot be understood.
    """
    unknown = [name for name in metrics if name != _KL]
    if unknown:
        raise ValueError(f"{unknown[0]} is not a further metric; there is {_KL}")
    rules = LimitRules(
        Limits(
            rtol=checked_tolerance("rtol", rtol),
            atol=checked_tolerance("atol", atol),
            metrics=_checked_limits(limit or {}),
        ),
        [] if limits is None else _read_limits(limits),
    )
    ranks = Ties.parse(rank, "rank")
    ours, theirs = open_side(mine, "mine"), open_side(golden, "the golden")
    agree_on_ranks(ours, theirs)
    if mesh is not None or golden_mesh is not None:
        ours, theirs = _gathered([ours, theirs], [mesh, golden_mesh], shards)
        ranks = EVERYTHING
    elif shards is not None:
        raise ValueError("shards are put together by a mesh; say how the ranks are arranged")
    options = PairingOptions(
        ranks=ranks,
        models=Ties.parse(model, "model", whole=False),
        steps=Ties.parse(step, "step"),
        names=None if names is None else read_name_map(names),
        fusion=None if fusion is None else read_fusion(fusion),
    )
    return Comparison(pair_sides(ours, theirs, options), Examination(rules, kl=_KL in metrics), workers)


def _checked_limits(limit: Mapping[str, float]) -> dict[str, float]:
    return dict(parse_limit(f"{name}={value}") for name, value in limit.items())


def _read_limits(path: str | os.PathLike[str]) -> list[tuple[str, Limits]]:
    try:
        return read_rules(path)
    except OSError as exc:
        raise DumpstreamError(
            f"{os.fspath(path)} cannot be read: {exc.strerror}; give limits a JSON file"
        ) from exc
    except ValueError as exc:
        raise DumpstreamError(str(exc)) from exc


def _gathered(
    sides: Sequence[Side], meshes: Sequence[str | None], shards: str | os.PathLike[str] | None
) -> list[Side]:
    rules = ShardRules() if shards is None else read_shard_rules(Path(shards))
    parsed = [None if text is None else Mesh.parse(text) for text in meshes]
    known = {name for mesh in parsed if mesh is not None for name in mesh.sizes}
    if unknown := sorted(rules.groups - known):
        raise ValueError(f"the rules of shards name {unknown[0]}, which no mesh has")
    return [GatheredSide(side, mesh, rules) for side, mesh in zip(sides, parsed, strict=True)]
