"""Table 7.4.1-1 and 7.4.2-1 of 3GPP TR 38.901 in plain scalar Python, one function a row."""

from math import exp, hypot, log, log10, sqrt


def uma_los(d, f, bs=25.0, ut=1.5):
    direct, dbp = hypot(d, bs - ut), 4 * (bs - 1) * (ut - 1) * f * 1e9 / 3e8
    if d <= dbp:
        return 28.0 + 22 * log10(direct) + 20 * log10(f)
    return 28.0 + 40 * log10(direct) + 20 * log10(f) - 9 * log10(dbp**2 + (bs - ut) ** 2)


def uma_nlos(d, f, bs=25.0, ut=1.5):
    own = 13.54 + 39.08 * log10(sqrt(d**2 + (bs - ut) ** 2)) + 20 * log10(f) - 0.6 * (ut - 1.5)
    return max(uma_los(d, f, bs, ut), own)


def umi_los(d, f, bs=10.0, ut=1.5):
    direct, dbp = hypot(d, bs - ut), 4 * (bs - 1) * (ut - 1) * f * 1e9 / 3e8
    if d <= dbp:
        return 32.4 + 21 * log10(direct) + 20 * log10(f)
    return 32.4 + 40 * log10(direct) + 20 * log10(f) - 9.5 * log10(dbp**2 + (bs - ut) ** 2)


def umi_nlos(d, f, bs=10.0, ut=1.5):
    own = 35.3 * log10(hypot(d, bs - ut)) + 22.4 + 21.3 * log10(f) - 0.3 * (ut - 1.5)
    return max(umi_los(d, f, bs, ut), own)


def inh_los(d, f, bs=3.0, ut=1.0):
    return 32.4 + 17.3 * log10(hypot(d, bs - ut)) + 20 * log10(f)


def inh_nlos(d, f, bs=3.0, ut=1.0):
    return max(inh_los(d, f, bs, ut), 38.3 * log10(hypot(d, bs - ut)) + 17.3 + 24.9 * log10(f))


def inf_los(d, f, bs=1.5, ut=1.5):
    return 31.84 + 21.5 * log10(hypot(d, bs - ut)) + 19 * log10(f)


def inf_sl(d, f, bs=1.5, ut=1.5):
    return max(33 + 25.5 * log10(hypot(d, bs - ut)) + 20 * log10(f), inf_los(d, f, bs, ut))


def inf_dl(d, f, bs=1.5, ut=1.5):
    own = 18.6 + 35.7 * log10(hypot(d, bs - ut)) + 20 * log10(f)
    return max(own, inf_los(d, f, bs, ut), inf_sl(d, f, bs, ut))


def inf_h_los(d, f, bs=8.0, ut=1.5):
    return inf_los(d, f, bs, ut)


def inf_sh(d, f, bs=8.0, ut=1.5):
    return max(32.4 + 23.0 * log10(hypot(d, bs - ut)) + 20 * log10(f), inf_los(d, f, bs, ut))


def inf_dh(d, f, bs=8.0, ut=1.5):
    return max(33.63 + 21.9 * log10(hypot(d, bs - ut)) + 20 * log10(f), inf_los(d, f, bs, ut))


def street(d, decay):
    return 1.0 if d <= 18 else 18 / d + exp(-d / decay) * (1 - 18 / d)


def roofs(d, _=25.0, ut=1.5):
    if d <= 18:
        return 1.0
    c = 0.0 if ut <= 13 else ((min(ut, 23) - 13) / 10) ** 1.5
    return street(d, 63) * (1 + c * 5 / 4 * (d / 100) ** 3 * exp(-d / 150))


def open_office(d):
    if d <= 5:
        return 1.0
    return exp(-(d - 5) / 70.8) if d <= 49 else exp(-(d - 49) / 211.7) * 0.54


def mixed_office(d):
    if d <= 1.2:
        return 1.0
    return exp(-(d - 1.2) / 4.7) if d < 6.5 else exp(-(d - 6.5) / 32.6) * 0.32


def factory(d, clutter, density):
    return exp(d * log(1 - density) / clutter)


def high_factory(d, clutter, density, height, bs, ut):
    if ut >= height:
        return 1.0
    k = -clutter / log(1 - density) * max((bs - ut) / (height - ut), 1.0)
    return exp(-d / k)


ROWS = {
    "uma": (uma_los, uma_nlos, roofs, (4, 6)),
    "umi": (umi_los, umi_nlos, lambda d, *_: street(d, 36), (4, 7.82)),
    "inh-open": (inh_los, inh_nlos, lambda d, *_: open_office(d), (3, 8.03)),
    "inh-mixed": (inh_los, inh_nlos, lambda d, *_: mixed_office(d), (3, 8.03)),
    "inf-sl": (inf_los, inf_sl, lambda d, *_: factory(d, 10, 0.2), (4.3, 5.7)),
    "inf-dl": (inf_los, inf_dl, lambda d, *_: factory(d, 2, 0.6), (4.3, 7.2)),
    "inf-sh": (inf_h_los, inf_sh, lambda d, bs=8.0, ut=1.5: high_factory(d, 10, 0.2, 2, bs, ut), (4.3, 5.9)),
    "inf-dh": (inf_h_los, inf_dh, lambda d, bs=8.0, ut=1.5: high_factory(d, 2, 0.6, 6, bs, ut), (4.3, 4.0)),
}
"""With and without a line of sight, the probability of one, and both deviations of the shadowing [dB]."""
