"""How to slow nodes down on purpose: one text for a run, a comparison and the simulator.

    worker 3: 5x                       an iteration takes 5 times as long as it computed
    worker 0: 1x-5x                    so many times as long, drawn anew for each iteration
    worker 0: lognormal 0.5            the same, with this sigma and the median 1
    worker 1: +50ms                    so much longer each time; +10ms-50ms is drawn anew
    server 0: 0.16% +4s                with this probability only; here an answer is late
    worker 2: 5x for 10s every 60s     by the time since the start; `from 30s` begins later
    workers 0,2-3: 3x                  several of them; `worker *` is all

Several texts add up. What a node draws depends on the seed, the node and the slowness, and on nothing else: a text more
or less, or another synchronization model, leaves its other draws as they are.
"""

from paceline.slowness.delays import Delays, check
from paceline.slowness.text import parse
from paceline.slowness.values import Lognormal, Plus, Role, Slowness, SlownessError, Times

__all__ = ["Delays", "Lognormal", "Plus", "Role", "Slowness", "SlownessError", "Times", "check", "parse"]
