"""The factor 1 / N of the mean."""

import numpy as np

__all__ = ["reciprocal"]


def reciprocal(n: int) -> float:
    """1 / n rounded once to float32."""
    near = np.float32(1 / n)  # rounded twice, so it may be the neighbour of the nearest
    candidates = [float(np.nextafter(near, np.float32(end))) for end in (0, 1)] + [float(near)]
    ratios = [(candidate, *candidate.as_integer_ratio()) for candidate in candidates]
    return min(ratios, key=lambda ratio: (abs(n * ratio[1] - ratio[2]) / ratio[2], ratio[1] & 1))[0]
