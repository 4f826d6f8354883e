"""Explanation: a configuration in words. What is dumped, where it goes, and what it costs."""

import os
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from dumpstream.config.conditions import remote_path
from dumpstream.config.locations import Landing, landing
from dumpstream.config.model import DumpSettings, Mode, Selection
from dumpstream.config.steps import parse_steps

_DIRECTIONS: Final = {"input": "inputs", "output": "outputs", "all": "inputs, outputs and workspaces"}
_LEVELS: Final = {"op": "of operators", "kernel": "of kernels", "all": "of operators and of kernels"}
_SCENES: Final = {
    "lite_exception": "inputs, outputs and workspaces, as aic_err_brief_dump",
    "aic_err_brief_dump": "inputs, outputs and workspaces",
    "aic_err_norm_dump": "inputs, outputs and workspaces with shapes, types, formats and attributes",
    "aic_err_detail_dump": "inputs, outputs, workspaces; memories, registers and call stack of the AI Core",
}


class Explanation(NamedTuple):
    """Sentences under three headings."""

    what: tuple[str, ...]
    where: tuple[str, ...]
    cost: tuple[str, ...]


def explain(settings: DumpSettings, environment: Mapping[str, str] = os.environ) -> Explanation:
    """Say what CANN does with *settings* in a process with the variables *environment*."""
    failing = landing(settings, environment)
    return Explanation(
        tuple(_what(settings, failing)), tuple(_where(settings, failing)), tuple(_cost(settings, failing))
    )


def _what(settings: DumpSettings, failing: Landing | None) -> Iterator[str]:
    modes = settings.modes
    if not modes and failing is None:
        yield "Nothing is dumped; a registered callback alone does not change that."
    if failing is not None:
        yield f"Operators that fail on the AI Core: {_SCENES[failing.switch.scene]}."
    if Mode.OVERFLOW in modes and settings.dump_list:
        yield "Nothing that overflows: beside dump_debug on, dump_list makes the graph engine dump nothing."
    elif Mode.OVERFLOW in modes:
        yield "Operators on the AI Core that overflow: inputs, outputs, and a record of the overflow."
    if Mode.WATCH in modes:
        yield from _what_is_watched(settings)
    if Mode.MODEL in modes:
        yield from map(_what_is_selected, settings.dump_list)
    if Mode.OP in modes:
        yield "Every single-operator call."
    if settings.is_data:
        yield f"Of each: {_DIRECTIONS[settings.dump_mode]}, in files {_LEVELS[settings.dump_level]}."
        if settings.dump_data == "stats":
            chosen = ", ".join(
                settings.dump_stats or ("Max", "Min", "Avg", "Nan", "Negative Inf", "Positive Inf")
            )
            yield f"Not the tensors but statistics text about them: {chosen}."
        yield f"In the steps {settings.dump_step}." if settings.dump_step else "In every step."


def _what_is_watched(settings: DumpSettings) -> Iterator[str]:
    if not settings.dump_list:
        yield "No operator is watched, as dump_list is empty."
        return
    item = settings.dump_list[-1]
    after = ", ".join(item.layer) if item.layer else "every operator"
    yield f"The outputs of {', '.join(item.watcher_nodes)}: after themselves and after {after}."
    yield "Nothing is dumped after a collective (type Hcom...), nor in graphs that are not static."


def _what_is_selected(item: Selection) -> str:
    whose = f"of model {item.model_name}" if item.model_name else "of all models"
    parts = [f"the operators {', '.join(item.layer)}"] if item.layer else []
    parts += [f"the operators from {ends.begin} to {ends.end}" for ends in item.opname_range]
    text = f"{' and '.join(parts) or 'all operators'} {whose}"
    if parts:
        text += ", with the data operators that feed them"
    without = [
        f"{', '.join(entry.pos)} of {kind} {entry.name}"
        for entries, kind in ((item.optype_blacklist, "type"), (item.opname_blacklist, "operator"))
        for entry in entries
        if entry.name and entry.pos
    ]
    return f"{text[0].upper()}{text[1:]}{', without ' if without else ''}{'; '.join(without)}."


def _where(settings: DumpSettings, failing: Landing | None) -> Iterator[str]:
    if settings.modes and Mode.EXCEPTION not in settings.modes:
        remote = remote_path(settings.dump_path)
        place = f"{settings.dump_path} (another machine)" if remote else settings.dump_path
        yield f"Through the callback if one is registered, else to {place}/TIME/DEVICE/."
        yield "No environment variable changes that."
    if failing is not None:
        yield f"Operators that fail: to disk, never through the callback, to {_landing_text(failing)}."
        if failing.switch.name != "dump_scene":
            ignored = f", so dump_scene {settings.dump_scene} is ignored" if settings.is_exception else ""
            yield (
                f"{failing.switch.name} switches {failing.switch.scene} on before a configuration is read"
                f"{ignored}."
            )


def _landing_text(failing: Landing) -> str:
    passed = [
        f"{candidate.name} ({candidate.rejected})"
        for candidate in failing.candidates[: failing.candidates.index(failing.chosen)]
    ]
    why = f"after {', '.join(passed)}" if passed else "which comes first"
    return f"{failing.directory}/DEVICE/, from {failing.chosen.name}, {why}"


def _cost(settings: DumpSettings, failing: Landing | None) -> Iterator[str]:
    if failing is not None:
        yield "Exception dumps: nothing until an operator fails."
    if Mode.OVERFLOW in settings.modes:
        yield "Every operator is checked; files come only from those that overflow."
    if Mode.WATCH in settings.modes and settings.dump_list:
        item = settings.dump_list[-1]
        watched = len(set(item.watcher_nodes))
        most = len({*item.layer, *item.watcher_nodes})
        times = f"up to {most} times" if item.layer else "after every operator"
        yield f"{watched} watched, each dumped {times} in a step of each model that has it."
    if settings.is_data:
        files = (2 if settings.dump_level == "all" else 1) * (2 if settings.dump_mode == "all" else 1)
        yield f"Up to {files} file{'s' if files > 1 else ''} for each operator in each step."
        steps = parse_steps(settings.dump_step)[0].count
        yield (
            "There is no end to the steps." if steps is None else f"{steps} step{'s' if steps != 1 else ''}."
        )
        if settings.dump_data == "stats":
            yield "A few hundred bytes for each tensor."
        else:
            yield "As many bytes as the tensors have; 8 GB to 2 TB for each card and step have been seen."
