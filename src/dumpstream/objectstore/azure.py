"""Azure: settings in the variables of the Azure tools, which obstore does not read."""

from collections.abc import Mapping
from urllib.parse import urlsplit

from dumpstream._errors import StoreError

_CONNECTION = "AZURE_STORAGE_CONNECTION_STRING"
#: By the setting: the variable of the Azure tools, and what obstore reads itself.
_VARIABLES = {
    "account_name": ("AZURE_STORAGE_ACCOUNT", ("AZURE_STORAGE_ACCOUNT_NAME",)),
    "account_key": (
        "AZURE_STORAGE_KEY",
        ("AZURE_STORAGE_ACCOUNT_KEY", "AZURE_STORAGE_ACCESS_KEY", "AZURE_STORAGE_MASTER_KEY"),
    ),
}
_SETTINGS = {
    "AccountName": "account_name",
    "AccountKey": "account_key",
    "SharedAccessSignature": "sas_key",
    "BlobEndpoint": "endpoint",
}


def read_azure(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the settings in *environment* that obstore does not read, as obstore names them.

    A connection string overrides the other variables, as it does in Azure's tools.

    Raises:
        StoreError: the connection string does not name an account.
    """
    settings = {
        setting: environment[variable]
        for setting, (variable, own) in _VARIABLES.items()
        if environment.get(variable) and not any(map(environment.get, own))
    }
    if text := environment.get(_CONNECTION):
        settings |= _parse(text)
    return settings


def _parse(text: str) -> dict[str, str]:
    """Return the settings in the connection string *text*, a secret that no message may repeat."""
    pairs = [part.partition("=")[::2] for part in text.split(";") if part.strip()]
    fields = {name.strip(): value.strip() for name, value in pairs}
    if fields.get("UseDevelopmentStorage", "").lower() == "true":
        return {"use_emulator": "true"}
    settings = {ours: fields[theirs] for theirs, ours in _SETTINGS.items() if fields.get(theirs)}
    if "endpoint" in settings:
        settings["endpoint"] = settings["endpoint"].rstrip("/")
        host = urlsplit(settings["endpoint"]).hostname or ""
        settings.setdefault("account_name", host.partition(".")[0])
    if not settings.get("account_name"):
        raise StoreError(f"{_CONNECTION} names no account; copy it again from the portal")
    suffix = fields.get("EndpointSuffix")
    if suffix and "endpoint" not in settings:
        scheme = fields.get("DefaultEndpointsProtocol", "https")
        settings["endpoint"] = f"{scheme}://{settings['account_name']}.blob.{suffix}"
    return settings
