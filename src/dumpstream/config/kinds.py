"""Kinds of rules: what CANN answers if one is broken, and what one is about."""

from collections.abc import Callable
from functools import partial
from typing import Any, Final

from dumpstream.codes import AclCode
from dumpstream.config.conditions import always, items
from dumpstream.config.model import DumpSettings, Selection
from dumpstream.config.problem import Origin, Rule

SETTINGS_PATH: Final = "$.dump"
ITEM_PATH: Final = f"{SETTINGS_PATH}.dump_list[*]"

refused = partial(Rule, origin=Origin.BOTH, acl_error=AclCode.INVALID_DUMP_CONFIG)
item = partial(refused, message_class="EP0001")
choice = partial(refused, message_class="EP0002")
value = partial(refused, message_class="EP0003")
conflict = partial(refused, message_class="EP0005")
some_releases = partial(conflict, origin=Origin.RELEASES)
documented = partial(Rule, origin=Origin.DOCUMENTS)
trap = partial(Rule, refuses=False)


def setting(
    kind: Callable[..., Rule], name: str, key: str, test: Callable[[DumpSettings], object], **rest: Any
) -> Rule:
    """Return the rule *name* about *key* of the settings; it is broken if *test* is true of them."""
    return kind(id=name, path=f"{SETTINGS_PATH}.{key}", find=partial(always, key, test), **rest)


def listed(
    kind: Callable[..., Rule],
    name: str,
    key: str,
    test: Callable[[DumpSettings, Selection], object],
    **rest: Any,
) -> Rule:
    """Return the rule *name* about *key* of an item of ``dump_list``; broken if *test* is true."""
    return kind(id=name, path=f"{ITEM_PATH}.{key}", find=partial(items, key, test), **rest)
