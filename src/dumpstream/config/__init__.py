"""What to dump: ``acl.json`` read, built, checked against CANN's rules, and explained.

Reading files and looking at the disk blocks: call `load_config`, `check_file` and `check_bytes` from a worker
thread.
"""

from dumpstream.config.check import (
    Check,
    LoadedConfig,
    check_bytes,
    check_config,
    check_file,
    load_config,
    parse_config,
)
from dumpstream.config.explanation import Explanation, explain
from dumpstream.config.locations import Candidate, Landing, landings, switched_on_by
from dumpstream.config.matcher import Match, Matcher, Operator, read_operators
from dumpstream.config.model import (
    AclConfig,
    Blacklisted,
    DumpSettings,
    Mode,
    NameRange,
    Selection,
    json_schema,
)
from dumpstream.config.problem import Origin, Problem, Rule
from dumpstream.config.rules import RULES
from dumpstream.config.steps import BadStep, Steps, parse_steps

__all__ = [
    "RULES",
    "AclConfig",
    "BadStep",
    "Blacklisted",
    "Candidate",
    "Check",
    "DumpSettings",
    "Explanation",
    "Landing",
    "LoadedConfig",
    "Match",
    "Matcher",
    "Mode",
    "NameRange",
    "Operator",
    "Origin",
    "Problem",
    "Rule",
    "Selection",
    "Steps",
    "check_bytes",
    "check_config",
    "check_file",
    "explain",
    "json_schema",
    "landings",
    "load_config",
    "parse_config",
    "parse_steps",
    "read_operators",
    "switched_on_by",
]
