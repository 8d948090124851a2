"""What a run tells besides its results: how much of the Unified Buffer it used, what it moved, how full its queues were."""

from dataclasses import dataclass
from typing import Any

__all__ = ["RunSummary", "summary_of"]


@dataclass(frozen=True)
class RunSummary:
    """Counts of one launch, over all blocks. str() is a text of some lines. Without the checker only ub_peak and queues are counted."""

    kernel: str
    ub_peak: int
    ub_limit: int
    gm_read: int
    gm_written: int
    instructions: int
    queues: dict[str, int]

    def __str__(self) -> str:
        lines = [
            f"kernel {self.kernel}",
            f"  Unified Buffer  {self.ub_peak} of {self.ub_limit} bytes at most ({100 * self.ub_peak / self.ub_limit:.1f} %)",
            f"  global memory   {self.gm_read} bytes read, {self.gm_written} bytes written",
            f"  instructions    {self.instructions}",
        ]
        lines += [f"  {name}: at most {depth} in it" for name, depth in self.queues.items()]
        return "\n".join(lines)


def summary_of(kernel: str, counts: dict[str, Any]) -> RunSummary:
    """The summary in the core library's findings."""
    return RunSummary(kernel=kernel, **counts)
