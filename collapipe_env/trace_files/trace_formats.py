"""Formats of trace files: the columns of public data sets and their meaning."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

Quantity = Literal["rsrp", "rate"]
"""Measured quantities: received power of reference signals, or rates."""

UNITS: Mapping[str, float] = {"bit/s": 1.0, "kbit/s": 1e3, "Mbit/s": 1e6}
"""Units of rates in bit/s."""


@dataclass(frozen=True)
class TraceFormat:
    """Columns of the files of a data set.

    Attributes:
        columns: Column of each quantity that the set measures.
        rate_unit: Unit of its rates, a key of :data:`UNITS`.
        time: Column of times [s]; ``None`` where rows are numbered, one a second.
        header: Names of the columns where files have no header; empty where they have one.
        units: Column that gives the unit of a row, with its units in bit/s; ``None`` where no column does.
        missing: Cells that stand for no value.
        only: Column and its entries for which a quantity's value counts; rows with other entries have none.
        cut: Column of dates, ``2021-01-23 07:09:06``, at whose jumps a file is cut into parts; ``None`` for
            whole files.
        wrong: Columns that look like a quantity but are not, with the reason.
    """

    title: str
    columns: Mapping[Quantity, str]
    rate_unit: str = "Mbit/s"
    time: str | None = None
    header: tuple[str, ...] = ()
    units: tuple[str, Mapping[str, float]] | None = None
    missing: tuple[str, ...] = ()
    only: Mapping[Quantity, tuple[str, tuple[str, ...]]] = field(default_factory=dict)
    cut: str | None = None
    wrong: Mapping[str, str] = field(default_factory=dict)


_UNSIGNED = "some files lack its minus signs, and the order of the signal columns is not certain"

FORMATS: Mapping[str, TraceFormat] = {
    "ucc-5g": TraceFormat(
        "UCC Irish 5G production traces (Raca et al., 2020)",
        {"rsrp": "RSRP", "rate": "DL_bitrate"},
        rate_unit="kbit/s",
        # Time stamps repeat, about one row in nine: rows are counted.
        # The recorder writes -200 dBm where it has no measurement.
        missing=("-", "-200"),
        # On 3G the column holds another quantity, the power of a whole carrier's pilot.
        only={"rsrp": ("NetworkMode", ("5G", "LTE"))},
        wrong={"UL_bitrate": "it holds acknowledgements of a download, about 0.1 Mbit/s, and no capacity"},
    ),
    "nyu-lte": TraceFormat(
        "NYU-METS LTE throughput (Mei et al., 2019)",
        {"rate": "throughput"},
        header=("throughput", "unit"),
        units=("unit", {"bits/sec": 1.0, "Kbits/sec": 1e3, "Mbits/sec": 1e6}),
    ),
    "nyu-multivariate": TraceFormat(
        "NYU-METS multivariate LTE traces (Mei et al., 2019)",
        {"rate": "throughput_mbps"},
        wrong=dict.fromkeys(("rssi", "rsrq", "enb_change"), _UNSIGNED),
    ),
    "norway-3g": TraceFormat(
        "Norwegian 3G commute traces (Riiser et al., 2013)",
        {"rate": "throughput_mbps"},
        time="time_s",
    ),
    "radio-power-5g": TraceFormat(
        "Phone power on 5G (Narayanan et al., 2021)",
        {"rsrp": "nr_rsrp_dbm", "rate": "uplink_mbps"},
        missing=("",),
        only={"rate": ("direction", ("uplink",))},
        cut="timestamp",
    ),
}
"""Formats by name; ``csv`` is any other file, whose columns the user names."""
