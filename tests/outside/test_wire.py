from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dumpstream.outside.wire import MAX_MESSAGE_BYTES, Hello, decode, encode, local_size_in, parse_hello

_WORD = st.binary(max_size=40).map(lambda word: word.replace(b"\0", b""))
_HELLO = st.lists(_WORD, max_size=20).map(lambda words: b"\0".join([b"hello", *words, b""]))


def hello(*fields: bytes) -> Hello:
    return parse_hello(decode(b"\0".join([b"hello", *fields, b""])))


def test_a_message_comes_back_as_it_was_sent() -> None:
    packet = encode("ring", [("size", 4096), ("config", "/tmp/acl \udcff.json"), ("config", "b")])

    message = decode(packet)

    assert message.kind == "ring"
    assert message.number("size") == 4096
    assert message.text("config") == "/tmp/acl \udcff.json"
    assert list(message.fields["config"]) == [b"/tmp/acl \xff.json", b"b"]


def test_a_nul_in_a_value_begins_no_field_of_its_own() -> None:
    message = decode(encode("refused", [("reason", "a\0config=/etc/passwd")]))

    assert message.fields.keys() == {"reason"}


def test_the_largest_message_is_read_and_no_larger_one() -> None:
    fits = b"hello\0argv=" + bytes([65]) * (MAX_MESSAGE_BYTES - 12) + b"\0"

    assert len(decode(fits).fields["argv"][0]) == MAX_MESSAGE_BYTES - 12
    with pytest.raises(ValueError, match="not a message"):
        decode(b"A" + fits)


@pytest.mark.parametrize("packet", [b"", b"\0", b"hello", b"\0\0", b"he llo\0", b"hello\0x", b"\xff\0"])
def test_what_is_no_message_is_refused(packet: bytes) -> None:
    with pytest.raises(ValueError, match="message"):
        decode(packet)


@settings(deadline=None, max_examples=300)
@given(st.binary(max_size=400) | _HELLO)
def test_any_bytes_are_a_message_or_refused(packet: bytes) -> None:
    try:
        message = decode(packet)
    except ValueError:
        return

    said = parse_hello(message)
    numbers = (said.rank, said.device, said.local_size)
    assert all(number is None or 0 <= number < 1 << 31 for number in numbers)
    assert all("\0" not in word for word in said.command)


@pytest.mark.parametrize(
    ("fields", "rank", "device"),
    [
        ([b"env.RANK=3", b"env.LOCAL_RANK=1"], 3, 1),
        ([b"env.RANK_ID=5", b"env.DEVICE_ID=2", b"env.LOCAL_RANK=1"], 5, 2),
        ([b"env.MS_NODE_ID=2"], 2, None),
        ([b"env.OMPI_COMM_WORLD_RANK=7"], 7, None),
        ([b"env.LOCAL_RANK=4"], 4, 4),
        ([b"env.RANK=", b"env.RANK_ID=6"], 6, None),
        ([], None, None),
    ],
)
def test_rank_and_device_come_from_the_first_variable_that_has_one(
    fields: list[bytes], rank: int | None, device: int | None
) -> None:
    said = hello(*fields)

    assert (said.rank, said.device) == (rank, device)


@pytest.mark.parametrize("number", [b"-1", b"1.5", b"0x1", b"2147483648", b"9" * 500, b" 1", b"\xb2"])
def test_a_number_that_is_none_is_left_out(number: bytes) -> None:
    assert hello(b"env.RANK=" + number).rank is None


@pytest.mark.parametrize(
    ("environment", "size"),
    [
        ({}, None),
        ({"LOCAL_WORLD_SIZE": "8"}, 8),
        ({"OMPI_COMM_WORLD_LOCAL_SIZE": "4"}, 4),
        ({"LOCAL_WORLD_SIZE": "0", "OMPI_COMM_WORLD_LOCAL_SIZE": "2"}, 2),
        ({"LOCAL_WORLD_SIZE": "many"}, None),
    ],
)
def test_a_launcher_that_starts_the_collector_says_how_many_processes_come(
    environment: dict[str, str], size: int | None
) -> None:
    assert local_size_in(environment) == size


def test_the_launchers_count_of_processes_is_known_unless_it_is_nought() -> None:
    fields = [b"env.LOCAL_WORLD_SIZE=8", b"env.OMPI_COMM_WORLD_LOCAL_SIZE=2", b"env.LOCAL_WORLD_SIZE=0"]

    assert [hello(field).local_size for field in fields] == [8, 2, None]


def test_a_packet_of_very_many_fields_has_few_keys() -> None:
    words = [b"version=1", *(b"%d=" % number for number in range(5000)), b"env.RANK=1"]

    message = decode(b"\0".join([b"hello", *words, b""]))

    assert message.number("version") == 1
    assert len(message.fields) == 64
