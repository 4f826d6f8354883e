"""Sentence: a diagnosis in words."""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite

from dumpstream.diagnosis.badness import Badness
from dumpstream.diagnosis.blame import Blame
from dumpstream.diagnosis.report import OriginReport, TensorReport

_MOST_NAMES = 4
_WORDS = {
    Badness.NAN: "NaN",
    Badness.INF: "infinity",
    Badness.OVERFLOW: "overflow",
    Badness.SATURATION: "saturation",
    Badness.DRIFT: "drift",
    Badness.DIVERGENCE: "divergence",
}


def nothing_bad(kinds: Sequence[Badness], rows: int) -> str:
    """Return that nothing of *kinds* is among the *rows*."""
    if not rows:
        return "There are no tensors in the run."
    return f"No {' or '.join(_WORDS[kind] for kind in kinds)} in {rows:,} tensors."


def sentence_of(
    origin: OriginReport, inputs: Sequence[TensorReport] = (), *, concurrent: int, stayed: bool
) -> str:
    """Return what *origin*, the first, says; *concurrent* so many may have been the first.

    *inputs* are those of its operator. If no other rank is named, *stayed* says whether it certainly reached
    none.
    """
    word = _WORDS[origin.kind]
    several = f"{word[:-1]}ies" if word.endswith("y") else f"{word}s"
    which = f"the first {word}" if concurrent == 1 else f"one of {concurrent} independent first {several}"
    where = "" if origin.host is None else f"of host {origin.host} "
    who = "The run" if origin.rank is None else f"Rank {origin.rank}"
    if origin.blame is Blame.MADE:
        text = f"{who} {where}made {which}: {_place(origin)}; {origin.reason}{_ranges(inputs)}"
    else:
        unknown = f"what made it is not known: {origin.reason}"
        text = f"{who} {where}has {which} in the dump: {_place(origin)}; {unknown}"
    return f"{text}{_spread(origin, stayed=stayed)}."


def _place(origin: OriginReport) -> str:
    parts = [] if origin.step is None else [f"step {origin.step}"]
    if origin.op_type is None and origin.op_name is None:
        return ", ".join([*parts, "an operator that is not in the dump"])
    parts.append(f"operator {origin.op_name or '?'} ({origin.op_type or '?'})")
    text = f"{', '.join(parts)}, {origin.io} {origin.index}"
    if origin.bad is not None and origin.count is not None:
        text += f": {origin.bad:,} of {origin.count:,} elements"
    if origin.first_index is not None:
        text += f", first at {[*origin.first_index]}"
    return text


def _ranges(inputs: Sequence[TensorReport]) -> str:
    """Return between which values the first *inputs* lie."""
    known = [it for it in inputs if it.finite_min is not None and isfinite(it.finite_min)]
    told = [f"input {it.index} from {it.finite_min:.4g} to {it.finite_max:.4g}" for it in known[:_MOST_NAMES]]
    return f" ({', '.join(told)})" if told else ""


def _spread(origin: OriginReport, *, stayed: bool) -> str:
    if not origin.victims:
        return "; in the dump it reached no other rank" if stayed else ""
    count = len(origin.victims)
    through = origin.path[1:][:_MOST_NAMES]
    others = "1 other rank" if count == 1 else f"{count} other ranks"
    return f"; it reached {others}" + (f" through {', '.join(through)}" if through else "")
