"""Rules that say how the parts of a tensor, on several ranks, make the whole."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from dumpstream._errors import DumpstreamError
from dumpstream.comparison.sidetensor import Identity

_EXAMPLE = '[{"match": "*qkv*", "io": "output", "split": {"tp": 1}}, {"match": "*", "sum": ["tp"]}]'
_KEYS = {"match", "io", "index", "split", "sum", "replicated"}
_IOS = {"input", "output"}


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardRule:
    """How the tensors of operators that match are spread over the groups of a mesh."""

    match: str = "*"  #: a pattern for the operator's name or type
    io: str | None = None  #: only inputs, or only outputs
    index: int | None = None
    split: Mapping[str, int] = field(default_factory=dict)  #: by group: the axis; a negative one from the end
    sum: frozenset[str] = frozenset()  #: groups whose ranks hold parts of a sum

    def matches(self, identity: Identity) -> bool:
        """Whether the rule is for the tensor *identity*."""
        return (
            any(fnmatchcase(name or "", self.match) for name in (identity.op_name, identity.op_type))
            and self.io in {None, identity.io}
            and self.index in {None, identity.index}
        )


#: For tensors that no rule is for: all ranks that have them hold the same.
REPLICATED = ShardRule()


@dataclass(frozen=True, slots=True)
class ShardRules:
    """Rules, of which the first that matches counts."""

    rules: Sequence[ShardRule] = ()

    def rule_for(self, identity: Identity) -> ShardRule:
        """Return the rule for a tensor."""
        return next((rule for rule in self.rules if rule.matches(identity)), REPLICATED)

    @property
    def groups(self) -> set[str]:
        """The groups that the rules name."""
        return {name for rule in self.rules for name in (*rule.split, *rule.sum)}


def read_shard_rules(path: Path) -> ShardRules:
    """Return the rules in the JSON file *path*.

    Raises:
        DumpstreamError: it cannot be read, or is not a list of rules.
    """
    try:
        return parse_shard_rules(json.loads(path.read_bytes()))
    except OSError as exc:
        raise DumpstreamError(f"{path} cannot be read: {exc.strerror}; give --shards a JSON file") from exc
    except (ValueError, RecursionError) as exc:
        raise DumpstreamError(f"{path} has no rules of shards: {exc}; write for example {_EXAMPLE}") from exc


def parse_shard_rules(document: Any) -> ShardRules:
    """Return the rules in a JSON *document*.

    Raises:
        ValueError: it is not a list of rules; the message says where.
    """
    if not isinstance(document, list):
        raise ValueError("it is not a list")  # noqa: TRY004 - the content of a file, not a mistake in a call
    return ShardRules([_parse_rule(number, it) for number, it in enumerate(document, 1)])


def _parse_rule(number: int, value: Any) -> ShardRule:
    if not isinstance(value, dict) or not value.keys() <= _KEYS:
        unknown = sorted(value.keys() - _KEYS) if isinstance(value, dict) else []
        problem = f"has the unknown key {unknown[0]}" if unknown else "is not an object"
        raise ValueError(f"rule {number} {problem}")
    split, sums = value.get("split", {}), value.get("sum", [])
    # Groups that are not named hold replicas; naming them is allowed, to say so.
    replicated = value.get("replicated", [])
    match, io, index = value.get("match", "*"), value.get("io"), value.get("index")
    wrong = [
        *(["match"] if not isinstance(match, str) else []),
        *(["io"] if io is not None and io not in _IOS else []),
        *(["index"] if index is not None and not _is_whole(index) else []),
        *(["split"] if not isinstance(split, dict) or not all(map(_is_whole, split.values())) else []),
        *(["sum"] if not _is_names(sums) else []),
        *(["replicated"] if not _is_names(replicated) else []),
    ]
    if wrong:
        raise ValueError(f"rule {number} has a wrong value of {', '.join(wrong)}")
    _refuse_twice(number, [*split, *sums, *replicated])
    return ShardRule(match=match, io=io, index=index, split=split, sum=frozenset(sums))


def _refuse_twice(number: int, groups: Iterable[str]) -> None:
    seen: set[str] = set()
    for group in groups:
        if group in seen:
            raise ValueError(f"rule {number} says two things of {group}")
        seen.add(group)


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_names(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(it, str) for it in value)
