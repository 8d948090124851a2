"""Sequences for the tests of NSA compression and its gradient: a name, the number of tokens, running sums of the lengths."""

LENGTHS = {
    "one sequence": (100, None),
    "two, with a leading 0": (130, (0, 60, 130)),
    "two, without": (130, [60, 130]),
    "one token more than a window": (33, (33,)),
    "exactly a window": (32, (32,)),
    "shorter than a window": (31, (31,)),
    "all shorter than a window": (90, (20, 51, 82, 90)),
    "of length 0 between others": (150, (0, 0, 40, 40, 40, 150, 150)),
    "of one token": (70, (1, 2, 35, 36, 69, 70)),
    "tails of every length": (500, (40, 81, 123, 166, 210, 255, 301, 348, 396, 445, 500)),
}
