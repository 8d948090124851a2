"""Where the formulas of the derivative change, on every backend."""

__all__ = ["NONE_END", "QUARTER_OCTAVE", "TANH_END"]

NONE_END, TANH_END = 14.7, 11.2  # from here on d rounds to its limits 0 and 1
QUARTER_OCTAVE = 21  # bits(t) >> 21 counts the quarters of the octaves
