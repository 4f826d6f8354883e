"""The flags of a profile, which is collected together with a capture."""

from argparse import ArgumentParser, ArgumentTypeError, Namespace

from dumpstream.profiling.settings import EXTRAS, AicoreMetric, Collect, ProfileSettings, check_extra

_DEFAULTS = ProfileSettings()
_METRICS = [metric.name.lower() for metric in AicoreMetric]
_KINDS = ", ".join(kind.name.lower() for kind in Collect if kind.name)


def add_profile_arguments(parser: ArgumentParser) -> None:
    """Declare the flags that `profile_settings` reads."""
    add = parser.add_argument_group("profile").add_argument
    add("--profile", action="store_true", help="also profile the run, into profile/ below --out")
    add(
        "--profile-devices",
        type=_devices,
        metavar="N,...",
        help="the devices to profile (default: the workload's)",
    )
    add("--profile-collect", type=_collect, metavar="KIND,...", help=f"what to collect: some of {_KINDS}")
    help_text = f"which counters of the AI Core are read: one of {', '.join(_METRICS)}"
    add("--profile-metric", choices=_METRICS, metavar="METRIC", help=help_text)
    add(
        "--profile-set",
        type=_setting,
        action="append",
        metavar="NAME=VALUE",
        help=f"a value for aclprofSetConfig; may be repeated; names: {', '.join(EXTRAS)}",
    )


def profile_settings(args: Namespace, *, device: int) -> ProfileSettings | None:
    """Return what the flags ask for, with *device* unless they name others; None without ``--profile``.

    Raises:
        ValueError: flags exclude or need each other.
    """
    given = (args.profile_devices, args.profile_collect, args.profile_metric, args.profile_set)
    if not args.profile:
        if any(given):
            raise ValueError("--profile-devices, -collect, -metric and -set need --profile")
        return None
    return ProfileSettings(
        devices=args.profile_devices or (device,),
        collect=args.profile_collect or _DEFAULTS.collect,
        metric=AicoreMetric[args.profile_metric.upper()] if args.profile_metric else _DEFAULTS.metric,
        extra=dict(args.profile_set or ()),
    )


def _devices(text: str) -> tuple[int, ...]:
    if not all(item.isdecimal() and item.isascii() for item in text.split(",")):
        raise ArgumentTypeError(f"{text!r} is not a list of devices; write for example 0 or 0,1,2")
    return tuple(int(item) for item in text.split(","))


def _collect(text: str) -> Collect:
    collect = Collect(0)
    for item in text.lower().split(","):
        if item.upper() not in Collect.__members__:
            raise ArgumentTypeError(f"{item!r} cannot be collected; known: {_KINDS}")
        collect |= Collect[item.upper()]
    return collect


def _setting(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals:
        raise ArgumentTypeError(f"{text!r} is not NAME=VALUE")
    try:
        check_extra(name, value)
    except ValueError as exc:
        raise ArgumentTypeError(str(exc)) from None
    return name, value
