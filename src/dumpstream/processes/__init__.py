"""Other processes: whether they live, how they ended, and messages to those that this one started."""

#: How the ending of a process begins that a signal ended; the name of the signal follows.
KILLED = "killed by "
#: Why a captured process did not end in order: it was gone without a goodbye of its agent.
PROCESS_GONE = "process_gone"
