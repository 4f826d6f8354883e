"""Files that are too large, too deep, or not JSON."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dumpstream.config import AclConfig, Check, check_bytes, check_file

if TYPE_CHECKING:
    from pathlib import Path

LIMIT = 10 << 20


def errors(checked: Check) -> list[tuple[str, int | None]]:
    return [(problem.rule, problem.acl_error) for problem in checked.errors]


def test_file_of_exactly_the_limit_is_read(tmp_path: Path) -> None:
    path = tmp_path / "acl.json"
    path.write_bytes(b"{}" + b" " * (LIMIT - 2))

    assert errors(check_file(path)) == []


def test_larger_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "acl.json"
    path.write_bytes(b"{}" + b" " * (LIMIT - 1))

    assert errors(check_file(path)) == [("file.size", 100003)]
    assert errors(check_bytes(path.read_bytes())) == [("file.size", 100003)]


def test_endless_file_is_refused_without_being_read_to_its_end() -> None:
    assert errors(check_file("/dev/zero")) == [("file.path", 100003)]


def test_pipe_is_refused_at_once(tmp_path: Path) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)

    assert errors(check_file(path)) == [("file.path", 100003)]


@pytest.mark.parametrize("name", ["missing.json", ".", "a\0b", "x" * 300])
def test_path_that_is_no_file_is_refused(tmp_path: Path, name: str) -> None:
    assert errors(check_file(os.path.join(tmp_path, name))) == [("file.path", 100003)]  # noqa: PTH118 - for the NUL


def test_link_to_a_file_is_followed(tmp_path: Path) -> None:
    (tmp_path / "real.json").write_text("{}")
    link = tmp_path / "acl.json"
    link.symlink_to("real.json")

    assert errors(check_file(link)) == []


@pytest.mark.parametrize(("opening", "closing"), [('{"a":', "}"), ("[", "]")])
def test_ten_levels_are_accepted_and_eleven_refused(opening: str, closing: str) -> None:
    inner, outer = '{"x":', "}"
    levels = 10 if opening == "[" else 9

    ten, eleven = (
        f"{inner}{opening * depth}1{closing * depth}{outer}".encode() for depth in (levels, levels + 1)
    )

    assert errors(check_bytes(ten)) == []
    assert errors(check_bytes(eleven)) == [("file.depth", 100006)]


@pytest.mark.parametrize("bracket", ["[", "{"])
def test_brackets_inside_strings_count(bracket: str) -> None:
    accepted = f'{{"x": "{bracket * 9}"}}'.encode()
    refused = f'{{"x": "{bracket * 11}"}}'.encode()

    assert errors(check_bytes(accepted)) == []
    assert errors(check_bytes(refused)) == [("file.depth", 100006)]


def test_closing_brackets_in_strings_cannot_hide_endless_nesting() -> None:
    text = b'{"}": ' * 5000 + b"1" + b"}" * 5000

    assert errors(check_bytes(text)) == [("file.depth", 100006)]


def test_hidden_nesting_that_python_can_read_is_refused_too() -> None:
    text = b'{"}": ' * 30 + b"1" + b"}" * 30

    assert errors(check_bytes(text)) == [("file.depth", 100006)]


@pytest.mark.parametrize(
    "text",
    [
        b"\xff\xfe{}",
        b'{"a": "\xc3"}',
        b'{"a": "\\ud800"}',
        b'{"\\udfff": 1}',
        b'{"a": NaN}',
        b'{"a": -Infinity}',
        b'{"a": 1e400}',
        b'{"a": ' + b"9" * 400 + b"}",
        b'{"a": ' + b"9" * 100_000 + b"}",
        b'{"a": 01}',
        b"{'a': 1}",
        b'{"a": 1,}',
        b'{"a": 1} // comment',
        b"{} {}",
        b"nothing",
        b" ",
        b"{}\0",
        '{"dump": {}}'.encode("utf-16"),
    ],
)
def test_what_is_no_json_is_refused(text: bytes) -> None:
    checked = check_bytes(text)

    assert errors(checked) == [("file.json", 100009)]
    assert checked.errors[0].message_class == "EP0004"
    assert checked.config is None


@pytest.mark.parametrize("text", [b"[]", b"1", b'"dump"', b"null"])
def test_what_is_no_object_is_refused(text: bytes) -> None:
    assert [(problem.rule, problem.path) for problem in check_bytes(text).errors] == [("type.object", "$")]


@pytest.mark.parametrize("value", [b"null", b"[]", b'"on"', b"1"])
def test_dump_that_is_no_object_is_refused(value: bytes) -> None:
    checked = check_bytes(b'{"dump": ' + value + b"}")

    assert [(problem.rule, problem.path) for problem in checked.errors] == [("type.object", "$.dump")]


def test_byte_order_mark_is_skipped() -> None:
    assert errors(check_bytes(b"\xef\xbb\xbf{}")) == []


def test_of_a_repeated_key_the_last_counts_and_a_warning_says_so() -> None:
    checked = check_bytes(b'{"dump": 1, "dump": {"dump_path": "x", "dump_path": "."}}')

    repeated = [problem for problem in checked.problems if problem.rule == "file.repeated_key"]
    assert [problem.path for problem in repeated] == ["$.dump", "$.dump.dump_path"]
    assert not any(problem.is_error for problem in repeated)
    assert checked.config is not None
    assert checked.config.dump.dump_path == "."


def test_large_whole_numbers_in_unknown_keys_are_kept() -> None:
    number = 10**300

    config = check_bytes(f'{{"x": {number}}}'.encode()).config

    assert config is not None
    assert config.as_dict() == {"x": number}


def test_a_file_full_of_brackets_gets_an_answer() -> None:
    text = b"[" + b"{}," * 500_000 + b"1]"

    assert errors(check_bytes(text)) == [("type.object", 100009)]


def test_a_hundred_thousand_wrong_items_are_each_told() -> None:
    text = b'{"dump": {"dump_path": ".", "dump_list": [{"layer": [' + b"1," * 100_000 + b"1]}]}}"

    assert len(check_bytes(text).errors) == 100_001


KEYS = [
    *AclConfig.model_fields,
    "dump_path",
    "dump_list",
    "dump_mode",
    "dump_scene",
    "dump_step",
    "dump_stats",
]
KEYS += [
    "model_name",
    "layer",
    "opname_range",
    "optype_blacklist",
    "watcher_nodes",
    "name",
    "pos",
    "begin",
    "x y",
]
SCALARS = (
    st.none() | st.booleans() | st.integers() | st.text(max_size=5) | st.sampled_from(["on", "watcher", "op"])
)
JSON = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=6),
)


@settings(deadline=None, max_examples=200)
@given(JSON, st.booleans())
def test_any_json_gets_an_answer(value: object, strict: bool) -> None:  # noqa: FBT001 - hypothesis gives it
    checked = check_bytes(json.dumps({"dump": value}).encode(), strict=strict, environment={})

    assert all(problem.path.startswith("$") and problem.text for problem in checked.problems)
    assert checked.errors or checked.config is not None


@settings(deadline=None, max_examples=200)
@given(st.binary(max_size=60))
def test_any_bytes_get_an_answer(data: bytes) -> None:
    checked = check_bytes(data)

    assert checked.errors or checked.config is not None
