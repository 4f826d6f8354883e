"""Client: the obstore object for a prefix, from the environment, profiles and the URL's options."""

import os
import re
from datetime import timedelta
from math import inf
from typing import Any
from urllib.parse import SplitResult, urlsplit

from dumpstream._errors import StoreError
from dumpstream.objectstore.awsprofile import read_aws_endpoint, read_aws_profile
from dumpstream.objectstore.azure import read_azure
from dumpstream.objectstore.huawei import read_obs, read_obs_credentials
from dumpstream.system.location import GIVEN, Prefix

#: A request is tried again for so many seconds before the store counts as away.
RETRY_S = 180.0
_MOST_RETRIES = 1000
_CONNECT_S = 5
#: What a host with its port may consist of.
_HOST = re.compile(r"[\w.-]+(?::\d*)?|\[[0-9a-f:.]+\](?::\d*)?", re.ASCII | re.IGNORECASE)
#: A host that is a number, and has no name to put a bucket in front of.
_ADDRESS = re.compile(r"\[|\d+(?:\.\d+)*(?::|$)", re.ASCII)
_NAMED_BUCKET = re.compile(r"[\w.-]+", re.ASCII)
#: What to check if a client cannot be made.
_REMEDIES = {
    "s3": "check its options and the AWS_... variables",
    "gs": "check its options, and the file that GOOGLE_APPLICATION_CREDENTIALS names",
    "az": "name the account (?account=NAME or AZURE_STORAGE_ACCOUNT_NAME), and check its key",
    "obs": "check its options and the OBS_... and AWS_... variables",
}


def make_client(prefix: Prefix, retry_s: float, answer_s: float | None = None) -> Any:
    """Return the obstore object for *prefix*; reads files, so not for the event loop.

    Args:
        prefix: where the objects are.
        retry_s: how long a request is tried again.
        answer_s: how long a single request may take; by default long enough for a large part.

    Raises:
        StoreError: it cannot be made, or the extra is not installed.
    """
    if prefix.scheme == GIVEN:
        return prefix.store
    try:
        from obstore import store  # noqa: PLC0415 - an optional extra
    except ImportError:
        raise StoreError(
            f"{prefix} needs obstore; install it with: pip install 'dumpstream[objectstore]'"
        ) from None
    options: dict[str, Any] = {
        "retry_config": {
            "max_retries": _MOST_RETRIES,
            "retry_timeout": timedelta(seconds=retry_s),
            "backoff": {
                "init_backoff": timedelta(milliseconds=100),
                "max_backoff": timedelta(seconds=15),
                "base": 2,
            },
        },
        "client_options": {
            "connect_timeout": timedelta(seconds=min(_CONNECT_S, answer_s or inf)),
            "timeout": timedelta(seconds=answer_s or max(30.0, min(retry_s, 120.0))),
        },
    }
    make = {"s3": _s3, "gs": _gs, "az": _az, "obs": _obs}[prefix.scheme]
    try:
        return make(store, prefix, options)
    except StoreError:
        raise
    except Exception as exc:  # noqa: BLE001 - obstore's own text may quote a secret
        remedy = _REMEDIES[prefix.scheme]
        raise StoreError(f"{prefix} cannot be used ({type(exc).__name__}); {remedy}") from None


def _s3(store: Any, prefix: Prefix, options: dict[str, Any]) -> Any:
    environment = os.environ
    settings = read_aws_profile(environment)
    if (endpoint := read_aws_endpoint(environment)) is not None:
        settings["endpoint"] = endpoint
    given = dict(prefix.options)
    addressing = given.pop("addressing", None)
    settings |= given
    # The store compares the checksum of every upload with what has arrived.
    settings.setdefault("checksum_algorithm", "sha256")
    if (endpoint := settings.get("endpoint")) is not None:
        settings["endpoint"] = _addressed(endpoint, prefix.bucket, virtual=addressing == "virtual")
        if not (settings.get("region") or environment.get("AWS_REGION")):
            settings["region"] = environment.get("AWS_DEFAULT_REGION") or "us-east-1"
    if addressing is not None:
        settings["virtual_hosted_style_request"] = str(addressing == "virtual").lower()
    _allow_http(endpoint, options)
    return store.S3Store(prefix.bucket, config=settings, **options)


def _obs(store: Any, prefix: Prefix, options: dict[str, Any]) -> Any:
    # Without the checksums of newer S3 clients, which OBS does not promise to take, and so without requests
    # that delete many objects. OBS compares the signed hash of every upload all the same.
    settings = read_obs(os.environ, dict(prefix.options)) | {"disable_bulk_delete": "true"}
    settings["endpoint"] = _addressed(settings["endpoint"], prefix.bucket, virtual=True)
    settings["virtual_hosted_style_request"] = "true"
    if (credentials := read_obs_credentials(os.environ)) is not None:
        options["credential_provider"] = lambda: {**credentials, "expires_at": None}
    _allow_http(settings["endpoint"], options)
    return store.S3Store(prefix.bucket, config=settings, **options)


def _gs(store: Any, prefix: Prefix, options: dict[str, Any]) -> Any:
    endpoint = dict(prefix.options).get("endpoint")
    settings = {"base_url": endpoint} if endpoint else {}
    _allow_http(endpoint or os.environ.get("GOOGLE_BASE_URL"), options)
    return store.GCSStore(prefix.bucket, config=settings, **options)


def _az(store: Any, prefix: Prefix, options: dict[str, Any]) -> Any:
    environment = os.environ
    settings = read_azure(environment)
    given = dict(prefix.options)
    if "account" in given:
        settings["account_name"] = given["account"]
    if "endpoint" in given:
        settings["endpoint"] = given["endpoint"]
    endpoint = environment.get("AZURE_STORAGE_ENDPOINT") or environment.get("AZURE_ENDPOINT")
    _allow_http(settings.get("endpoint") or endpoint, options)
    return store.AzureStore(prefix.bucket, config=settings, **options)


def _allow_http(endpoint: str | None, options: dict[str, Any]) -> None:
    """Allow requests without encryption in *options* if *endpoint* asks for that."""
    if endpoint:
        options["client_options"]["allow_http"] = endpoint.startswith("http://")


def _addressed(endpoint: str, bucket: str, *, virtual: bool) -> str:
    """Return *endpoint*, with a scheme, and for virtual addressing with the bucket in its host name.

    Raises:
        StoreError: it is no URL that a request can be sent to, which obstore takes until there is one.
    """
    split = urlsplit(endpoint if "://" in endpoint else f"https://{endpoint}")
    if split.scheme not in {"http", "https"} or not _HOST.fullmatch(split.netloc) or not _has_port(split):
        raise StoreError(
            "the endpoint of the store is no URL; write ?endpoint=https://HOST or ?endpoint=http://HOST:PORT"
        )
    virtual = virtual and not split.netloc.startswith(f"{bucket}.")
    if virtual and not _NAMED_BUCKET.fullmatch(bucket):
        raise StoreError("the bucket cannot be part of a host name; write one of letters, digits, . and -")
    if virtual and _ADDRESS.match(split.netloc):
        raise StoreError(
            "the endpoint is an address, but the bucket goes in front of a host's name; write the name, "
            "or for a store that wants the bucket in the path s3://bucket/prefix?endpoint=http://ADDRESS"
        )
    return f"{split.scheme}://{f'{bucket}.' if virtual else ''}{split.netloc}{split.path}"


def _has_port(split: SplitResult) -> bool:
    """Whether the port, if *split* has one, can be one."""
    try:
        return split.port != 0
    except ValueError:
        return False
