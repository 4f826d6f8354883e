"""Next configuration: what to dump so that the next diagnosis knows more."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from typing import Any

from dumpstream._errors import DumpstreamError
from dumpstream.config.check import check_config
from dumpstream.config.model import AclConfig
from dumpstream.diagnosis.dataflow.trace import UNKNOWN
from dumpstream.diagnosis.evidence import Evidence
from dumpstream.diagnosis.origins import Origin
from dumpstream.diagnosis.subject import Subject
from dumpstream.format.opname import as_in_file_names

_AROUND = 20  #: operators before the suspect
_STEPS = 2  #: steps before it
_ALTERED = "_"  #: what the runtime writes for characters that a name of a file may not have
_DUMP_PATH = "/tmp/dump"  # noqa: S108 - a placeholder: the directory must exist where the model runs


def next_config(evidence: Evidence, origin: Origin, subject: Subject | None) -> dict[str, Any] | None:
    """Return an ``acl.json`` that dumps the operators before *origin*, and the steps before it, completely.

    *subject* has the bytes of the run, if they may be read. None if CANN would refuse the configuration.
    """
    trace, executions = evidence.trace, evidence.executions
    number = origin.execution
    step, model = int(executions.step[number]), trace.texts["model"][int(executions.model[number])]
    settings: dict[str, Any] = {"dump_path": _DUMP_PATH, "dump_mode": "all"}
    if model is None:
        settings["dump_op_switch"] = "on"
    else:
        settings["dump_list"] = [{"model_name": model, **_layers(evidence, number, subject)}]
        settings["dump_level"] = "op"
    if step != UNKNOWN and model is not None:
        first = max(0, step - _STEPS)
        settings["dump_step"] = str(step) if first == step else f"{first}-{step}"
    document = {"dump": settings}
    try:
        config = AclConfig.model_validate(document)
    except ValueError:
        return None
    refused = any(problem.is_error for problem in check_config(config, disk=False))
    return None if refused else document


def _layers(evidence: Evidence, execution: int, subject: Subject | None) -> dict[str, list[str]]:
    """Return the operators of the same model and step up to *execution*.

    All operators are meant if tasks are missing: those that were not dumped have no names. Likewise if a name
    is not certain, because CANN dumps nothing for one that it does not know.
    """
    executions = evidence.executions
    same = (
        (executions.process == executions.process[execution])
        & (executions.step == executions.step[execution])
        & (executions.model == executions.model[execution])
    )
    numbers = [it for it in same.nonzero()[0].tolist() if it <= execution][-_AROUND - 1 :]
    tasks = sorted({int(executions.task[it]) for it in numbers})
    if tasks[-1] - tasks[0] != len(tasks) - 1 or evidence.executions.inputs.lengths[numbers].min() == 0:
        return {}
    names = _names_in_graph(evidence, numbers, subject)
    return {} if None in names else {"layer": [name for name in names if name is not None]}


def _names_in_graph(evidence: Evidence, numbers: Iterable[int], subject: Subject | None) -> list[str | None]:
    """Return the different names of executions as their graph has them; None for one that is not known.

    In the name of a file some characters are an underscore; the file itself has them as they were.
    """
    trace, executions = evidence.trace, evidence.executions
    files: dict[str, str | None] = {}
    for it in numbers:
        name = trace.texts["op_name"][int(executions.op_name[it])]
        row = (*executions.outputs.of(it), *executions.inputs.of(it))[0]
        files.setdefault(name or "", trace.text("file", row))
    found: dict[str, str | None] = {it: it if it and _ALTERED not in it else None for it in files}
    wanted = {file: it for it, file in files.items() if file is not None and found[it] is None}
    for dump, file in subject.open_files(wanted) if subject is not None else ():
        with suppress(DumpstreamError, OSError), dump:
            if as_in_file_names(dump.op_name) == wanted[file]:
                found[wanted[file]] = dump.op_name
    return [*found.values()]
