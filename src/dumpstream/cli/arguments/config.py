"""Check, explain and write dump configurations (acl.json).

`check` finds everything that CANN or its documents object to. `explain` says in words what will be dumped,
where it goes and what it costs. `new` writes a configuration. `schema` prints a JSON Schema for editors.

Examples:
  dumpstream config check acl.json
  dumpstream config check acl.json --json | jq -r '.problems[] | .path'
  dumpstream config explain acl.json --ops graph.json
  dumpstream config new --mode model --dump-path /data/npu --level op --layer conv1 --out acl.json
  dumpstream config schema > acl.schema.json

exit codes: 0 the configuration is accepted, warnings or not; 1 it is refused; 2 wrong usage
"""

from argparse import ArgumentParser
from pathlib import Path

_MODES = ("model", "op", "exception", "overflow", "watch")


def add_arguments(parser: ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    check = actions.add_parser("check", help="find everything that is wrong with a configuration")
    check.add_argument("file", type=Path, metavar="FILE", help="the configuration")
    check.add_argument(
        "--strict", action="store_true", help="also refuse what only documents or some releases refuse"
    )
    check.add_argument("--json", action="store_true", help="print one JSON object")
    explain = actions.add_parser("explain", help="say what will be dumped, where, and what it costs")
    explain.add_argument("file", type=Path, metavar="FILE", help="the configuration")
    explain.add_argument(
        "--ops", type=Path, metavar="FILE", help="say for each of these operators whether it is dumped"
    )
    _add_new(actions.add_parser("new", help="write a configuration"))
    actions.add_parser("schema", help="print the JSON Schema of configurations")


def _add_new(new: ArgumentParser) -> None:
    add = new.add_argument
    add("--mode", choices=_MODES, required=True, help="the purpose of the configuration")
    add("--out", type=Path, metavar="FILE", required=True, help="the new file")
    add("--force", action="store_true", help="replace --out if it is there")
    add("--dump-path", metavar="DIR", help="an existing directory for data that no callback takes")
    add("--model", metavar="NAME", help="only operators of this model")
    add("--layer", action="append", metavar="OP", help="this operator; may be repeated")
    add("--watch", action="append", metavar="OP", help="watch the outputs of this operator; may be repeated")
    add("--range", nargs=2, action="append", metavar=("BEGIN", "END"), help="the operators from BEGIN to END")
    for kind in ("type", "name"):
        add(
            f"--skip-{kind}",
            nargs=2,
            action="append",
            metavar=(kind.upper(), "POS,..."),
            help=f"leave out these inputs and outputs of operators of this {kind}: input0,output1",
        )
    add("--dump-mode", metavar="WHICH", help="input, output or all")
    add("--level", metavar="LEVEL", help="op, kernel or all")
    add("--step", metavar="STEPS", help="iterations, such as 0|3-5|10")
    add("--data", metavar="KIND", help="tensor or stats")
    add("--stats", metavar="NAME,...", help="which statistics: Max,Min,...")
    add("--kernel-data", metavar="KIND,...", help="all, or some of printf,tensor,assert,timestamp")
    add("--scene", metavar="SCENE", help="the scene of exception dumps (default: aic_err_brief_dump)")
