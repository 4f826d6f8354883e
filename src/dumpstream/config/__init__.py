"""What to dump: ``acl.json`` read, built, checked against CANN's rules, and explained.

`load_config`, `check_file` and `check_bytes` read the disk: call them from a worker thread.
"""

from dumpstream.config.check import (
    Check as Check,
    LoadedConfig as LoadedConfig,
    find_emptiness as find_emptiness,
    check_bytes as check_bytes,
    check_config as check_config,
    check_file as check_file,
    load_config as load_config,
    parse_config as parse_config,
)
from dumpstream.config.explanation import Explanation as Explanation, explain as explain
from dumpstream.config.locations import (
    Candidate as Candidate,
    Landing as Landing,
    Switch as Switch,
    landing as landing,
    switched_on_by as switched_on_by,
)
from dumpstream.config.matcher import (
    Match as Match,
    Matcher as Matcher,
    Operator as Operator,
    read_operators as read_operators,
)
from dumpstream.config.model import (
    AclConfig as AclConfig,
    Blacklisted as Blacklisted,
    DumpSettings as DumpSettings,
    Mode as Mode,
    NameRange as NameRange,
    Selection as Selection,
    json_schema as json_schema,
)
from dumpstream.config.problem import Origin as Origin, Problem as Problem, Rule as Rule
from dumpstream.config.rules import RULES as RULES
from dumpstream.config.steps import BadStep as BadStep, Steps as Steps, parse_steps as parse_steps
