from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

from dumpstream._errors import StoreError
from dumpstream.objectstore.awsprofile import read_aws_profile
from dumpstream.objectstore.client import make_client
from dumpstream.system.location import Prefix

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def files(tmp_path: Path) -> dict[str, str]:
    """Return an environment with configuration files."""
    config, credentials = tmp_path / "config", tmp_path / "credentials"
    config.write_text("[default]\nregion = here\n[profile obs]\nregion = there\nendpoint_url = https://obs\n")
    credentials.write_text(
        "[default]\naws_access_key_id = one\naws_secret_access_key = s1\n"
        "[obs]\naws_access_key_id = two\naws_secret_access_key = s2\naws_session_token = t2\n"
    )
    return {"AWS_CONFIG_FILE": str(config), "AWS_SHARED_CREDENTIALS_FILE": str(credentials)}


def test_default_profile_is_used(files: dict[str, str]) -> None:
    assert read_aws_profile(files) == {"access_key_id": "one", "secret_access_key": "s1", "region": "here"}


def test_profile_is_chosen_by_the_environment(files: dict[str, str]) -> None:
    assert read_aws_profile(files | {"AWS_PROFILE": "obs"}) == {
        "access_key_id": "two",
        "secret_access_key": "s2",
        "session_token": "t2",
        "region": "there",
        "endpoint": "https://obs",
    }


def test_environment_goes_before_the_profile(files: dict[str, str]) -> None:
    environment = files | {"AWS_ACCESS_KEY_ID": "three", "AWS_REGION": "where"}

    assert read_aws_profile(environment) == {}


def test_profile_that_is_nowhere_is_refused(files: dict[str, str]) -> None:
    with pytest.raises(StoreError, match="AWS_PROFILE is 'none'"):
        read_aws_profile(files | {"AWS_PROFILE": "none"})


def test_file_that_cannot_be_read_is_not_quoted(files: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "credentials").write_text("aws_secret_access_key = marker\n")

    with pytest.raises(StoreError, match="credentials cannot be read") as caught:
        read_aws_profile(files)

    assert "marker" not in str(caught.value)


@pytest.mark.parametrize(
    ("url", "remedy"),
    [
        ("s3://bucket/run?endpoint=", "write .endpoint=https://HOST"),
        ("s3://bucket/run?endpoint=http://", "write .endpoint=https://HOST"),
        ("s3://bucket/run?endpoint=http://a b", "write .endpoint=https://HOST"),
        ("s3://bucket/run?endpoint=ftp://host", "write .endpoint=https://HOST"),
        ("s3://bucket/run?endpoint=http://host:99999", "write .endpoint=https://HOST"),
        ("s3://bucket/run?endpoint=http://127.0.0.1:9&addressing=virtual", "s3://bucket/prefix.endpoint="),
        ("obs://bucket/run?endpoint=http://127.0.0.1:9", "s3://bucket/prefix.endpoint="),
        ("obs://bucket/run?endpoint=http://[::1]:9", "s3://bucket/prefix.endpoint="),
        ("obs://bü/run?endpoint=http://host", "write one of letters, digits"),
    ],
)
def test_endpoint_to_which_no_request_can_be_sent_is_refused(
    url: str, remedy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("AWS_ENDPOINT_URL", raising=False)

    with pytest.raises(StoreError, match=remedy):
        make_client(Prefix.parse(url), 1)


@pytest.mark.parametrize("host", ["127.0.0.1:9", "[::1]:9", "minio_1:9000", "host/path"])
def test_endpoint_of_path_addressing_may_be_an_address(host: str) -> None:
    client = make_client(Prefix.parse(f"s3://bucket/run?endpoint=http://{host}"), 1)

    assert client.config["endpoint"] == f"http://{host}"


def test_virtual_addressing_puts_the_bucket_into_the_host(
    files: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in (files | {"AWS_PROFILE": "obs"}).items():
        monkeypatch.setenv(name, value)

    url = "s3://bucket/run?endpoint=https://obs.example.com&addressing=virtual"
    client = make_client(Prefix.parse(url), 1)

    assert client.config["endpoint"] == "https://bucket.obs.example.com"
    assert client.config["virtual_hosted_style_request"] == "true"
    assert client.config["access_key_id"] == "two"


@pytest.mark.parametrize(
    ("url", "variable"),
    [
        ("s3://bucket/run", "AWS_ENDPOINT_URL"),
        ("gs://bucket/run", "GOOGLE_BASE_URL"),
        ("az://container/run?account=me", "AZURE_STORAGE_ENDPOINT"),
    ],
)
@pytest.mark.parametrize(("scheme", "allowed"), [("http", "true"), ("https", "false")])
def test_endpoint_without_encryption_must_be_asked_for(
    monkeypatch: pytest.MonkeyPatch, url: str, variable: str, scheme: str, allowed: str
) -> None:
    for name in ("AWS_PROFILE", "GOOGLE_APPLICATION_CREDENTIALS", "GOOGLE_SERVICE_ACCOUNT"):
        monkeypatch.delenv(name, raising=False)
    endpoint = f"{scheme}://127.0.0.1:1"
    option = f"{'&' if '?' in url else '?'}endpoint={endpoint}"

    by_option = make_client(Prefix.parse(url + option), 1)
    monkeypatch.setenv(variable, endpoint)
    by_variable = make_client(Prefix.parse(url), 1)

    assert [it.client_options["allow_http"] for it in (by_option, by_variable)] == [allowed, allowed]


def test_missing_library_is_an_error_that_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "obstore", None)

    with pytest.raises(StoreError, match=r"pip install 'dumpstream\[objectstore\]'"):
        make_client(Prefix.parse("s3://bucket/run"), 1)
