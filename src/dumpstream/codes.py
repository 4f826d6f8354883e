"""The error codes of ACL: CANN's names for them, what they mean, and what to do."""

from enum import IntEnum
from typing import Final, NamedTuple, Self

_LOG: Final = "its log in ~/ascend/log says why"
_VERSION: Final = "check CANN's version and the product"
_BUFFER: Final = "dump less, or give the capture a larger buffer and faster sinks"


class AclCode(IntEnum):
    """An ``aclError`` that the functions of dumping, profiling and devices return."""

    meaning: str
    remedy: str

    def __new__(cls, number: int, meaning: str, remedy: str) -> Self:
        """Make a member from a row of the table."""
        member = int.__new__(cls, number)
        member._value_ = number
        member.meaning, member.remedy = meaning, remedy
        return member

    @property
    def acl_name(self) -> str:
        """The name in CANN's headers."""
        return f"ACL_ERROR_{self.name}"

    # fmt: off
    INVALID_PARAM = (100000, "an argument is not valid",
        "check the arguments; aclInit, once finalised, takes only the configuration of the first time")
    UNINITIALIZE = (100001, "ACL is not initialised",
        "call aclInit, or let your framework do it, before the capture begins")
    REPEAT_INITIALIZE = 100002, "it is initialised already", "leave it to its first caller"
    INVALID_FILE = (100003, "the configuration file cannot be read",
        "check its path, and that it is a regular file of at most 10 MiB")
    WRITE_FILE = 100004, "a file cannot be written", "check the directory's permissions and free space"
    INVALID_FILE_SIZE = 100005, "a file has a wrong size", "check that it is whole"
    PARSE_FILE = 100006, "the configuration file is nested too deeply", "nest at most 10 braces and brackets"
    FILE_MISSING_ATTR = 100007, "a file lacks a key", "run dumpstream config check on the configuration"
    FILE_ATTR_INVALID = 100008, "a key has a wrong value", "run dumpstream config check on the configuration"
    INVALID_DUMP_CONFIG = (100009, "the dump configuration is not valid",
        "run dumpstream config check on it; most often dump_path is not a directory that can be written")
    INVALID_PROFILING_CONFIG = (100010,
        "the profiling configuration is not valid, or not the one that was started",
        "check its values, and stop with the configuration that was started")
    INVALID_MODEL_ID = (100011, "there is no such model",
        "load the model first, and use the id that loading returned")
    REPEAT_FINALIZE = (100037, "ACL is finalised already",
        "call aclFinalize once, and only if you called aclInit")
    COMPILING_STUB_MODE = (100039, "the library is a stub for linking",
        "use the runtime's own libraries: source CANN's set_env.sh, and take devlib off LD_LIBRARY_PATH")
    PROF_ALREADY_RUN = (100042, "profiling runs already",
        "stop it first, or take the profiler section out of the acl.json of aclInit")
    PROF_NOT_RUN = 100043, "profiling does not run", "call aclprofInit first"
    DUMP_ALREADY_RUN = (100044, "dumping is configured already, by aclInit",
        "capture without config, or take the dump section out of the acl.json of aclInit")
    DUMP_NOT_RUN = 100045, "dumping is not initialised", "call aclmdlInitDump first"
    RT_PARAM_INVALID = 107000, "an argument is not valid", "check the device and its context"
    RT_INVALID_DEVICEID = (107001, "there is no such device",
        "check the number, and ASCEND_RT_VISIBLE_DEVICES: numbers count the visible devices")
    RT_CONTEXT_NULL = (107002, "the calling thread has no device context",
        "call aclrtSetDevice or aclrtSetCurrentContext on this thread first")
    RT_STREAM_CONTEXT = (107003, "the stream does not belong to the thread's context",
        "set the context that the stream was made in")
    RT_WAIT_TIMEOUT = 107019, "waiting for the device took too long", "dump fewer operators, or wait longer"
    PROF_REPEAT_SUBSCRIBE = 148046, "the model is subscribed already", "unsubscribe it first"
    PROF_API_CONFLICT = (148047, "profiling and subscribing exclude each other",
        "finalise the one before you begin the other")
    BAD_ALLOC = 200000, "memory cannot be allocated", "free memory, or dump less at a time"
    API_NOT_SUPPORT = 200001, "the function is not supported here", _VERSION
    FEATURE_UNSUPPORTED = 200006, "the feature is not supported here", _VERSION
    PROF_MODULES_UNSUPPORTED = (200007, "the product cannot collect one of the wanted kinds of data",
        "ask for fewer kinds")
    RT_FEATURE_NOT_SUPPORT = 207000, "the feature is not supported here", _VERSION
    RT_MEMORY_ALLOCATION = (207001, "device memory cannot be allocated",
        "free memory of the device, or dump less")
    RT_NO_DEVICE = 207004, "there is no device", "check npu-smi info, and ASCEND_RT_VISIBLE_DEVICES"
    STORAGE_OVER_LIMIT = 300000, "storage is over its limit", "free space, or raise the limit"
    INTERNAL_ERROR = 500000, "the runtime failed inside", _LOG
    FAILURE = 500001, "the runtime refused", _LOG
    GE_FAILURE = 500002, "the graph engine failed", _LOG
    RT_FAILURE = 500003, "the device's runtime failed", _LOG
    DRV_FAILURE = 500004, "the driver failed", "check npu-smi info and the driver's log"
    PROFILING_FAILURE = 500005, "the profiler failed", _LOG
    RT_INTERNAL_ERROR = 507000, "the device's runtime failed inside", _LOG
    RT_MODEL_EXECUTE = 507011, "a model failed", "look for the first failing operator in ~/ascend/log"
    RT_AICORE_TIMEOUT = 507014, "an operator took too long", "dump fewer operators, or raise the timeout"
    RT_AICORE_EXCEPTION = 507015, "an operator failed", "its log in ~/ascend/log names the operator"
    RT_AICPU_TIMEOUT = 507017, "the device waited too long for the host to take the dump", _BUFFER
    RT_AICPU_EXCEPTION = (507018,
        "the device's CPU failed, perhaps because the host did not take the dump in time", _BUFFER)
    RT_AICPU_DATADUMP_RSP_ERR = 507019, "the device could not dump", _LOG
    RT_STREAM_SYNC_TIMEOUT = (507046, "waiting for the device took too long",
        "dump less, or wait longer: dumping slows every operator down")
    # fmt: on


class CodeText(NamedTuple):
    """A name, a meaning and a remedy, for any number."""

    name: str
    meaning: str
    remedy: str


_TEXTS: Final = {int(code): CodeText(code.acl_name, code.meaning, code.remedy) for code in AclCode}
#: Meanings by the first of six digits.
_FAMILIES: Final = {
    1: "the call is refused, for its arguments or for the order of calls",
    2: "a resource is missing, or something is not supported here",
    3: "a limit is exceeded",
    5: "it failed inside the runtime, whose log in ~/ascend/log says why",
}


def describe_code(number: int) -> CodeText:
    """Describe *number*, by its first digit if it is not in the table."""
    meaning = _FAMILIES.get(number // 100_000, "it is not one of CANN's numbers")
    unknown = CodeText("unknown", meaning, "look the number up in CANN's list of error codes")
    return _TEXTS.get(number, unknown)
