"""What a model may ask of whoever applies its gradients: to correct each for the delay that it comes with.

A gradient `g` was computed from the parameters that its worker had been given. By the time it is applied, others have
changed them. DC-ASGD (Zheng et al. 2017) takes `g + lam * g * g * (now - given)` instead, element by element: the
gradient as it would be now, as far as its own square can tell.
"""

from __future__ import annotations

from msgspec import Struct


class Compensation(Struct, frozen=True):
    """How strongly to correct a gradient: by `lam`, the same for all elements.

    With `memory` it is adaptive: each element has `lam / sqrt(s + 1e-7)`, where `s` is a running mean of its squared
    gradients, `memory * s + (1 - memory) * g * g`.
    """

    lam: float
    memory: float | None = None
