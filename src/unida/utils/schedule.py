"""Schedules: learning rate and loss weights as functions of training progress.

The configuration, the training loop and methods use them (GLC restarts the schedule within a run),
so they live below all three. A learning-rate schedule is added here alone, in `SCHEDULES`.
"""

import math
from collections.abc import Callable


def inverse_decay(progress: float) -> float:
    """Compute (1 + 10 t/T)^(−0.75), constant from T on.

    Args:
        progress: t/T, the share of the run that is done.

    Returns:
        The factor of the initial learning rate.

    Reference:
        Ganin and Lempitsky, "Unsupervised Domain Adaptation by Backpropagation", ICML 2015;
        docs/methods/index.md.

    Example:
        >>> round(0.01 * inverse_decay(0.5), 11)
        0.0026084743
    """
    return float((1 + 10 * min(1.0, progress)) ** -0.75)


def cosine(progress: float) -> float:
    """Compute ½ (1 + cos π t/T), which falls from 1 to 0 at T.

    Example:
        >>> cosine(0.0), round(cosine(0.5), 12)
        (1.0, 0.5)
    """
    return (1 + math.cos(math.pi * min(1.0, progress))) / 2


def constant(progress: float) -> float:
    """Return 1 throughout."""
    return 1.0


SCHEDULES: dict[str, Callable[[float], float]] = {
    "inverse_decay": inverse_decay,
    "cosine": cosine,
    "constant": constant,
}
"""Learning-rate schedules by name: progress → factor of the initial learning rate."""


def is_schedule(text: str) -> bool:
    """Return whether `lr_factor` understands a schedule."""
    name, colon, horizon = text.partition(":")
    whole = horizon.isascii() and horizon.isdigit() and len(horizon) < 10 and int(horizon) > 0
    return name in SCHEDULES and (whole or not colon)


def lr_factor(schedule: str, step: int, steps: int) -> float:
    """Compute the factor of the initial learning rate at a step.

    Args:
        schedule: a name of `SCHEDULES`, which decays over the run, or `NAME:T`, which decays over
            T steps whatever the length of the run, as the released UAN and DCC do.
        step: from 0.
        steps: of the run.

    Example:
        >>> lr_factor("inverse_decay", 100, 200) == lr_factor("inverse_decay:200", 100, 1000)
        True
    """
    name, _, horizon = schedule.partition(":")
    return SCHEDULES[name](step / (int(horizon) if horizon else steps))


def exponential_rampup(step: int, horizon: float, gamma: float = 3.0) -> float:
    """Compute w(t) = exp(−γ (T − t) / T), which rises from e^−γ to 1 at the horizon T.

    Example:
        >>> exponential_rampup(5000, 5000)
        1.0
    """
    return math.exp(-gamma * (horizon - step) / horizon)
