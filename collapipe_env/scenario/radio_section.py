"""The section ``radio``: bands, path losses, antennas, noise, fading, rates and packet errors."""

from __future__ import annotations

from functools import cached_property
from typing import Annotated, Literal

from pydantic import AfterValidator

from collapipe_env.physics.line_of_sight import Antennas
from collapipe_env.physics.path_loss import PATH_LOSSES, Links, path_loss
from collapipe_env.physics.radio import db_to_linear
from collapipe_env.scenario.fields import OnlyIf, Text, field, real, spec, whole

LAWS = "a name such as umi, umi-los, inh-mixed, log-distance (`docs/radio.md` lists them)"


def _known(name: str) -> str:
    PATH_LOSSES.require(name)
    return name


def _with(errors: str) -> OnlyIf:
    """Condition that links lose packets in one of these modes."""
    return OnlyIf(f"with link_errors: {errors}", lambda radio: radio.link_errors in errors.split(" or "))


LOG_DISTANCE = OnlyIf(
    "with a path loss of log-distance",
    lambda radio: "log-distance" in (radio.d2e_path_loss, radio.d2d_path_loss),
)
STATION = OnlyIf("with a d2e_path_loss that knows heights", lambda radio: radio.d2e_links.law.feels_heights)
ANTENNAS = OnlyIf(
    "with a path loss that knows heights",
    lambda radio: radio.d2e_links.law.feels_heights or radio.d2d_links.law.feels_heights,
)

Law = Annotated[Text, AfterValidator(_known)]


@spec
class RadioSpec:
    """Bands, path losses, antennas, noise, fading, rates and packet errors."""

    noise_dbm_per_hz: float = real(-174.0, "density of thermal noise N0", "[-250.0, 0] dBm/Hz")
    d2d_total_hz: float = real(
        80e6, "device-to-device band of every cluster, cut into a sub-channel for each node", "[1e3, 1e12] Hz"
    )
    d2d_radios: int = whole(
        1, "radios of a device for its hops; the only one serves both neighbours in turn", 1, 2
    )
    uplink_bandwidth_hz: float = real(
        100e6, "uplink bandwidth W_up that the clusters share", "[1e3, 1e12] Hz"
    )
    downlink_bandwidth_hz: float = real(100e6, "downlink bandwidth W_dl", "[1e3, 1e12] Hz")
    bs_power_w: float = real(10.0, "transmit power of the base station P_bs", "(0, 1e6] W")
    external_interference_w: float = real(
        0.0, "interference from outside in the base station's band I_ext", "[0, 1] W"
    )
    carrier_ghz: float = real(3.5, "carrier frequency of all links", "[0.5, 100] GHz")
    d2e_path_loss: Law = field("umi", "path loss between CUs and base station; " + LAWS)
    d2d_path_loss: Law = field("inh-mixed", "path loss between devices; " + LAWS)
    path_loss_exponent: float = real(3.0, "exponent of log-distance", "[1, 10]", LOG_DISTANCE)
    path_loss_reference_db: float | None = real(
        None, "loss of log-distance at 1 m, that of free space if not given", "[0, 200] dB", LOG_DISTANCE
    )
    bs_height_m: float | None = real(
        None,
        "height of the base station's antenna, the usual one of the law if not given",
        "[0.1, 500] m",
        STATION,
    )
    device_height_m: float | None = real(
        None, "height of other antennas, the usual one of the law if not given", "[0.1, 100] m", ANTENNAS
    )
    bs_antenna_dbi: float = real(8.0, "gain of the base station's antenna", "[-30, 60] dBi")
    device_antenna_dbi: float = real(0.0, "gain of the antennas of devices and CUs", "[-30, 60] dBi")
    penetration_db: float = real(0.0, "loss in walls between CUs and base station", "[0, 200] dB")
    bs_noise_figure_db: float = real(5.0, "noise figure of the base station", "[0, 60] dB")
    device_noise_figure_db: float = real(9.0, "noise figure of devices and CUs", "[0, 60] dB")
    d2e_shadowing_db: float | None = real(
        0.0, "standard deviation of the CUs' log-normal shadowing, null for the law's", "[0, 30] dB"
    )
    d2d_shadowing_db: float | None = real(
        0.0, "standard deviation of the hops' log-normal shadowing, null for the law's", "[0, 30] dB"
    )
    diversity: int = whole(4, "Nakagami branches m of a round's gain, 1 for Rayleigh fading", 1, 1024)
    fading_correlation: float = real(0.0, "correlation rho between rounds, 0 if independent", "[0, 1)")
    d2d_duplex: Literal["full", "half"] = field("full", "whether hops send both ways at once")
    link_errors: Literal["drop", "arq", "harq", "none"] = field(
        "harq",
        "effect of a packet error: micro-batch dropped, sent again, sent again by links that adapt (HARQ of "
        "type I), none",
    )
    max_transmissions: int = whole(
        4, "transmissions after which a micro-batch is dropped", 1, 1_000_000, _with("arq or harq")
    )
    waterfall_threshold: float = real(
        0.023, "waterfall threshold of packet error rates, as a ratio", "[0, 1e3]", _with("drop or arq")
    )
    target_error_rate: float = real(
        0.1,
        "probability with which one transmission of a link that adapts (harq) fails",
        "(0, 0.9]",
        _with("harq"),
    )
    rate_attenuation: float = real(0.75, "share a of Shannon's rate that links reach", "(0, 1]")
    rate_ceiling: float | None = real(
        7.4, "greatest spectral efficiency of a link, null for none", "[0.01, 100] bit/s/Hz"
    )
    snr_floor_db: float | None = real(-10.0, "SNR of the most robust format, null for none", "[-60, 60] dB")
    packet_diversity: float | None = real(
        4,
        "branches of the fading within a round that rates are averaged over, null for none",
        "[0.5, 128]",
    )
    d2d_circuit_w: float = real(0.3, "power of a device-to-device sender's circuits", "[0, 1e4] W")
    edge_circuit_w: float = real(0.8, "power of the circuits of a CU that sends on the uplink", "[0, 1e4] W")
    amplifier_efficiency: float = real(0.35, "emitted over drawn power of an amplifier", "[1e-6, 1]")
    receive_w: float = real(0.3, "power of the receiver of a device-to-device message", "[0, 1e4] W")
    edge_receive_w: float = real(
        0.5, "power of a CU's receiver of gradients and of the new model", "[0, 1e4] W"
    )
    idle_w: float = real(0.1, "power of a radio that is on, for the whole round", "[0, 1e4] W")

    @property
    def noise_w_per_hz(self) -> float:
        """Noise power density of devices and CUs, noise figure included [W/Hz]."""
        return db_to_linear(self.noise_dbm_per_hz - 30.0 + self.device_noise_figure_db)

    @property
    def bs_noise_w_per_hz(self) -> float:
        """Noise power density of the base station, noise figure included [W/Hz]."""
        return db_to_linear(self.noise_dbm_per_hz - 30.0 + self.bs_noise_figure_db)

    @cached_property
    def d2e_links(self) -> Links:
        """Links between CUs and base station."""
        law = path_loss(self.d2e_path_loss, self.path_loss_exponent, self.path_loss_reference_db)
        usual = law.heights_m
        antennas = Antennas(self.carrier_ghz, self.bs_height_m or usual[0], self.device_height_m or usual[1])
        return Links(law, antennas, self.bs_antenna_dbi + self.device_antenna_dbi - self.penetration_db)

    @cached_property
    def d2d_links(self) -> Links:
        """Links between devices, and between them and their CU."""
        law = path_loss(self.d2d_path_loss, self.path_loss_exponent, self.path_loss_reference_db)
        height = self.device_height_m or law.heights_m[1]
        return Links(law, Antennas(self.carrier_ghz, height, height), 2.0 * self.device_antenna_dbi)

    @property
    def shadowing_db(self) -> tuple[float, float]:
        """Deviations of the shadowing of CUs' links and of hops, the largest where links differ [dB]."""
        given = (self.d2e_shadowing_db, self.d2e_links), (self.d2d_shadowing_db, self.d2d_links)
        d2e, d2d = (max(links.law.shadowing_db) if own is None else own for own, links in given)
        return d2e, d2d

    @property
    def shadowing_differs(self) -> bool:
        """Whether the deviation of a link's shadowing depends on its drawn line of sight."""
        given = (self.d2e_shadowing_db, self.d2e_links), (self.d2d_shadowing_db, self.d2d_links)
        return any(own is None and links.law.draws_sight for own, links in given)
