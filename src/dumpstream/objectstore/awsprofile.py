"""AWS profiles: settings in the files of the AWS tools, which obstore does not read."""

import os
from collections.abc import Mapping
from configparser import ConfigParser
from configparser import Error as ConfigError
from pathlib import Path

from dumpstream._errors import StoreError

_KEYS = {
    "aws_access_key_id": "access_key_id",
    "aws_secret_access_key": "secret_access_key",
    "aws_session_token": "session_token",
    "region": "region",
    "endpoint_url": "endpoint",
}
_CREDENTIALS = {"access_key_id", "secret_access_key", "session_token"}


def read_aws_profile(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the settings of the profile that *environment* chooses, as obstore names them.

    Environment variables override the files; if they have credentials, those of the files are left out.

    Raises:
        StoreError: ``AWS_PROFILE`` names a profile that does not exist, or a file cannot be read.
    """
    profile = environment.get("AWS_PROFILE") or environment.get("AWS_DEFAULT_PROFILE") or "default"
    settings: dict[str, str] = {}
    found = False
    for variable, default, section in (
        ("AWS_CONFIG_FILE", "~/.aws/config", profile if profile == "default" else f"profile {profile}"),
        ("AWS_SHARED_CREDENTIALS_FILE", "~/.aws/credentials", profile),
    ):
        path = Path(environment.get(variable) or default).expanduser()
        parser = _parse(path)
        if parser.has_section(section):
            found = True
            values = parser[section]
            settings |= {ours: values[theirs] for theirs, ours in _KEYS.items() if values.get(theirs)}
    if not found and environment.get("AWS_PROFILE"):
        raise StoreError(f"AWS_PROFILE is {profile!r}, and no such profile is in ~/.aws; correct one of them")
    if environment.get("AWS_ACCESS_KEY_ID"):
        settings = {name: value for name, value in settings.items() if name not in _CREDENTIALS}
    if environment.get("AWS_REGION") or environment.get("AWS_DEFAULT_REGION"):
        settings.pop("region", None)
    return settings


def read_aws_endpoint(environment: Mapping[str, str]) -> str | None:
    """Return the endpoint that *environment* has for S3."""
    variables = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT")
    return next((environment[name] for name in variables if environment.get(name)), None)


def _parse(path: Path) -> ConfigParser:
    parser = ConfigParser(interpolation=None)
    try:
        with path.open(encoding="utf-8") as file:
            parser.read_file(file)
    except FileNotFoundError:
        pass
    except (OSError, ValueError, ConfigError):
        # The reason would quote a line, which may have a secret.
        raise StoreError(f"{os.fspath(path)} cannot be read; correct it") from None
    return parser
