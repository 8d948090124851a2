"""Twenty blocks add their rows to one; whole numbers, so that the order of the additions does not show."""

from pathlib import Path

import numpy as np

from anycann import ascendc

module = ascendc.build(Path(__file__).with_name("atomic_sum.cpp"))
x = np.arange(20 * 64, dtype=np.float32).reshape(20, 64)
total = np.full(64, np.nan, dtype=np.float32)

module.atomic_sum[20](x, total, 64)
print(total[:4], bool((total == x.sum(axis=0)).all()))

try:
    module.atomic_sum[60](np.zeros((60, 64), np.float32), total, 64)
except ascendc.KernelError as error:
    print(error.reports[0].what)
