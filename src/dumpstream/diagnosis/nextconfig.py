"""Next configuration: what to dump so that the next diagnosis knows more."""

from __future__ import annotations

from typing import Any

from dumpstream.config.check import check_config
from dumpstream.config.model import AclConfig
from dumpstream.diagnosis.dataflow.trace import UNKNOWN
from dumpstream.diagnosis.evidence import Evidence
from dumpstream.diagnosis.origins import Origin

_AROUND = 20  #: operators before the suspect
_STEPS = 2  #: steps before it
_DUMP_PATH = "/tmp/dump"  # noqa: S108 - a placeholder: the directory must exist where the model runs


def next_config(evidence: Evidence, origin: Origin) -> dict[str, Any] | None:
    """Return an ``acl.json`` that dumps the operators before *origin*, and the steps before it, completely.

    None if CANN would refuse it.
    """
    trace, executions = evidence.trace, evidence.executions
    number = origin.execution
    step, model = int(executions.step[number]), trace.texts["model"][int(executions.model[number])]
    settings: dict[str, Any] = {"dump_path": _DUMP_PATH, "dump_mode": "all"}
    if model is None:
        settings["dump_op_switch"] = "on"
    else:
        settings["dump_list"] = [{"model_name": model, **_layers(evidence, number)}]
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


def _layers(evidence: Evidence, execution: int) -> dict[str, list[str]]:
    """Return the operators of the same model and step up to *execution*.

    All operators are meant if tasks are missing: those that were not dumped have no names.
    """
    trace, executions = evidence.trace, evidence.executions
    same = (
        (executions.process == executions.process[execution])
        & (executions.step == executions.step[execution])
        & (executions.model == executions.model[execution])
    )
    numbers = [it for it in same.nonzero()[0].tolist() if it <= execution][-_AROUND - 1 :]
    tasks = sorted({int(executions.task[it]) for it in numbers})
    if tasks[-1] - tasks[0] != len(tasks) - 1 or evidence.executions.inputs.lengths[numbers].min() == 0:
        return {}
    names = [trace.texts["op_name"][int(executions.op_name[it])] for it in numbers]
    return {"layer": [*dict.fromkeys(name for name in names if name)]}
