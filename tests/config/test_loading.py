from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from dumpstream import ConfigError
from dumpstream.config import AclConfig, Problem, load_config, parse_config

if TYPE_CHECKING:
    from pathlib import Path


def test_accepted_file_gives_its_configuration_and_its_bytes(tmp_path: Path) -> None:
    path = tmp_path / "acl.json"
    content = b'{"dump": {"dump_path": "%s", "dump_op_switch": "on"}} ' % bytes(tmp_path)
    path.write_bytes(content)

    config, data = load_config(path)

    assert config.dump.dump_path == str(tmp_path)
    assert data == content


def test_warnings_refuse_nothing(tmp_path: Path) -> None:
    path = tmp_path / "acl.json"
    path.write_text('{"dump": {}, "unknown": 1}')

    assert load_config(path).config.dump.modes == ()


@pytest.mark.parametrize(
    ("content", "places"),
    [
        (b"{", ["$"]),
        (b'{"dump": []}', ["$.dump"]),
        (b'{"dump": {"dump_mode": "some", "dump_step": "x"}}', ["$.dump.dump_mode", "$.dump.dump_path"]),
    ],
)
def test_refused_file_gives_all_the_reasons_in_one_line(
    tmp_path: Path, content: bytes, places: list[str]
) -> None:
    path = tmp_path / "acl.json"
    path.write_bytes(content)

    with pytest.raises(ConfigError) as caught:
        load_config(path)

    found = {problem.path for problem in caught.value.problems}
    assert set(places) <= found
    assert all(problem.text in str(caught.value) for problem in caught.value.problems)
    assert "\n" not in str(caught.value)


def test_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="No such file"):
        load_config(tmp_path / "missing.json")


def test_bytes_that_the_caller_has_are_read_without_a_look_at_the_disk() -> None:
    content = b'{"dump": {"dump_path": "/nowhere/at/all", "dump_step": "not a step", "dump_debug": "on"}}'

    config = parse_config(content)

    assert isinstance(config, AclConfig)
    assert config.dump.modes == ("overflow",)


@pytest.mark.parametrize("content", [b"", b'{"dump": {}}', b"\xef\xbb\xbf{}"])
def test_bytes_that_ask_for_nothing_are_a_configuration(content: bytes) -> None:
    assert isinstance(parse_config(content), AclConfig)


@pytest.mark.parametrize("content", [b"{", b"\xff", b"[1]", b'{"dump": {"dump_mode": 7}}', b"[" * 5000])
def test_bytes_that_are_no_configuration_are_a_problem(content: bytes) -> None:
    assert isinstance(parse_config(content), Problem)
