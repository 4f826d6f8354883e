from __future__ import annotations

import pytest

from dumpstream._errors import StoreError
from dumpstream.objectstore.azure import read_azure
from dumpstream.objectstore.client import make_client
from dumpstream.system.location import Prefix


def test_variables_of_the_tools_are_read() -> None:
    environment = {"AZURE_STORAGE_ACCOUNT": "me", "AZURE_STORAGE_KEY": "k1"}

    assert read_azure(environment) == {"account_name": "me", "account_key": "k1"}


def test_variables_that_obstore_reads_go_before_those_of_the_tools() -> None:
    environment = {
        "AZURE_STORAGE_ACCOUNT": "me",
        "AZURE_STORAGE_ACCOUNT_NAME": "you",
        "AZURE_STORAGE_KEY": "k1",
        "AZURE_STORAGE_ACCESS_KEY": "k2",
    }

    assert read_azure(environment) == {}


@pytest.mark.parametrize(
    ("text", "settings"),
    [
        (
            "DefaultEndpointsProtocol=https;AccountName=me;AccountKey=k1==;EndpointSuffix=core.chinacloudapi.cn",
            {
                "account_name": "me",
                "account_key": "k1==",
                "endpoint": "https://me.blob.core.chinacloudapi.cn",
            },
        ),
        ("AccountName=me;AccountKey=k1==", {"account_name": "me", "account_key": "k1=="}),
        (
            "BlobEndpoint=https://me.blob.core.windows.net/;SharedAccessSignature=sv=1&sig=a%3D",
            {
                "account_name": "me",
                "sas_key": "sv=1&sig=a%3D",
                "endpoint": "https://me.blob.core.windows.net",
            },
        ),
        ("UseDevelopmentStorage=true", {"use_emulator": "true"}),
    ],
)
def test_connection_string_is_read(text: str, settings: dict[str, str]) -> None:
    assert read_azure({"AZURE_STORAGE_CONNECTION_STRING": text}) == settings


def test_connection_string_goes_before_the_other_variables() -> None:
    environment = {
        "AZURE_STORAGE_ACCOUNT": "you",
        "AZURE_STORAGE_KEY": "k2",
        "AZURE_STORAGE_CONNECTION_STRING": "AccountName=me;AccountKey=k1",
    }

    assert read_azure(environment) == {"account_name": "me", "account_key": "k1"}


@pytest.mark.parametrize("text", ["marker", "AccountKey=marker", "BlobEndpoint=marker;AccountKey=marker"])
def test_connection_string_that_is_none_is_not_repeated(text: str) -> None:
    with pytest.raises(StoreError, match="names no account; copy it again") as caught:
        read_azure({"AZURE_STORAGE_CONNECTION_STRING": text})

    assert "marker" not in str(caught.value)


def test_missing_account_is_told_with_the_ways_to_name_it(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AZURE_STORAGE_ACCOUNT", "AZURE_STORAGE_ACCOUNT_NAME", "AZURE_STORAGE_CONNECTION_STRING"):
        monkeypatch.delenv(name, raising=False)

    with pytest.raises(StoreError, match=r"\?account=NAME or AZURE_STORAGE_ACCOUNT_NAME"):
        make_client(Prefix.parse("az://container/run"), 1)


def test_account_in_the_url_goes_before_the_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AZURE_STORAGE_CONNECTION_STRING", "AccountName=you;AccountKey=a2V5")

    client = make_client(Prefix.parse("az://container/run?account=me"), 1)

    assert client.config["account_name"] == "me"
