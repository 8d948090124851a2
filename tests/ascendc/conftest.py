"""A fixture that builds small kernels written on the spot."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from anycann import ascendc


@pytest.fixture
def make(tmp_path: Path) -> Callable[..., ascendc.Module]:
    """Build a module from the body of a kernel called `kernel`, or from a whole source."""

    def build(body: str, parameters: str = "GM_ADDR x, GM_ADDR y", *, head: str = "", **options: Any) -> ascendc.Module:
        source = body
        if "__global__" not in body:
            source = f'{head}\nextern "C" __global__ __aicore__ void kernel({parameters})\n{{\n{body}\n}}\n'
        path = tmp_path / "kernel.cpp"
        path.write_text(f'#include "kernel_operator.h"\n{source}')
        return ascendc.build(path, **options)

    return build
