"""Huawei OBS, which has the S3 API: where its buckets are, and the variables of Huawei's own tools."""

import re
from collections.abc import Mapping

from dumpstream._errors import StoreError
from dumpstream.objectstore.awsprofile import read_aws_endpoint, read_aws_profile

_REGION = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*", re.ASCII)
_REGION_OF_HOST = re.compile(rf"(?:^|/|\.)obs\.({_REGION.pattern})\.", re.ASCII)
#: By the field of obstore's credentials: the variable of Huawei's tools.
_CREDENTIALS = {
    "access_key_id": "OBS_ACCESS_KEY_ID",
    "secret_access_key": "OBS_SECRET_ACCESS_KEY",
    "token": "OBS_SECURITY_TOKEN",
}


def read_obs(environment: Mapping[str, str], options: Mapping[str, str]) -> dict[str, str]:
    """Return the settings for a bucket whose URL has *options*, as obstore names them.

    What the URL says comes before *environment*, and an endpoint before a region.

    Raises:
        StoreError: neither says where the bucket is.
    """
    settings = read_aws_profile(environment)
    of_environment = environment.get("OBS_ENDPOINT") or read_aws_endpoint(environment)
    if "endpoint" in options:
        settings["endpoint"] = options["endpoint"]
    elif "region" in options:
        settings["endpoint"] = _endpoint_of(options["region"])
    elif of_environment:
        settings["endpoint"] = of_environment
    region = environment.get("AWS_REGION") or environment.get("AWS_DEFAULT_REGION") or settings.get("region")
    if not settings.get("endpoint"):
        if not region:
            raise StoreError(
                "obs:// needs an endpoint: write obs://bucket/prefix?region=cn-north-4 or ?endpoint=https://HOST,"
                " or set OBS_ENDPOINT"
            )
        settings["endpoint"] = _endpoint_of(region)
    of_host = _REGION_OF_HOST.search(settings["endpoint"])
    settings["region"] = options.get("region") or (of_host and of_host[1]) or region or "us-east-1"
    return settings


def read_obs_credentials(environment: Mapping[str, str]) -> dict[str, str | None] | None:
    """Return the credentials of Huawei's own variables, as obstore names them; None if they are not set."""
    if not environment.get(_CREDENTIALS["access_key_id"]):
        return None
    return {field: environment.get(variable) or None for field, variable in _CREDENTIALS.items()}


def _endpoint_of(region: str) -> str:
    if _REGION.fullmatch(region) is None:
        raise StoreError(f"{region!r} is not a region of OBS; write for example ?region=cn-north-4")
    return f"https://obs.{region}.myhuaweicloud.com"
