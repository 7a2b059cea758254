"""Traces of real radio links: loaders, splits and checksums; no data."""

from collapipe_env.trace_files.trace import Trace
from collapipe_env.trace_files.trace_manifest import known_sets, verify_set
from collapipe_env.trace_files.trace_reading import Columns, known_formats, read_traces
from collapipe_env.trace_files.trace_sources import checksum, source_files, source_traces

__all__ = [
    "Columns",
    "Trace",
    "checksum",
    "known_formats",
    "known_sets",
    "read_traces",
    "source_files",
    "source_traces",
    "verify_set",
]
