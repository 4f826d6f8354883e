"""Run a training job on the simulated runtime.

Behaves like a program on an NPU: initialises ACL, configures a dump, loads its models, runs steps, finalises.
It captures nothing by itself; put it behind `dumpstream capture --out DIR --`. Without a capture the runtime
writes what it dumps to its own disk, as CANN does. Ctrl-C ends the job when the files under way are dumped.

Examples:
  dumpstream capture --out run1 -- dumpstream simulate --ranks 4     four processes, captured from outside
  dumpstream simulate --workload demo --steps 20 --rate 50M          a longer run at 50 MiB/s
  dumpstream simulate --steps 10 --crash-at 3                        one that is killed
  dumpstream simulate --fault nan=3@1 --fault truncated=0.01         with NaNs, and files that are cut off
"""

from argparse import ArgumentParser
from pathlib import Path

from dumpstream.cli._arguments import size


def add_arguments(parser: ArgumentParser) -> None:
    add = parser.add_argument
    add("--ranks", type=int, metavar="N", help="fork N processes, each with a rank and a device of its own")
    add(
        "--workload",
        default="small",
        metavar="WORKLOAD",
        help="a preset, a JSON file, or key=value,... (default: small)",
    )
    add("--steps", type=int, metavar="N", help="steps to run (default: the workload's)")
    add("--rate", type=size, metavar="SIZE", help="bytes dumped per second (default: the workload's)")
    add("--seed", type=int, metavar="N", help="the seed of names and bytes; each rank adds its number")
    add(
        "--fault",
        action="append",
        default=[],
        metavar="NAME=SELECTOR",
        help="such as nan=3@1; may be repeated",
    )
    add(
        "--crash-at",
        type=int,
        metavar="STEP",
        help="die in this step, counted from 0; of several ranks the last",
    )
    add("--crash-by", choices=("kill", "abort"), default="kill", help="SIGKILL, or abort() (default: kill)")
    add = parser.add_mutually_exclusive_group().add_argument
    add("--config", type=Path, metavar="FILE", help="the dump configuration (default: the workload's)")
    add("--no-dump", action="store_true", help="do not configure a dump; leave that to the capture")
