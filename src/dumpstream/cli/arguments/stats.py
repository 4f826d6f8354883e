"""Print the statistics of every tensor in captures, dump files and directories of them.

A capture with the statistics sink has them already; for everything else they are computed. Prints a line for
each file that cannot be read, or not completely, and then exits with 3.

Examples:
  dumpstream stats run1                                          a table of all tensors
  dumpstream stats run1 --where 'nan > 0' --sort timestamp       those with NaNs, the earliest first
  dumpstream stats dumps --format csv --select Max,Min,L2norm    as CANN writes it
  dumpstream stats run1 --format parquet --out run1.parquet      for pandas, polars or DuckDB
  dumpstream stats run1.parquet --sort l2norm:desc               from a table written before
"""

from argparse import ArgumentParser
from pathlib import Path

from dumpstream.cli._arguments import add_inputs_argument, add_rank_argument


def add_arguments(parser: ArgumentParser) -> None:
    add = parser.add_argument
    add_inputs_argument(parser)
    add_rank_argument(parser)
    add(
        "--select",
        metavar="NAME,...",
        help="these columns; for csv, these of CANN's statistics (Max, Min, Avg, Nan, Negative Inf, "
        "Positive Inf, L2norm), and columns to put in front",
    )
    add(
        "--where",
        action="append",
        default=[],
        metavar="CONDITION",
        help="only rows of which COLUMN OP NUMBER is true, such as 'nan > 0'; may be repeated: all must be",
    )
    add("--sort", metavar="COLUMN,...", help="by these columns; COLUMN:desc has the largest first")
    add("--format", choices=["table", "csv", "json", "parquet"], default="table")
    add("--out", type=Path, metavar="FILE", help="write there instead of printing")
    add("--force", action="store_true", help="replace --out if it is there")
    add("--histogram", action="store_true", help="count the exponents of floats, too")
    add(
        "--workers",
        type=int,
        metavar="N",
        help="threads that compute (default: the cores, at most 8; 16 for an object store)",
    )
