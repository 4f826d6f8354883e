"""Failure: what obstore raises, turned into one line without secrets."""

import re
from collections.abc import Iterator
from contextlib import contextmanager

from dumpstream._errors import ObjectMissingError, StoreError

_STATUS = re.compile(r"status code: (\d{3})")
_BEYOND = re.compile(
    r"status code: 416|invalid range|range was invalid|wanted range starting at|range started at",
    re.IGNORECASE,
)
_CODE = re.compile(r"<Code>(\w{1,64})</Code>")
_NO_BUCKET = {"NoSuchBucket": "bucket", "ContainerNotFound": "container"}
_TRY_LATER = {408, 429}
_SERVER_ERRORS = 500
_NOT_IMPLEMENTED = 501
_REFUSED = {401, 403}
_NOT_FOUND = 404

_REMEDIES = {
    "InvalidAccessKeyId": "the store does not know the access key; check AWS_ACCESS_KEY_ID or the profile",
    "SignatureDoesNotMatch": "the secret key is wrong; check AWS_SECRET_ACCESS_KEY or the profile",
    "ExpiredToken": "the session has expired; get new credentials",
    "AuthenticationFailed": "the account key or signature is wrong; check the AZURE_STORAGE_... variables",
    "AuthenticationRequired": "the token is wrong or has expired; check GOOGLE_APPLICATION_CREDENTIALS",
    "RequestTimeTooSkewed": "this machine's clock is wrong; set it",
}
#: What to do about a store that does not answer.
CHECK_NETWORK = "check the network and the endpoint"
_NO_ACCESS = "check the credentials in the environment or the profile, and what they are allowed to do"


@contextmanager
def explained(what: str, where: object) -> Iterator[None]:
    """Turn whatever keeps the block from doing *what* at *where* into a `StoreError`."""
    try:
        yield
    except StoreError:
        raise
    except Exception as exc:  # noqa: BLE001 - obstore has many, and its pieces may raise anything
        raise explain_failure(exc, what, where) from None


def is_beyond_the_end(exc: BaseException) -> bool:
    """Whether *exc* says that an object ends before the range that was asked for."""
    return _BEYOND.search(str(exc)) is not None


def is_unsupported(exc: BaseException) -> bool:
    """Whether *exc* says that the store, or obstore, cannot do what was asked for."""
    if isinstance(exc, NotImplementedError) or type(exc).__name__ == "NotSupportedError":
        return True
    return _status(str(exc)) == _NOT_IMPLEMENTED


def explain_failure(exc: BaseException, what: str, where: object) -> StoreError:
    """Return the error to report for *exc*, which kept a store from doing *what* at *where*.

    It does not repeat obstore's own text, which quotes requests, and with Azure their signatures.
    """
    text = str(exc)
    status = _status(text)
    found = _CODE.search(text)
    code = found[1] if found else None
    kind = type(exc).__name__
    if code in _NO_BUCKET:
        missing = _NO_BUCKET[code]
        return StoreError(f"cannot {what} {where}: there is no such {missing}; make it or choose another")
    if isinstance(exc, FileNotFoundError) or kind == "NotFoundError" or status == _NOT_FOUND:
        return ObjectMissingError(f"{where} is not there")
    if status in _REFUSED or code in _REMEDIES or kind in {"PermissionDeniedError", "UnauthenticatedError"}:
        said = ", ".join(str(word) for word in (status, code) if word)
        remedy = _REMEDIES.get(code or "", _NO_ACCESS)
        return StoreError(f"cannot {what} {where}: the store refuses ({said or 'no access'}); {remedy}")
    if status is not None and _is_final(status):
        return StoreError(f"cannot {what} {where}: the store answers {status} ({code or 'no reason'})")
    if isinstance(exc, OSError):
        return StoreError(f"cannot {what} {where}: {exc.strerror or type(exc).__name__}")
    said = f"answers {status}" if status else "does not answer"
    return StoreError(f"cannot {what} {where}: the store {said}; {CHECK_NETWORK}", away=True)


def _status(text: str) -> int | None:
    found = _STATUS.search(text)
    return int(found[1]) if found else None


def _is_final(status: int) -> bool:
    """Whether the store would answer a later try with *status* again."""
    return status == _NOT_IMPLEMENTED or (status < _SERVER_ERRORS and status not in _TRY_LATER)
