"""The order in which column sums are added: constants of the operators that have them."""

__all__ = ["ROWS_PER_RUN", "RUNS_PER_PARTIAL"]

ROWS_PER_RUN = 16  # rows added one after the other in float32
RUNS_PER_PARTIAL = 64  # runs added one after the other in float64; the partials then are, too
