from __future__ import annotations

import json
import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dumpstream import DumpFormatError
from dumpstream.format.overflowrecord import decode_overflow, kind_of

_MAGIC = 0x5A5A5A5A


def _older(**places: list[int]) -> bytes:
    record = bytearray(2048)
    for at, words in places.items():
        struct.pack_into(f"<{len(words)}Q", record, int(at.removeprefix("at_")), *words)
    return bytes(record)


def _newer(acc_type: int, words: list[int], *, valid: int = 1, data_len: int | None = None) -> bytes:
    size = 8 * len(words) if data_len is None else data_len
    head = struct.pack("<6I", _MAGIC, 1, valid, acc_type, 0, size)
    return (head + struct.pack(f"<{len(words)}Q", *words)).ljust(2048, b"\0")


def test_older_layout_has_each_unit_with_its_status() -> None:
    record = _older(
        at_0=[1, 2, 3, 4, 0xABC, 0xDEF],
        at_128=[11, 12, 13, 14, 15, 16],
        at_256=[21, 22, 23, 24, 2**64 - 1, 26],
        at_512=[7],
        at_768=[8],
        at_1024=[0x30, 31, 32],
    )

    decoded = decode_overflow(record)

    assert decoded == {
        "dha_atomic_add": {
            "model_id": 1,
            "stream_id": 2,
            "task_id": 3,
            "task_type": 4,
            "pc_start": "0xabc",
            "para_base": "0xdef",
            "status": 7,
        },
        "l2_atomic_add": {
            "model_id": 11,
            "stream_id": 12,
            "task_id": 13,
            "task_type": 14,
            "pc_start": "0xf",
            "para_base": "0x10",
            "status": 8,
        },
        "ai_core": {
            "model_id": 21,
            "stream_id": 22,
            "task_id": 23,
            "task_type": 24,
            "pc_start": "0xffffffffffffffff",
            "para_base": "0x1a",
            "kernel_code": "0x30",
            "block_idx": 31,
            "status": 32,
        },
    }


@pytest.mark.parametrize(("acc_type", "name"), [(0, "AIC"), (1, "AIV")])
def test_newer_layout_of_a_core(acc_type: int, name: str) -> None:
    decoded = decode_overflow(_newer(acc_type, list(range(1, 12))))

    assert decoded == {
        "magic": "0x5a5a5a5a",
        "version": 1,
        "entry": {
            "valid": True,
            "accelerator": name,
            "reserved": 0,
            "model_id": 1,
            "stream_id": 2,
            "task_id": 3,
            "task_type": 4,
            "context_id": 5,
            "thread_id": 6,
            "pc_start": "0x7",
            "para_base": "0x8",
            "core_id": 9,
            "block_id": 10,
            "status": 11,
        },
    }


def test_newer_layout_of_an_aicpu() -> None:
    entry = decode_overflow(_newer(2, list(range(1, 9))))["entry"]

    assert entry["accelerator"] == "AICPU"
    assert (entry["cpu_id"], entry["thread_id"], entry["status"]) == (6, 7, 8)


def test_newer_layout_of_an_sdma() -> None:
    entry = decode_overflow(_newer(3, list(range(1, 11))))["entry"]

    assert entry["accelerator"] == "SDMA"
    assert (entry["src_addr"], entry["dst_addr"], entry["channel_id"]) == ("0x7", "0x8", 9)
    assert entry["status"] == 10


def test_unknown_accelerator_gives_its_words() -> None:
    entry = decode_overflow(_newer(9, [1, 2], valid=0))["entry"]

    assert entry == {"valid": False, "accelerator": "unknown_9", "reserved": 0, "words": ["0x1", "0x2"]}


def test_entry_that_is_not_valid_may_be_empty() -> None:
    entry = decode_overflow(_newer(0, [], valid=0))["entry"]

    assert entry == {"valid": False, "accelerator": "AIC", "reserved": 0}


@pytest.mark.parametrize("data_len", [0, 87, 2048, 2**32 - 1])
def test_entry_whose_length_lies_is_refused(data_len: int) -> None:
    with pytest.raises(DumpFormatError, match="overflow"):
        decode_overflow(_newer(0, list(range(11)), data_len=data_len))


@pytest.mark.parametrize("layout", [_older(), _newer(0, list(range(11)))], ids=["older", "newer"])
def test_record_cut_anywhere_before_its_last_field_is_refused(layout: bytes) -> None:
    needed = 1024 + 24 if layout[:4] == bytes(4) else 24 + 88

    for size in range(needed):
        with pytest.raises(DumpFormatError) as caught:
            decode_overflow(layout[:size])
        assert caught.value.position <= size


@given(st.booleans(), st.binary(max_size=2100))
@settings(max_examples=300, deadline=None)
def test_any_bytes_are_decoded_to_json_or_refused(magic: bool, data: bytes) -> None:  # noqa: FBT001 - drawn
    record = _MAGIC.to_bytes(4, "little") + data if magic else data

    try:
        decoded = decode_overflow(record)
    except DumpFormatError:
        return

    assert json.loads(json.dumps(decoded)) == decoded


def test_kinds_of_an_exception_dump_have_names() -> None:
    assert [kind_of(number) for number in (2, 7, 101, 999)] == ["input", "tiling_data", "args", "unknown_999"]
