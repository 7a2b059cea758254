"""Reading of trace files: values by hand, every fault with its line, and the data sets' own counts."""

import csv
import gzip

import numpy as np
import pytest
from trace_support import DATA, data, needs_data, write_trace  # noqa: F401 - a fixture

from collapipe_env.ground.errors import DataError
from collapipe_env.trace_files import Columns, known_sets, read_traces, source_traces
from collapipe_env.trace_files.trace_formats import FORMATS


def only(path, columns=None):
    (trace,) = read_traces(path, columns or Columns())
    return trace


def test_times_and_values_by_hand(tmp_path):
    trace = only(write_trace(tmp_path / "a.csv", [-90.0, -80.0, -100.0, -95.0], [5.0, 6.0, 10.0, 11.0]))
    np.testing.assert_array_equal(trace.seconds, [0.0, 1.0, 5.0, 6.0])
    np.testing.assert_array_equal(trace.values, [-90.0, -80.0, -100.0, -95.0])
    # The last sample holds for the median spacing, 1 s.
    assert (trace.duration_s, trace.unit, trace.name, trace.held) == (7.0, "dBm", "a.csv", 0)
    assert trace.mean == pytest.approx((1.0 * -90 + 4.0 * -80 + 1.0 * -100 + 1.0 * -95) / 7.0)
    np.testing.assert_array_equal(trace.every_second(), [-90, -80, -80, -80, -80, -100, -95])


def test_columns_delimiter_unit_and_counted_rows(tmp_path):
    path = tmp_path / "b.csv"
    path.write_text("\ufeffwhen; speed ;Rate\n1;x;10\n1;x;20\n\n1;x;30\n")
    columns = Columns(quantity="rate", column="Rate", row_s=2.0, unit="kbit/s", delimiter=";")
    trace = only(path, columns)
    np.testing.assert_array_equal(trace.seconds, [0.0, 2.0, 4.0])
    np.testing.assert_array_equal(trace.values, [1e4, 2e4, 3e4])
    assert (trace.duration_s, trace.unit) == (6.0, "bit/s")


def test_columns_without_a_header_are_numbered_and_gzip_is_unpacked(tmp_path):
    path = tmp_path / "c.csv.gz"
    path.write_bytes(gzip.compress(b"0,-80\n1.5,-81\n3,-82\n"))
    trace = only(path, Columns(time_column="1", column="2"))
    np.testing.assert_array_equal(trace.seconds, [0.0, 1.5, 3.0])
    with pytest.raises(DataError, match=r"c.csv.gz:1: there is no column 'time_s'; valid names: 1, 2"):
        only(path, Columns(column="2"))


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        (Columns("ucc5g"), "there is no trace format 'ucc5g'; did you mean 'ucc-5g'"),
        (Columns("norway-3g", "rsrp"), "norway-3g has no rsrp: choose the mode rate"),
        (Columns("ucc-5g", "rate", "UL_bitrate"), "acknowledgements .* no capacity; use DL_bitrate"),
        (Columns("nyu-multivariate", "rate", "rsrq"), "minus signs"),
    ],
)
def test_columns_that_a_format_does_not_have(tmp_path, columns, message):
    with pytest.raises(DataError, match=message):
        read_traces(tmp_path / "not_read.csv", columns)


UCC = "Timestamp,NetworkMode,RSRP,DL_bitrate\n"


def test_rows_without_a_value_hold_the_one_before(tmp_path):
    rows = ["-,5G,-", "a,LTE,-90", "b,LTE,-", "b,HSPA+,-60", "b,LTE,-200", "c,5G,-95", "d,5G,-94", "d,5G,-93"]
    path = tmp_path / "u.csv"
    path.write_text(UCC + "".join(f"{row},1000\n" for row in rows))
    trace = only(path, Columns("ucc-5g"))
    np.testing.assert_array_equal(trace.seconds, [0.0, 4.0, 5.0, 6.0])
    np.testing.assert_array_equal(trace.values, [-90.0, -95.0, -94.0, -93.0])
    assert (trace.held, trace.duration_s) == (3, 7.0)
    rate = only(path, Columns("ucc-5g", "rate"))
    np.testing.assert_array_equal(rate.values, np.full(8, 1e6))
    path.write_text("Timestamp,NetworkMode,NRxRSRP\n" + "a,HSPA+,-70\n" * 3)
    neighbour = only(path, Columns("ucc-5g", column="NRxRSRP"))  # which entries count is known of RSRP alone
    np.testing.assert_array_equal(neighbour.values, np.full(3, -70.0))


def test_a_file_with_more_gaps_than_values_is_no_trace(tmp_path):
    path = tmp_path / "u.csv"
    path.write_text(UCC + "a,HSPA+,-60,1\n" * 3 + "a,LTE,-90,1\n" * 2)
    assert read_traces(path, Columns("ucc-5g")) == [None]
    path.write_text(UCC + "a,HSPA+,-60,1\n" * 3 + "a,LTE,-90,1\n" * 3)
    assert only(path, Columns("ucc-5g")).duration_s == 3.0


def test_units_of_rows(tmp_path):
    path = tmp_path / "n.csv"
    path.write_text("1.5,Mbits/sec\n997,Kbits/sec\n640,bits/sec\n")
    np.testing.assert_array_equal(only(path, Columns("nyu-lte", "rate")).values, [1.5e6, 997e3, 640.0])


def test_jumps_of_dates_cut_a_file_into_parts(tmp_path):
    path = tmp_path / "p.csv"
    times = ["2021-01-23 07:00:00", "2021-01-23 07:00:01", "2021-01-23 07:01:30", "2021-01-23 07:01:31"]
    rows = [*times, "2021-01-23 07:01:31", "2020-01-01 00:00:00", "2020-01-01 00:00:01"]
    directions = ["uplink"] * 2 + ["downlink"] * 3 + ["uplink"] * 2
    body = "".join(f"{t},{d},-70,{i}\n" for i, (t, d) in enumerate(zip(rows, directions, strict=True)))
    path.write_text("timestamp,direction,nr_rsrp_dbm,uplink_mbps\n" + body)
    power = read_traces(path, Columns("radio-power-5g"))
    assert [(t.name, len(t.values)) for t in power] == [("p.csv#0", 2), ("p.csv#1", 3), ("p.csv#2", 2)]
    rates = read_traces(path, Columns("radio-power-5g", "rate"))
    assert [None if t is None else t.values.tolist() for t in rates] == [[0.0, 1e6], None, [5e6, 6e6]]


def lines_of(path):
    content = path.read_bytes()
    text = gzip.decompress(content) if path.suffix == ".gz" else content
    return list(csv.reader(text.decode().splitlines()))


@needs_data
@pytest.mark.parametrize("name", known_sets())
def test_every_data_set_is_read(name, data):  # noqa: F811
    """All quantities of all files, with as many rows as a plain reader of CSV counts."""
    known = known_sets()[name]
    layout = FORMATS[known.format]
    for quantity in layout.columns:
        traces = source_traces(known.folder, Columns(known.format, quantity), "all")
        for trace in traces:
            assert np.isfinite(trace.values).all()
            low, high = (-160.0, -20.0) if quantity == "rsrp" else (0.0, 1e9)
            assert low <= trace.values.min() <= trace.values.max() <= high
        if layout.cut is None and quantity == "rate":
            assert len(traces) == len(known.files)
            header = 0 if layout.header else 1
            rows = sum(len(lines_of(DATA / known.folder / file)) - header for file in known.files)
            assert sum(len(trace.values) for trace in traces) == rows


@needs_data
@pytest.mark.slow
def test_counts_that_the_sets_state(data):  # noqa: F811
    def seconds(folder, columns, part="all"):
        return [len(t.values) for t in source_traces(folder, columns, part)]

    assert sum(seconds("wireless/ucc_5g/driving", Columns("ucc-5g", "rate"))) == 27_591
    assert sum(seconds("wireless/ucc_5g/static", Columns("ucc-5g"))) == 15_617
    assert sum(seconds("wireless/nyu_mets/lte_throughput", Columns("nyu-lte", "rate"))) == 19_025
    multivariate = Columns("nyu-multivariate", "rate")
    assert sum(seconds("wireless/nyu_mets/multivariate", multivariate)) == 103_696
    norway = source_traces("wireless/norway_3g", Columns("norway-3g", "rate"), "all")
    assert sum(len(t.values) for t in norway) == 16_475
    assert 67.0 < min(t.duration_s for t in norway) < max(t.duration_s for t in norway) < 320.0
    # Mean rates that the sets' own page states: 28 and 67 Mbit/s.
    for folder, stated in (("driving", 28.0), ("static", 67.0)):
        traces = source_traces(f"wireless/ucc_5g/{folder}", Columns("ucc-5g", "rate"), "all")
        assert np.concatenate([t.values for t in traces]).mean() / 1e6 == pytest.approx(stated, abs=0.5)
    runs = source_traces("device/radio_power_5g", Columns("radio-power-5g"), "all")
    assert len(runs) == 22
    assert sum(len(t.values) + t.held for t in runs) == 11_117 + 10_353
