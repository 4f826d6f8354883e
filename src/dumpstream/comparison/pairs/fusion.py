"""Fusion: which outputs of the golden the operators of a compiled graph stand for, as GE's JSON says."""

from __future__ import annotations

import os
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from dumpstream._errors import DumpstreamError
from dumpstream.comparison.pairs.namemap import read_json, read_text
from dumpstream.comparison.sides.origin import clean_operator
from dumpstream.format.layouts import PLAIN

_ORIGINALS = "_datadump_original_op_names"
_NAME, _INDEX = "_datadump_origin_name", "_datadump_origin_output_index"
_FORMAT = "_datadump_origin_format"

_SOURCE = re.compile(r"(.+):([0-9]{1,9})", re.ASCII | re.DOTALL)


class Output(NamedTuple):
    """An output of an operator."""

    op_name: str
    index: int  # type: ignore[assignment]  # hides tuple.index
    order: str | None = None  #: of its axes, such as NHWC; None if the graph does not say


#: A tensor of an operator of the graph: its name, input or output, and the number.
Borrower = tuple[str, str, int]


class _Fused(NamedTuple):
    originals: Sequence[str] | None  #: what it was made of, the last one last; None if it says nothing of it
    outputs: Mapping[int, Output]  #: the golden's, by its own
    inputs: Sequence[Output]  #: where they come from, in this graph


class Fusion:
    """The operators of a graph, by their names as the device writes them."""

    def __init__(self, operators: Mapping[str, _Fused]) -> None:
        self._operators = operators
        self._fused_into = {
            name: fused for fused, operator in operators.items() for name in operator.originals or ()
        }

        self._borrowers: dict[tuple[str, int], list[Borrower]] = defaultdict(list)
        for name, operator in operators.items():
            for index in range(len(operator.inputs)):
                self._lend(self.golden_input(name, index), (name, "input", index))
            for index, target in operator.outputs.items():
                self._lend(target, (name, "output", index))

    def _lend(self, target: Output | None, borrower: Borrower) -> None:
        if target is not None:
            self._borrowers[target.op_name, target.index].append(borrower)

    def borrowers(self, op_name: str, index: int) -> Sequence[Borrower]:
        """Return the tensors of the graph that are compared with output *index* of the golden's *op_name*.

        They are in the graph, but need not have been dumped.
        """
        return self._borrowers.get((op_name, index), ())

    def __contains__(self, op_name: str) -> bool:
        return op_name in self._operators

    def golden_name(self, op_name: str) -> str | None:
        """Return the operator of the golden whose output *op_name* has; None if the graph does not say."""
        fused = self._operators.get(op_name)
        if fused is None:
            return None
        if fused.outputs:
            return fused.outputs[min(fused.outputs)].op_name
        return fused.originals[-1] if fused.originals else None

    def fused_into(self, original: str) -> str | None:
        """Return the operator of the graph that *original*, one of the golden, has become a part of."""
        return self._fused_into.get(original)

    def is_fused(self, op_name: str) -> bool:
        """Whether *op_name* was made of several operators."""
        fused = self._operators.get(op_name)
        return fused is not None and len(fused.originals or ()) > 1

    def golden_output(self, op_name: str, index: int) -> Output | None:
        """Return the golden's output that the output *index* of *op_name* stands for, if there is one."""
        fused = self._operators.get(op_name)
        if fused is None:
            return None
        if index in fused.outputs:
            return fused.outputs[index]
        if fused.originals is None:
            return Output(op_name, index)
        return Output(fused.originals[-1], index) if fused.originals else None

    def golden_input(self, op_name: str, index: int) -> Output | None:
        """Return the golden's output that the input *index* of *op_name* is compared with, if there is one.

        An operator that the compiler has put in, such as TransData, passes on what it gets.
        """
        seen: set[Output] = set()
        fused = self._operators.get(op_name)
        while fused is not None and index < len(fused.inputs):
            producer = fused.inputs[index]
            if producer in seen:
                return None
            seen.add(producer)
            found = self.golden_output(producer.op_name, producer.index)
            if found is not None:
                return found
            fused, index = self._operators.get(producer.op_name), 0
        return None


def read_fusion(path: str | os.PathLike[str]) -> Fusion:
    """Return the operators of the graph that GE has written to *path* as JSON.

    Raises:
        DumpstreamError: it cannot be read, or is something else.
    """
    found = read_json(read_text(path), path)
    graphs = found.get("graph") if isinstance(found, dict) else None
    operators: dict[str, _Fused] = {}
    for graph in graphs if isinstance(graphs, list) else []:
        listed = graph.get("op") if isinstance(graph, dict) else None
        for operator in listed if isinstance(listed, list) else []:
            if isinstance(operator, dict) and isinstance(operator.get("name"), str):
                operators[clean_operator(operator["name"])] = _fused(operator)
    if not operators:
        raise DumpstreamError(
            f"{os.fspath(path)} is not a fusion file: it has no graph of operators; "
            "make one with atc --mode=1 --om=MODEL --json=FILE"
        )
    return Fusion(operators)


def _fused(operator: Mapping[str, Any]) -> _Fused:
    attributes = dict(_attributes(operator.get("attr")))
    originals = attributes.get(_ORIGINALS)
    names: list[str] | None = None
    if originals is not None:
        listed = _within(_within(originals, "list"), "s")
        listed = listed if isinstance(listed, list) else []
        names = [clean_operator(name) for name in listed if isinstance(name, str) and name]
    outputs = {}
    described = operator.get("output_desc")
    for index, output in enumerate(described if isinstance(described, list) else []):
        attributes = dict(_attributes(_within(output, "attr")))
        name, number = _within(attributes.get(_NAME), "s"), _within(attributes.get(_INDEX), "i")
        if isinstance(name, str) and name:
            # GE leaves out what is 0.
            number = number if type(number) is int and number >= 0 else 0
            order = _within(attributes.get(_FORMAT), "s")
            known = isinstance(order, str) and order in PLAIN
            outputs[index] = Output(clean_operator(name), number, order if known else None)
    listed = operator.get("input")
    inputs = [_input(text) for text in listed if isinstance(text, str)] if isinstance(listed, list) else []
    return _Fused(names, outputs, [it for it in inputs if it is not None])


def _attributes(listed: Any) -> Iterator[tuple[str, Any]]:
    for attribute in listed if isinstance(listed, list) else []:
        key = _within(attribute, "key")
        if isinstance(key, str):
            yield key, attribute.get("value")


def _within(thing: Any, key: str) -> Any:
    return thing.get(key) if isinstance(thing, dict) else None


def _input(text: str) -> Output | None:
    """Return the output that *text* names; None for one that only says what ran before."""
    match = _SOURCE.fullmatch(text)
    return None if match is None else Output(clean_operator(match[1]), int(match[2]))
