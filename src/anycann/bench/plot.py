"""The picture of a report: our bytes per second against the ceilings, and the ratios to the best peers."""

import importlib
import importlib.util
import io
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

__all__ = ["SUFFIXES", "available", "draw"]

SUFFIXES = (".png", ".pdf", ".svg")

Result = Mapping[str, Any]

_OURS, _PEER, _CEILING, _STEP = "#1f6f8b", "#c8553d", "#222222", "#8a8a8a"
_SHORT = {"float32": "f32", "float16": "f16", "bfloat16": "bf16"}
_ROW = 0.26  # inches of a row
_WIDTH = 14.0


def available() -> bool:
    """Whether matplotlib is installed."""
    return importlib.util.find_spec("matplotlib") is not None


def _label(result: Result) -> str:
    operator = re.sub("_(grad_beta|grad|loss_backward|backward_v2)$", "′", result["operator"])
    return f"{operator}  {result['workload']}  {_SHORT[result['dtype']]}"


def _line(result: Result) -> Mapping[str, Any]:
    """Ours with given outputs."""
    line: Mapping[str, Any] = next(line for line in result["lines"] if not line["allocates"])
    return line


def _comparison(result: Result, kind: str) -> Mapping[str, Any] | None:
    return next((each for each in _line(result)["comparisons"] if each["kind"] == kind), None)


def _peer_rate(result: Result) -> float | None:
    """Bytes per second of the best peer."""
    best = _comparison(result, "best peer")
    peer = next((each for each in result["contenders"] if best is not None and each["name"] == best["name"]), None)
    return None if peer is None else (result["bytes_read"] + result["bytes_written"]) / peer["seconds"]["median"]


def _ceiling_rate(result: Result) -> float | None:
    ceiling = result["ceiling"]
    if ceiling is None:
        return None
    samples = sorted(ceiling["samples"])
    return float(ceiling["bytes"] / samples[len(samples) // 2])


def _rates(axes: Any, results: Sequence[Result]) -> None:
    places = range(len(results))
    axes.barh(places, [_line(result)["bytes_per_second"] / 1e9 for result in results], color=_OURS, height=0.62, label="anycann, out=")
    for rates, style, label in (
        ([_peer_rate(result) for result in results], {"marker": "o", "color": _PEER, "s": 26}, "best peer"),
        ([_ceiling_rate(result) for result in results], {"marker": "|", "color": _CEILING, "s": 150, "linewidths": 2}, "ceiling of memory"),
    ):
        known = [(rate / 1e9, place) for rate, place in zip(rates, places, strict=True) if rate is not None]
        if known:
            axes.scatter(*zip(*known, strict=True), zorder=3, label=label, **style)
    axes.set_xlabel("GB/s, each byte counted once")
    axes.set_xlim(left=0)


def _ratios(axes: Any, results: Sequence[Result]) -> None:
    axes.axvline(1, color=_CEILING, linewidth=1)
    labels = {"target": "gate and goal", "value": "median and quartiles"}
    for place, result in enumerate(results):
        best = _comparison(result, "best peer")
        if best is None:
            continue
        steps = [best["target"][name] for name in ("gate", "goal") if best["target"][name] is not None]
        axes.scatter(steps, [place] * len(steps), marker="|", color=_STEP, s=110, linewidths=1.6, label=labels.pop("target", None))
        value = best["value"]
        spread = [[value["median"] - value["q1"]], [value["q3"] - value["median"]]]
        axes.errorbar(value["median"], place, xerr=spread, fmt="o", color=_OURS, markersize=5, capsize=2.5, label=labels.pop("value", None))
    axes.set_xscale("log")
    axes.set_xlabel("time of the best peer / ours")
    low, high = axes.get_xlim()
    ticks = [tick for tick in (0.25, 0.5, 0.7, 1, 1.5, 2, 3, 5, 7, 10, 20, 50, 100) if low <= tick <= high]
    axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    axes.minorticks_off()


def draw(report: Mapping[str, Any], path: str) -> None:
    """Write a picture (one of SUFFIXES): one row of panels for each number of threads. ValueError if no result of the report is right."""
    right = [result for result in report["results"] if not result["wrong"]]
    threads = sorted({result["threads"] for result in right})
    if not right:
        raise ValueError("there is no result to draw")
    importlib.import_module("matplotlib").use("Agg")
    pyplot: Any = importlib.import_module("matplotlib.pyplot")
    groups = [[result for result in right if result["threads"] == count] for count in threads]
    heights = [1.3 + _ROW * len(group) for group in groups]
    figure, panels = pyplot.subplots(
        len(groups), 2, figsize=(_WIDTH, sum(heights)), squeeze=False, gridspec_kw={"height_ratios": heights}, layout="constrained"
    )
    for count, group, (left, right_panel) in zip(threads, groups, panels, strict=True):
        _rates(left, group)
        _ratios(right_panel, group)
        for axes in (left, right_panel):
            axes.set_ylim(len(group) - 0.4, -0.6)
            axes.set_yticks(range(len(group)), [_label(result) for result in group] if axes is left else [], fontsize=9)
            axes.grid(axis="x", color="#dddddd", linewidth=0.6)
            axes.set_axisbelow(True)
            axes.spines[["top", "right"]].set_visible(False)
            axes.tick_params(axis="y", length=0)
            for place in range(1, len(group)):
                if group[place]["operator"] != group[place - 1]["operator"]:
                    axes.axhline(place - 0.5, color="#bbbbbb", linewidth=0.8)
        left.set_title(f"{count} thread{'s' * (count > 1)}", loc="left", fontweight="bold")
        left.legend(loc="lower right", bbox_to_anchor=(1, 1), ncols=3, frameon=False, fontsize=9)
        right_panel.legend(loc="lower right", bbox_to_anchor=(1, 1), ncols=2, frameon=False, fontsize=9)
    versions = report["versions"]
    figure.suptitle(f"{report['machine']['processor']}; anycann {versions['anycann']}, torch {versions['torch'] or 'not installed'}")
    picture = io.BytesIO()
    figure.savefig(picture, format=Path(path).suffix[1:], dpi=130)
    pyplot.close(figure)
    Path(path).write_bytes(picture.getvalue())
