"""Rounds of two cells as made-up machines would give them: log-ratios whose truth is known. None was measured."""

import numpy as np

NOISE = 0.015
MODES = 0.10
DRIFT = 0.01


def log_ratios(kind, seed, rounds=12):
    """``log(b / a)`` of each round: ``equal``, ``3%``, ``5%``, ``drifting`` (abba order) or ``bimodal``."""
    random = np.random.default_rng(seed)
    a, b = random.normal(0, NOISE, (2, rounds))
    if kind in ("3%", "5%"):
        b += np.log1p(float(kind[:-1]) / 100)
    elif kind == "drifting":  # every worker runs 1 % slower than the one before it: 27 % from first to last
        first, second = DRIFT * np.arange(2 * rounds).reshape(rounds, 2).T
        turned = np.arange(rounds) % 2 == 1
        a += np.where(turned, second, first)
        b += np.where(turned, first, second)
    elif kind == "bimodal":  # each process lands in one of two states, such as lucky and unlucky pages
        a, b = (a, b) + MODES * random.integers(0, 2, (2, rounds))
    else:
        assert kind == "equal"
    return b - a
