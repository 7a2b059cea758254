"""Fields of the process ``traces``, and the traces that they name."""

from __future__ import annotations

from functools import lru_cache
from typing import Literal

from collapipe_env.dynamics.trace_bank import TraceBank
from collapipe_env.dynamics.trace_like import FEWEST, PROFILES, made_traces
from collapipe_env.ground.errors import DataError, ScenarioError, nearest_name, shown
from collapipe_env.scenario.fields import OnlyIf, Text, field, real, spec, whole
from collapipe_env.trace_files import Columns, checksum, source_files, source_traces
from collapipe_env.trace_files.trace_formats import FORMATS, Quantity
from collapipe_env.trace_files.trace_reading import known_formats, require_columns
from collapipe_env.trace_files.trace_sources import Part, split

TRACE_LIKE = "trace-like"
"""Source that is not a file: traces made with the moments of measured ones."""
_FILES = OnlyIf("with trace files", lambda spec: not spec.made)
_MADE = OnlyIf(f"with source: {TRACE_LIKE}", lambda spec: spec.made)
POWERS = OnlyIf("with mode: rsrp", lambda spec: spec.quantity == "rsrp")
RATES = OnlyIf("with mode: rate", lambda spec: spec.quantity == "rate")


@spec
class TracesSpec:
    """Fields of ``dynamics.processes.traces``.

    Raises:
        ScenarioError: If one is out of range, a source is missing, or files have another checksum.
    """

    source: Text | tuple[Text, ...] = field(
        TRACE_LIKE,
        "a folder of CSV files, one file, or a list of them, where relative paths are also looked up "
        "below COLLAPIPE_DATA; or trace-like: synthetic traces, which need no files",
    )
    profile: Text = field("driving", "kind of synthetic traces", _MADE)
    format: Text = field("csv", "format of the files", _FILES)
    mode: Quantity | None = field(
        None,
        "rsrp: values are received powers, which give path gains; rate: they are rates, from which the "
        "gain of a declared link follows; null for the quantity of the profile or the format, or received "
        "power if it has both",
    )
    split: Part = field(
        "train",
        "files that are played, by their index in the order of names, modulo 5: 3 for dev, 4 for test, "
        "the others for train",
    )
    level: Literal["absolute", "layout"] = field(
        "absolute",
        "absolute: gains are those of the trace; layout: the trace gives the ratio to its own mean, and "
        "path loss and shadowing of the layout give the rest",
    )
    share_files: bool = field(
        False, "whether clusters may have the same file where there are fewer files than clusters", _FILES
    )
    column: Text = field("", "column of the values; empty for that of the format (value with csv)", _FILES)
    time_column: Text = field("time_s", "column of times [s], with csv", _FILES)
    row_s: float = real(
        0.0,
        "time from row to row, used instead of the times in the file; 0 to read them",
        "[0, 3600] s",
        _FILES,
    )
    unit: Literal["bit/s", "kbit/s", "Mbit/s"] = field("Mbit/s", "unit of rates, with csv", _FILES)
    delimiter: Text = field(",", "character between columns", _FILES)
    bs_power_dbm: float = real(
        46.0, "power of the measured base station over its band (`rsrp`)", "[-30, 90] dBm", POWERS
    )
    resource_blocks: int = whole(100, "resource blocks of that band (`rsrp`)", 1, 10_000, POWERS)
    antenna_gain_db: float = real(15.0, "its antenna's gain (`rsrp`)", "[-30, 60] dBi", POWERS)
    bandwidth_hz: float = real(20e6, "bandwidth of the measured link (`rate`)", "[1e3, 1e11] Hz", RATES)
    efficiency: float = real(0.6, "share of Shannon's rate that it reached (`rate`)", "[0.01, 1]", RATES)
    power_dbm: float = real(
        23.0, "assumed transmit power (`rate`); a phone's makes it an uplink's", "[-30, 90] dBm", RATES
    )
    snr_max_db: float = real(30.0, "largest SNR that it could use (`rate`)", "[0, 60] dB", RATES)
    rate_min_mbps: float = real(
        0.1, "smallest rate, as which smaller ones count (`rate`)", "[1e-6, 1e5] Mbit/s", RATES
    )
    checksum: Text = field(
        "",
        "SHA-256 of names and contents of all files of the source, whatever the split; if empty, it is "
        "filled in when the scenario is loaded, and other files are then refused",
    )

    def __post_init__(self) -> None:
        if self.profile not in PROFILES:
            raise ValueError(f"profile is {shown(self.profile)}: {nearest_name(self.profile, PROFILES)}")
        if self.format not in known_formats():
            raise ValueError(f"format is {shown(self.format)}: {nearest_name(self.format, known_formats())}")
        if len(self.delimiter) != 1 or self.delimiter in '"\r\n':
            raise ValueError(f"delimiter is {shown(self.delimiter)}: give one character, say ',' or ';'")
        if self.made:
            quantity = PROFILES[self.profile].quantity
            if self.mode not in (None, quantity):
                raise ValueError(
                    f"mode is {self.mode!r}, but the profile {self.profile} holds {quantity}: leave mode out"
                )
            if self.checksum:
                raise ValueError(
                    "checksum is given, but the source trace-like has no files: leave checksum out"
                )
            return
        if self.mode is None and self.format == "csv":
            raise ValueError("mode is not given: say what the files hold, mode: rsrp or mode: rate")
        require_columns(self.columns)
        if not self.checksum:
            # Frozen, but the scenario must name its exact files, so that its digest covers them.
            object.__setattr__(self, "checksum", checksum(source_files(self.source)))
        elif (found := _found_checksum(self.source)) is not None and found != self.checksum:
            raise ValueError(_other_files(self.source, found, self.checksum))

    @property
    def made(self) -> bool:
        """Whether traces are made rather than read."""
        return self.source == TRACE_LIKE

    @property
    def quantity(self) -> Quantity:
        """Quantity that the traces hold."""
        if self.mode is not None:
            return self.mode
        if self.made:
            return PROFILES[self.profile].quantity
        return next(iter(FORMATS[self.format].columns))

    @property
    def columns(self) -> Columns:
        """Columns to read."""
        return Columns(
            self.format, self.quantity, self.column, self.time_column, self.row_s, self.unit, self.delimiter
        )


def _found_checksum(source: Text | tuple[Text, ...]) -> str | None:
    """Checksum of the files; ``None`` where they are not on this machine."""
    try:
        return checksum(source_files(source))
    except DataError:
        return None


def _other_files(source: Text | tuple[Text, ...], found: str, given: str) -> str:
    return (
        f"the files of source {shown(source)} have the checksum {found[:12]}..., not {shown(given[:12])}...: "
        "they are not this scenario's files: give those, or remove checksum to use these"
    )


def bank_of(spec: TracesSpec, clusters: int) -> TraceBank:
    """Traces that a scenario of so many clusters plays.

    Raises:
        DataError: If files are missing or are not traces.
        ScenarioError: If files have another checksum, or there are fewer traces than clusters.
    """
    if spec.made:
        # So many that each part has a trace for every cluster.
        return _made(spec.profile, spec.split, max(FEWEST, 5 * clusters))
    paths = source_files(spec.source)
    if (found := checksum(paths)) != spec.checksum:
        raise ScenarioError(f"dynamics.processes.traces: {_other_files(spec.source, found, spec.checksum)}")
    bank = _read(spec.source, spec.columns, spec.split, found)
    if len(bank) < clusters and not spec.share_files:
        raise ScenarioError(
            f"dynamics.processes.traces: {len(bank)} traces in the part {spec.split!r} of "
            f"{shown(spec.source)} for {clusters} clusters, each of which plays one of its own: name more "
            "files, or set share_files: true"
        )
    return bank


@lru_cache(maxsize=8)
def _made(profile: str, part: Part, count: int) -> TraceBank:
    return TraceBank(split(made_traces(profile, count), part))


@lru_cache(maxsize=8)
def _read(source: str | tuple[str, ...], columns: Columns, part: Part, found: str) -> TraceBank:  # noqa: ARG001
    """Traces of files with a checksum; files with another checksum are read again."""
    return TraceBank(source_traces(source, columns, part))
