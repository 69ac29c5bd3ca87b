"""The least time work can take on this machine, by its measured roofline.

Must not know plans or backends. No backend reaches it; `calibration` knows how far each is off.
"""

from gearshift.ir.roofline import Roofline
from gearshift.ir.work import Work


def least_s(work: Work, roofline: Roofline, threads: int) -> float:
    """Arithmetic divides over threads; bytes come from the nearest level that holds them all."""
    share = min(1.0, threads / roofline.num_threads)
    level_bytes_s = (
        roofline.l3_bytes_s if work.set_bytes <= roofline.caches.l3_bytes else roofline.dram_bytes_s
    )
    return max(work.flops / (roofline.peak_flops_s * share), work.set_bytes / level_bytes_s)
