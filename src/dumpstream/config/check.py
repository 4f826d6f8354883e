"""Checks: every problem of a configuration at once."""

import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple, get_args

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from dumpstream._errors import ConfigError
from dumpstream.config.document import Unreadable, parse, read_bytes
from dumpstream.config.model import UNCHECKED, AclConfig, Statistic
from dumpstream.config.problem import Finding, Location, Problem, Rule, Subject
from dumpstream.config.rules import BY_ID, RULES

_TYPE_RULES: Final = {
    "model_type": "type.object",
    "string_type": "type.string",
    "tuple_type": "type.array",
}

#: Replaces a wrong item in a list of strings; also valid in that of statistics, which accepts few strings.
_ANY_STRING: Final = get_args(Statistic)[0]


@dataclass(frozen=True, slots=True)
class Check:
    """The result of checking a file."""

    config: AclConfig | None  #: None if the file, or a type in it, is wrong
    problems: tuple[Problem, ...]  #: errors first

    @property
    def errors(self) -> tuple[Problem, ...]:
        """The problems for which CANN refuses the file; with *strict*, also those of the documents."""
        return tuple(problem for problem in self.problems if problem.is_error)

    @property
    def warnings(self) -> tuple[Problem, ...]:
        """The other problems."""
        return tuple(problem for problem in self.problems if not problem.is_error)


class LoadedConfig(NamedTuple):
    """A configuration that CANN accepts, and the bytes that it was read from."""

    config: AclConfig
    content: bytes


#: The rules about configurations that CANN accepts, and by which nothing is dumped in some release.
_EMPTY = {"nothing.configured", "nothing.selected", "overflow.list", "watch.list"}


def check_file(
    path: str | os.PathLike[str], *, strict: bool = False, environment: Mapping[str, str] = os.environ
) -> Check:
    """Check the file *path* as ``aclmdlSetDump`` would in this process.

    *strict* makes errors of what only the documents, or only some releases, refuse. *environment* has the
    variables of the process that will dump.
    """
    data = read_bytes(path)
    if isinstance(data, Unreadable):
        return _unreadable(data)
    return check_bytes(data, strict=strict, environment=environment)


def load_config(path: str | os.PathLike[str]) -> LoadedConfig:
    """Return the configuration in the file *path*, if CANN accepts it from this process.

    Raises:
        ConfigError: CANN would refuse it; the error has all reasons.
    """
    data = read_bytes(path)
    check = _unreadable(data) if isinstance(data, Unreadable) else check_bytes(data)
    if isinstance(data, Unreadable) or check.config is None or check.errors:
        raise ConfigError(Path(path), check.errors)
    return LoadedConfig(check.config, data)


def find_emptiness(data: bytes) -> tuple[Problem, ...]:
    """Return the problems of a configuration that CANN accepts, and by which nothing is dumped."""
    return tuple(problem for problem in check_bytes(data).warnings if problem.rule in _EMPTY)


def check_bytes(data: bytes, *, strict: bool = False, environment: Mapping[str, str] = os.environ) -> Check:
    """Check the content of a file, as `check_file` does."""
    document = parse(data)
    if isinstance(document, Unreadable):
        return _unreadable(document)
    config, wrong = _typed(document.root)
    problems = [BY_ID["file.repeated_key"].broken_at(Finding(location)) for location in document.repeated]
    problems += [BY_ID[name].broken_at(finding) for name, finding in wrong]
    # What follows from a wrong value is not a second problem.
    hidden = {finding.location for _, finding in wrong}
    problems += [
        rule.broken_at(finding, strict=strict)
        for rule, finding in _findings(Subject(config, environment))
        if not any(finding.location[:length] in hidden for length in range(len(finding.location) + 1))
    ]
    return Check(None if wrong else config, _sorted(problems))


def parse_config(data: bytes) -> AclConfig | Problem:
    """Return the configuration in *data*, even if it breaks rules, or why *data* does not hold one.

    Reads only *data*, which may come from an untrusted process.
    """
    document = parse(data)
    if isinstance(document, Unreadable):
        return BY_ID[document.rule].broken_at(document.finding)
    config, wrong = _typed(document.root)
    if not wrong:
        return config
    rule, finding = wrong[0]
    return BY_ID[rule].broken_at(finding)


def check_config(
    config: AclConfig,
    *,
    strict: bool = False,
    environment: Mapping[str, str] = os.environ,
    disk: bool = True,
) -> tuple[Problem, ...]:
    """Return the problems of *config*; without *disk*, only those that are found without the disk."""
    found = _findings(Subject(config, environment), disk=disk)
    return _sorted(rule.broken_at(finding, strict=strict) for rule, finding in found)


def _findings(subject: Subject, *, disk: bool = True) -> Iterator[tuple[Rule, Finding]]:
    for rule in RULES:
        if rule.find is not None and (disk or not rule.on_disk):
            for finding in rule.find(subject):
                yield rule, finding


def _typed(root: Any) -> tuple[AclConfig, list[tuple[str, Finding]]]:
    """Return the configuration without its wrong values, and the rules that they break. Changes *root*."""
    try:
        return AclConfig.model_validate(root, context=UNCHECKED), []
    except ValidationError as exc:
        errors = exc.errors(include_url=False)
    if not isinstance(root, dict):
        root = {}
    else:
        for error in errors:
            _remove(root, error["loc"], {} if error["type"] == "model_type" else _ANY_STRING)
    return AclConfig.model_validate(root, context=UNCHECKED), [_broken(error) for error in errors]


def _broken(error: ErrorDetails) -> tuple[str, Finding]:
    location, value = error["loc"], error["input"]
    if error["type"] != "literal_error":
        return _TYPE_RULES[error["type"]], Finding(location)
    if not isinstance(value, str):
        return "type.string", Finding(location)
    words = {"value": repr(value), "choices": error["ctx"]["expected"]}
    return "value.choice" if value else "value.empty", Finding(location, words)


def _remove(root: Any, location: Location, neutral: object) -> None:
    """Remove the key at *location*, or replace the item there by *neutral*, so that no index changes."""
    *way, last = location
    for key in way:
        root = root[key]
    if isinstance(root, dict):
        del root[last]
    else:
        root[last] = neutral


def _unreadable(reason: Unreadable) -> Check:
    return Check(None, (BY_ID[reason.rule].broken_at(reason.finding),))


def _sorted(problems: Iterable[Problem]) -> tuple[Problem, ...]:
    return tuple(sorted(problems, key=lambda problem: not problem.is_error))
