from __future__ import annotations

import re
from pathlib import Path

import pytest

from dumpstream import AclError
from dumpstream.codes import AclCode, describe_code

_SIMULATED = Path(__file__).parent.parent / "src" / "dumpstream" / "native" / "sim" / "api" / "codes.h"


@pytest.mark.parametrize("code", AclCode)
def test_every_code_has_a_name_a_meaning_and_a_remedy(code: AclCode) -> None:
    text = describe_code(code)

    assert text.name == f"ACL_ERROR_{code.name}"
    assert text.meaning
    assert text.remedy


def test_no_number_stands_twice() -> None:
    assert len({int(code) for code in AclCode}) == len(AclCode.__members__)


def test_names_and_numbers_are_those_of_the_simulated_runtime() -> None:
    simulated = dict(re.findall(r"ACL_ERROR_(\w+) = (\d+)", _SIMULATED.read_text("utf-8")))

    assert simulated
    assert {name: AclCode[name] for name in simulated} == {
        name: int(code) for name, code in simulated.items()
    }


def test_error_has_everything_in_one_line() -> None:
    error = AclError("aclmdlInitDump", 100001)

    assert (error.function, error.code, error.name) == ("aclmdlInitDump", 100001, "ACL_ERROR_UNINITIALIZE")
    assert str(error) == (
        f"aclmdlInitDump returned 100001 (ACL_ERROR_UNINITIALIZE): {error.meaning}; {error.remedy}"
    )
    assert "call aclInit" in error.remedy
    assert "\n" not in str(error)


@pytest.mark.parametrize(
    ("number", "meaning"),
    [
        (123456, "the call is refused"),
        (245000, "a resource is missing"),
        (545000, "failed inside the runtime"),
        (-1, "not one of CANN's numbers"),
        (7, "not one of CANN's numbers"),
    ],
)
def test_number_that_is_not_in_the_table_is_still_explained(number: int, meaning: str) -> None:
    error = AclError("aclInit", number)

    assert error.name == "unknown"
    assert meaning in error.meaning
    assert str(number) in str(error)
    assert "CANN's list of error codes" in error.remedy
