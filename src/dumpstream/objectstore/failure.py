"""Failure: what obstore raises, turned into one line without secrets."""

import re
from collections.abc import Iterator
from contextlib import contextmanager

from dumpstream._errors import ObjectMissingError, StoreError
from dumpstream.system.location import Prefix

_STATUS = re.compile(r"status code: (\d{3})")
_BEYOND = re.compile(
    r"status code: 416|invalid range|range was invalid|wanted range starting at|range started at",
    re.IGNORECASE,
)
_CODE = re.compile(r"<Code>(\w{1,64})</Code>")
#: Where a request went: without the path and the query, which may have a signature.
_ENDPOINT = re.compile(r"performing [A-Z]+ (https?://[^/?#\s]+)")
#: Why there is no answer, by what obstore says about it.
_SILENCES = {
    "dns error": "there is no such host",
    "Connection refused": "connection refused",
    "ConnectionReset": "connection reset",
    "certificate": "its certificate is not trusted",
    "unreachable": "no route to it",
    "Timeout": "timed out",
    "TimedOut": "timed out",
}
#: Where credentials are asked for if they are not given; only machines of the cloud have an answer.
_METADATA = re.compile(r"https?://(169\.254\.|metadata)")
_CREDENTIALS = {
    "s3": "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE",
    "gs": "GOOGLE_APPLICATION_CREDENTIALS",
    "az": "AZURE_STORAGE_KEY or AZURE_STORAGE_CONNECTION_STRING",
    "obs": "OBS_ACCESS_KEY_ID and OBS_SECRET_ACCESS_KEY, or those of AWS",
}
_NO_BUCKET = {"NoSuchBucket": "bucket", "ContainerNotFound": "container"}
_TRY_LATER = {408, 429}
_SERVER_ERRORS = 500
_NOT_IMPLEMENTED = 501
_REFUSED = {401, 403}
_NOT_FOUND = 404

_REMEDIES = {
    "InvalidAccessKeyId": "the access key is unknown; check AWS_ACCESS_KEY_ID (OBS_...) or the profile",
    "SignatureDoesNotMatch": "the secret key is wrong; check AWS_SECRET_ACCESS_KEY (OBS_...) or the profile",
    "ExpiredToken": "the session has expired; get new credentials",
    "AuthenticationFailed": "the account key or signature is wrong; check the AZURE_STORAGE_... variables",
    "AuthenticationRequired": "the token is wrong or has expired; check GOOGLE_APPLICATION_CREDENTIALS",
    "RequestTimeTooSkewed": "this machine's clock is wrong; set it",
}
#: What to do about a store that does not answer.
CHECK_NETWORK = "check the network and the endpoint"
_NO_ACCESS = "check the credentials in the environment or the profile, and what they are allowed to do"


@contextmanager
def explained(what: str, prefix: Prefix, key: str) -> Iterator[None]:
    """Turn whatever keeps the block from doing *what* with *key* below *prefix* into a `StoreError`."""
    try:
        yield
    except StoreError:
        raise
    except Exception as exc:  # noqa: BLE001 - obstore has many, and its pieces may raise anything
        raise explain_failure(exc, what, prefix, key) from None


def is_beyond_the_end(exc: BaseException) -> bool:
    """Whether *exc* says that an object ends before the range that was asked for."""
    return _BEYOND.search(str(exc)) is not None


def is_unsupported(exc: BaseException) -> bool:
    """Whether *exc* says that the store, or obstore, cannot do what was asked for."""
    if isinstance(exc, NotImplementedError) or type(exc).__name__ == "NotSupportedError":
        return True
    return _status(str(exc)) == _NOT_IMPLEMENTED


def is_unanswered(exc: BaseException) -> bool:
    """Whether *exc* says that the store has not answered at all."""
    return _status(str(exc)) is None and explain_failure(exc, "reach", Prefix("", ""), "").away


def explain_failure(exc: BaseException, what: str, prefix: Prefix, key: str) -> StoreError:
    """Return the error to report for *exc*, which kept a store from doing *what* with *key* below *prefix*.

    It does not repeat obstore's own text, which quotes requests, and with Azure their signatures.
    """
    text, where = str(exc), prefix / key
    status, endpoint = _status(text), _ENDPOINT.search(text)
    if endpoint is not None and _METADATA.match(endpoint[1]):
        remedy = f"set {_CREDENTIALS.get(prefix.scheme, 'them')}"
        return StoreError(f"{prefix} cannot be used without credentials; {remedy}", away=status is None)
    if (refusal := _explain_refusal(exc, text, status)) is not None:
        return StoreError(f"cannot {what} {where}: {refusal}")
    if isinstance(exc, FileNotFoundError) or type(exc).__name__ == "NotFoundError" or status == _NOT_FOUND:
        return ObjectMissingError(f"{where} is not there")
    if status is not None:
        return StoreError(f"cannot {what} {where}: the store answers {status}; {CHECK_NETWORK}", away=True)
    silent = "the store" if endpoint is None else endpoint[1]
    reason = next((f" ({reason})" for sign, reason in _SILENCES.items() if sign in text), "")
    return StoreError(f"cannot reach {prefix}: {silent} does not answer{reason}; {CHECK_NETWORK}", away=True)


def _explain_refusal(exc: BaseException, text: str, status: int | None) -> str | None:
    """Return why the store would refuse a later try as well; None if it might not, or has no such object."""
    found = _CODE.search(text)
    code, kind = found[1] if found else None, type(exc).__name__
    if code in _NO_BUCKET:
        return f"there is no such {_NO_BUCKET[code]}; make it or choose another"
    if status in _REFUSED or code in _REMEDIES or kind in {"PermissionDeniedError", "UnauthenticatedError"}:
        said = ", ".join(str(word) for word in (status, code) if word)
        return f"the store refuses ({said or 'no access'}); {_REMEDIES.get(code or '', _NO_ACCESS)}"
    if status is not None and status != _NOT_FOUND and _is_final(status):
        return f"the store answers {status} ({code or 'no reason'})"
    if isinstance(exc, OSError) and not isinstance(exc, FileNotFoundError) and status is None:
        return exc.strerror or kind
    return None


def _status(text: str) -> int | None:
    found = _STATUS.search(text)
    return int(found[1]) if found else None


def _is_final(status: int) -> bool:
    """Whether the store would answer a later try with *status* again."""
    return status == _NOT_IMPLEMENTED or (status < _SERVER_ERRORS and status not in _TRY_LATER)
