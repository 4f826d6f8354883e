from __future__ import annotations

import pytest

from dumpstream._errors import StoreError
from dumpstream.objectstore.huawei import read_obs, read_obs_credentials

_NOWHERE = {"AWS_CONFIG_FILE": "/nonexistent", "AWS_SHARED_CREDENTIALS_FILE": "/nonexistent"}
_OF_REGION = "https://obs.cn-north-4.myhuaweicloud.com"


@pytest.mark.parametrize(
    ("options", "environment", "endpoint", "region"),
    [
        ({"region": "cn-north-4"}, {}, _OF_REGION, "cn-north-4"),
        ({"endpoint": "https://host"}, {}, "https://host", "us-east-1"),
        ({"endpoint": "https://host", "region": "r"}, {"AWS_REGION": "a"}, "https://host", "r"),
        ({"endpoint": "https://host"}, {"OBS_ENDPOINT": "https://other"}, "https://host", "us-east-1"),
        ({"region": "cn-north-4"}, {"OBS_ENDPOINT": "https://other"}, _OF_REGION, "cn-north-4"),
        ({}, {"OBS_ENDPOINT": _OF_REGION}, _OF_REGION, "cn-north-4"),
        ({}, {"OBS_ENDPOINT": _OF_REGION, "AWS_REGION": "us-west-2"}, _OF_REGION, "cn-north-4"),
        ({}, {"AWS_ENDPOINT_URL": "https://host", "AWS_REGION": "r"}, "https://host", "r"),
        ({}, {"AWS_REGION": "cn-north-4"}, _OF_REGION, "cn-north-4"),
    ],
)
def test_endpoint_comes_from_the_url_or_the_environment(
    options: dict[str, str], environment: dict[str, str], endpoint: str, region: str
) -> None:
    settings = read_obs(_NOWHERE | environment, options)

    assert (settings["endpoint"], settings["region"]) == (endpoint, region)


def test_missing_endpoint_is_an_error_with_the_remedy() -> None:
    with pytest.raises(StoreError, match=r"obs://bucket/prefix\?region=cn-north-4 or \?endpoint="):
        read_obs(_NOWHERE, {})


@pytest.mark.parametrize("region", ["evil.example/", "a.b", "A", "", "-a", "a_b", "a@b"])
def test_region_cannot_name_another_host(region: str) -> None:
    with pytest.raises(StoreError, match="is not a region of OBS"):
        read_obs(_NOWHERE, {"region": region})


def test_credentials_are_those_of_huaweis_tools_if_they_are_set() -> None:
    variables = {"OBS_ACCESS_KEY_ID": "a", "OBS_SECRET_ACCESS_KEY": "b", "AWS_SESSION_TOKEN": "c"}

    assert read_obs_credentials(variables) == {
        "access_key_id": "a",
        "secret_access_key": "b",
        "token": None,
    }
    assert read_obs_credentials({"AWS_ACCESS_KEY_ID": "a"}) is None
