"""Client: the obstore object for a prefix, from the environment, profiles and the URL's options."""

import os
from datetime import timedelta
from typing import Any
from urllib.parse import urlsplit

from dumpstream._errors import StoreError
from dumpstream.objectstore.awsprofile import read_aws_profile
from dumpstream.objectstore.azure import read_azure
from dumpstream.system.location import GIVEN, Prefix

#: A request is tried again for so many seconds before the store counts as away.
RETRY_S = 180.0
_MOST_RETRIES = 1000
_CONNECT_S = 5
#: What to check if a client cannot be made.
_REMEDIES = {
    "s3": "check its options and the AWS_... variables",
    "gs": "check its options, and the file that GOOGLE_APPLICATION_CREDENTIALS names",
    "az": "name the account (?account=NAME or AZURE_STORAGE_ACCOUNT_NAME), and check its key",
}


def make_client(prefix: Prefix, retry_s: float) -> Any:
    """Return the obstore object for *prefix*; reads files, so not for the event loop.

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
            "connect_timeout": timedelta(seconds=_CONNECT_S),
            "timeout": timedelta(seconds=max(30.0, min(retry_s, 120.0))),
        },
    }
    make = {"s3": _s3, "gs": _gs, "az": _az}[prefix.scheme]
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
    endpoint = environment.get("AWS_ENDPOINT_URL_S3") or environment.get("AWS_ENDPOINT_URL")
    if endpoint or environment.get("AWS_ENDPOINT"):
        settings["endpoint"] = endpoint or environment["AWS_ENDPOINT"]
    given = dict(prefix.options)
    addressing = given.pop("addressing", None)
    settings |= given
    # The store compares the checksum of every upload with what has arrived.
    settings.setdefault("checksum_algorithm", "sha256")
    if endpoint := settings.get("endpoint"):
        settings["endpoint"] = _addressed(endpoint, prefix.bucket, virtual=addressing == "virtual")
        if not (settings.get("region") or environment.get("AWS_REGION")):
            settings["region"] = environment.get("AWS_DEFAULT_REGION") or "us-east-1"
    if addressing is not None:
        settings["virtual_hosted_style_request"] = str(addressing == "virtual").lower()
    _allow_http(endpoint, options)
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
    """Return *endpoint*, for virtual addressing with the bucket in its host name."""
    split = urlsplit(endpoint)
    if not virtual or split.netloc.startswith(f"{bucket}."):
        return endpoint
    return f"{split.scheme}://{bucket}.{split.netloc}{split.path}"
