"""Client: the obstore object for a place, made from the environment, profiles and the URL's options."""

from __future__ import annotations

import os
from datetime import timedelta
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from dumpstream._errors import StoreError
from dumpstream.objectstore.prefix import GIVEN
from dumpstream.objectstore.profile import read_profile

if TYPE_CHECKING:
    from dumpstream.objectstore.prefix import Prefix

#: A request is tried again for so long before the store counts as away.
PATIENCE_S = 180.0
_MOST_RETRIES = 1000
_CONNECT_S = 5


def make_client(prefix: Prefix, patience_s: float) -> Any:
    """Return what obstore makes for *prefix*; reads files, so not for the event loop.

    Raises:
        StoreError: it cannot be made, or the extra is not installed.
    """
    if prefix.scheme == GIVEN:
        return prefix.store
    try:
        from obstore import store  # noqa: PLC0415 - only who uses it must have it
    except ImportError:
        raise StoreError(
            f"{prefix} needs obstore; install it with: pip install 'dumpstream[objectstore]'"
        ) from None
    options: dict[str, Any] = {
        "retry_config": {
            "max_retries": _MOST_RETRIES,
            "retry_timeout": timedelta(seconds=patience_s),
            "backoff": {
                "init_backoff": timedelta(milliseconds=100),
                "max_backoff": timedelta(seconds=15),
                "base": 2,
            },
        },
        "client_options": {
            "connect_timeout": timedelta(seconds=_CONNECT_S),
            "timeout": timedelta(seconds=max(30.0, min(patience_s, 120.0))),
        },
    }
    make = {"s3": _s3, "gs": _gs, "az": _az}[prefix.scheme]
    try:
        return make(store, prefix, options)
    except StoreError:
        raise
    except Exception as exc:  # noqa: BLE001 - whatever obstore says may quote a secret
        raise StoreError(f"{prefix} cannot be used ({type(exc).__name__}); check its options") from None


def _s3(store: Any, prefix: Prefix, options: dict[str, Any]) -> Any:
    environment = os.environ
    settings = read_profile(environment)
    endpoint = environment.get("AWS_ENDPOINT_URL_S3") or environment.get("AWS_ENDPOINT_URL")
    if endpoint or environment.get("AWS_ENDPOINT"):
        settings["endpoint"] = endpoint or environment["AWS_ENDPOINT"]
    given = dict(prefix.options)
    addressing = given.pop("addressing", None)
    settings |= given
    # Sent with every upload, and compared by the store with what arrived.
    settings.setdefault("checksum_algorithm", "sha256")
    if endpoint := settings.get("endpoint"):
        settings["endpoint"] = _addressed(endpoint, prefix.bucket, virtual=addressing == "virtual")
        options["client_options"]["allow_http"] = endpoint.startswith("http://")
        if not (settings.get("region") or environment.get("AWS_REGION")):
            settings["region"] = environment.get("AWS_DEFAULT_REGION") or "us-east-1"
    if addressing is not None:
        settings["virtual_hosted_style_request"] = str(addressing == "virtual").lower()
    return store.S3Store(prefix.bucket, config=settings, **options)


def _gs(store: Any, prefix: Prefix, options: dict[str, Any]) -> Any:
    return store.GCSStore(prefix.bucket, **options)


def _az(store: Any, prefix: Prefix, options: dict[str, Any]) -> Any:
    given = dict(prefix.options)
    settings = {"account_name": given["account"]} if "account" in given else {}
    if "endpoint" in given:
        settings["endpoint"] = given["endpoint"]
        options["client_options"]["allow_http"] = given["endpoint"].startswith("http://")
    return store.AzureStore(prefix.bucket, config=settings, **options)


def _addressed(endpoint: str, bucket: str, *, virtual: bool) -> str:
    """Return *endpoint* with the bucket in its host name, where it belongs for virtual addressing."""
    split = urlsplit(endpoint)
    if not virtual or split.netloc.startswith(f"{bucket}."):
        return endpoint
    return f"{split.scheme}://{bucket}.{split.netloc}{split.path}"
