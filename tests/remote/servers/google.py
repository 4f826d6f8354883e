"""Google's dialect on loopback: the S3 server behind what translates Google's XML API into S3's and back."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import subprocess
from datetime import UTC, datetime
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl, quote, unquote

from s3server import ACCESS_KEY, SECRET

from .relay import Answer, Relay, Request

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

_REFUSED = b"<Error><Code>AuthenticationRequired</Code><Message>Authentication required.</Message></Error>"
_REGION = "us-east-1"
_SIGNED = "host;x-amz-content-sha256;x-amz-date"


class GoogleServer(Relay):
    """Takes the bearer tokens that *known* knows, and signs requests for the server itself."""

    def __init__(self, target: int, known: Callable[[str], bool]) -> None:
        super().__init__(target)
        self._known = known

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def on_request(self, request: Request) -> Answer | None:
        headers = request.headers
        kind, _, token = headers.pop("authorization", "").partition(" ")
        if kind != "Bearer" or not self._known(token):
            return Answer(401, _REFUSED)
        if headers.pop("x-goog-if-generation-match", None) == "0":
            headers["if-none-match"] = "*"
        assert not any(name.startswith(("x-goog-", "x-amz-")) for name in headers), headers
        request.path = quote(unquote(request.path), safe="/~")  # in Google's, slashes are encoded, too
        headers["host"] = f"127.0.0.1:{self.target}"
        sign(request)
        return None

    def on_answer(self, request: Request, answer: Answer) -> None:
        tag = answer.headers.get("ETag")
        if tag:
            digest = hashlib.sha256(tag.encode()).hexdigest()
            answer.headers["x-goog-generation"] = str(int(digest[:15], 16))


class ServiceAccount:
    """An account with a key of its own, in a file as Google hands it out at *path*."""

    def __init__(self, path: Path) -> None:
        self.path = path
        key = _openssl("genpkey", "-algorithm", "RSA", "-pkeyopt", "rsa_keygen_bits:2048")
        self._modulus = int(_openssl("rsa", "-noout", "-modulus", text=key).partition("=")[2], 16)
        fields = {"type": "service_account", "client_email": "test@example.com", "private_key_id": "1"}
        path.write_text(json.dumps(fields | {"private_key": key}))

    def has_signed(self, token: str) -> bool:
        """Whether *token* is a JWT with the account's signature (RS256)."""
        content, _, signature = token.rpartition(".")
        number = int.from_bytes(base64.urlsafe_b64decode(f"{signature}=="))
        found = pow(number, 65537, self._modulus).to_bytes(256)
        return found.endswith(hashlib.sha256(content.encode()).digest())


def _openssl(*arguments: str, text: str = "") -> str:
    done = subprocess.run(["openssl", *arguments], input=text, capture_output=True, text=True, check=True)
    return done.stdout


def sign(request: Request) -> None:
    """Give *request* S3's signature, version 4; the body is not signed."""
    now = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
    request.headers |= {"x-amz-date": now, "x-amz-content-sha256": "UNSIGNED-PAYLOAD"}
    pairs = sorted(parse_qsl(request.query, keep_blank_values=True))
    query = "&".join(f"{quote(name, safe='~')}={quote(value, safe='~')}" for name, value in pairs)
    signed = "".join(f"{name}:{request.headers[name]}\n" for name in _SIGNED.split(";"))
    canonical = f"{request.method}\n{request.path}\n{query}\n{signed}\n{_SIGNED}\nUNSIGNED-PAYLOAD"
    scope = f"{now[:8]}/{_REGION}/s3/aws4_request"
    digest = hashlib.sha256(canonical.encode()).hexdigest()
    key = f"AWS4{SECRET}".encode()
    for text in (*scope.split("/"), f"AWS4-HMAC-SHA256\n{now}\n{scope}\n{digest}"):
        key = hmac.digest(key, text.encode(), "sha256")
    request.headers["authorization"] = (
        f"AWS4-HMAC-SHA256 Credential={ACCESS_KEY}/{scope}, SignedHeaders={_SIGNED}, Signature={key.hex()}"
    )
