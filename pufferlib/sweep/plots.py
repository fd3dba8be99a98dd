"""Pictures of a sweep: score against cost and over the sweep, importance, parallel coordinates."""

from __future__ import annotations

import io
import warnings
from pathlib import Path
from typing import Any

import numpy as np

from pufferlib.errors import imported, one_line
from pufferlib.files import write_atomically
from pufferlib.sweep.report import Report, format_value
from pufferlib.sweep.study import Study, Trial

_COLORS = {"complete": "#1f77b4", "stopped": "#b0b0b0"}
_LINE, _BEST = "#d62728", "#2ca02c"
_MAX_LABEL = 24


def draw(study: Study, report: Report, path: Path) -> None:
    """Draw all four pictures into one PNG."""
    imported("matplotlib", "sweep", "Matplotlib")
    import matplotlib

    matplotlib.use("Agg")  # no window, no display
    from matplotlib import pyplot

    with matplotlib.rc_context(), warnings.catch_warnings():
        matplotlib.rcdefaults()  # not those of a matplotlibrc in the working folder
        matplotlib.rcParams["text.parse_math"] = False  # names may have any sign
        warnings.simplefilter("ignore")  # about glyphs that the font lacks
        write_atomically(path, _drawn(pyplot, study, report))


def _drawn(pyplot: Any, study: Study, report: Report) -> bytes:
    """Return the PNG."""
    scored = [t for t in report.trials if len(t.curve) and t.state in _COLORS]
    figure, axes = pyplot.subplots(2, 2, figsize=(13, 9), constrained_layout=True)
    try:
        _draw_front(axes[0, 0], study, report, scored)
        _draw_progress(axes[0, 1], study, report, scored)
        _draw_importance(axes[1, 0], report)
        _draw_coordinates(axes[1, 1], study, report, scored)
        counts = ", ".join(
            f"{report.count(state)} {state}"
            for state in ("complete", "stopped", "cut", "failed", "lost")
            if report.count(state)
        )
        figure.suptitle(f"{one_line(study.name, 80)}: {len(report.trials)} trials ({counts})")
        picture = io.BytesIO()
        figure.savefig(picture, dpi=110, format="png")
    finally:
        pyplot.close(figure)
    return picture.getvalue()


def _draw_front(axes: Any, study: Study, report: Report, scored: list[Trial]) -> None:
    axes.set(title="score against cost of a trial", ylabel=study.config.metric)
    axes.set_xlabel(study.config.cost)
    for state, color in _COLORS.items():
        part = [t for t in scored if t.state == state]
        axes.scatter(
            [t.cost for t in part], [t.score for t in part], s=22, c=color, label=state, alpha=0.8
        )
    front = report.pareto
    if front:
        axes.step(
            [t.cost for t in front], [t.score for t in front],
            where="post", c=_LINE, lw=1.5, label="Pareto front",
        )  # fmt: skip
        axes.scatter([t.cost for t in front], [t.score for t in front], s=30, c=_LINE, zorder=3)
    if report.best is not None:
        best = report.best
        axes.scatter([best.cost], [best.score], s=160, marker="*", c=_BEST, zorder=4, label="best")
    costs = [t.cost for t in scored if t.cost > 0]
    if costs and max(costs) > 5 * min(costs):
        axes.set_xscale("log")
    _focus(axes, scored)
    axes.legend(loc="best", fontsize=8)
    axes.grid(alpha=0.25)


def _draw_progress(axes: Any, study: Study, report: Report, scored: list[Trial]) -> None:
    axes.set(title="score over the sweep", xlabel=f"total cost ({study.config.cost})")
    total = np.cumsum([t.cost for t in scored])
    for state, color in _COLORS.items():
        part = [i for i, t in enumerate(scored) if t.state == state]
        axes.scatter(total[part], [scored[i].score for i in part], s=18, c=color, alpha=0.8)
    better = np.maximum if study.config.goal == "maximize" else np.minimum
    scores = np.array([t.score if t.state == "complete" else np.nan for t in scored])
    if np.isfinite(scores).any():
        fill = np.nanmin(scores) if study.config.goal == "maximize" else np.nanmax(scores)
        so_far = better.accumulate(np.where(np.isfinite(scores), scores, fill))
        first = int(np.isfinite(scores).argmax())
        axes.step(total[first:], so_far[first:], where="post", c=_LINE, label="best so far")
        axes.legend(loc="lower right", fontsize=8)
    _focus(axes, scored)
    axes.grid(alpha=0.25)


def _draw_importance(axes: Any, report: Report) -> None:
    axes.set(title="importance: share of the score's variation")
    if not report.importance:
        axes.text(0.5, 0.5, "too few trials", ha="center", va="center", transform=axes.transAxes)
        axes.set_axis_off()
        return
    keys = list(report.importance)[:12][::-1]
    axes.barh(
        [_short(key) for key in keys], [report.importance[key] for key in keys], color="#1f77b4"
    )
    axes.grid(alpha=0.25, axis="x")


def _draw_coordinates(axes: Any, study: Study, report: Report, scored: list[Trial]) -> None:
    """Draw a line for each trial through its values; the better, the warmer."""
    keys = list(report.importance) or list(study.space.ranges)
    keys = keys[:8][::-1]  # the most important beside the score
    axes.set(title="parallel coordinates: complete trials, warm colours are better")
    complete = [t for t in scored if t.state == "complete"]
    if not complete:
        axes.set_axis_off()
        return
    from matplotlib import colormaps

    sign = 1 if study.config.goal == "maximize" else -1
    ranks = np.argsort(np.argsort([sign * t.score for t in complete])) / max(1, len(complete) - 1)
    places = range(len(keys))
    for index in np.argsort(ranks):
        trial = complete[index]
        heights = [_height(study, key, trial.config[key]) for key in keys]
        color = colormaps["turbo"](0.08 + 0.84 * ranks[index])
        axes.plot(places, heights, c=color, alpha=0.25 + 0.7 * ranks[index] ** 2, lw=1.4)
    for place, key in enumerate(keys):
        axes.axvline(place, c="#888888", lw=0.8)
        values = [t.config[key] for t in complete]
        low = min(values, key=lambda value: _height(study, key, value))
        high = max(values, key=lambda value: _height(study, key, value))
        for value in [low, high] if low != high else [low]:
            at = _height(study, key, value)
            axes.annotate(
                format_value(value), (place, at), fontsize=7,
                xytext=(3, 2 if value is high else -8), textcoords="offset points",
            )  # fmt: skip
    axes.set_xticks(list(places), [_short(key) for key in keys], rotation=20, fontsize=8)
    axes.set_yticks([])
    axes.set_ylim(-0.06, 1.06)
    axes.set_xlim(-0.15, len(keys) - 0.5)


def _height(study: Study, key: str, value: Any) -> float:
    """Return where a value lies on its axis, from 0 to 1."""
    parts = study.space.ranges[key].encode(value)
    if len(parts) == 1:
        return parts[0]
    if len(parts) == 2 and parts[0] in (0.0, 1.0):  # can be off
        return 0.0 if parts[0] == 0 else 0.15 + 0.85 * parts[1]
    return float(np.argmax(parts)) / max(1, len(parts) - 1)


def _focus(axes: Any, scored: list[Trial]) -> None:
    """Leave out the worst tail of the scores, which would squeeze all others together."""
    if len(scored) < 8:
        return
    scores = np.array([t.score for t in scored])
    low, high = np.quantile(scores, [0.1, 1.0])
    reach = high - low
    if reach > 0 and scores.min() < low - 2 * reach:
        axes.set_ylim(low - 0.3 * reach, high + 0.08 * reach)


def _short(key: str) -> str:
    name = key.removeprefix("train.")
    return name if len(name) <= _MAX_LABEL else f"{name[: _MAX_LABEL - 2]}.."
