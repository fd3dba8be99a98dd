"""Numbers as short text: counts, durations, values, memory and shares."""

from __future__ import annotations

import math


def format_count(count: float) -> str:
    """Return at most four characters of digits: 999, 1.2k, 251k, 12.4M, 3B; "-" for NaN."""
    if not math.isfinite(count):
        return "-"
    scaled = abs(count)
    for unit in ("", "k", "M", "B", "T"):
        digits = 1 if unit and scaled < 99.95 else 0
        if round(scaled, digits) < 1000 or unit == "T":
            break
        scaled /= 1000
    text = f"{scaled:.{digits}f}".removesuffix(".0")
    return f"{'-' if count < 0 else ''}{text}{unit}"


def format_duration(seconds: float) -> str:
    """Return 12.3s, 3m12s, 2h05m, 4d03h; "-" for NaN."""
    if not math.isfinite(seconds) or seconds < 0:
        return "-"
    if seconds < 59.95:
        return f"{seconds:.1f}s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes}m{rest:02d}s"
    hours, minutes = divmod(minutes, 60)
    if hours < 24:
        return f"{hours}h{minutes:02d}m"
    days, hours = divmod(hours, 24)
    return f"{days}d{hours:02d}h"


def format_value(value: float) -> str:
    """Return about four digits: 123.4, 56, 6.25, 0.610, 3.0e-4, or a count; "-" for NaN."""
    if not math.isfinite(value):
        return "-"
    size = abs(value)
    if size >= 99_999.5:
        return format_count(value)
    if value == int(value):
        return str(int(value))
    if size >= 99.995:
        return f"{value:.1f}"
    if size >= 0.9995:
        return f"{value:.2f}"
    if size >= 0.001:
        return f"{value:.3f}"
    mantissa, exponent = f"{value:.1e}".split("e")
    return f"{mantissa}e{int(exponent)}"


def format_memory(megabytes: float) -> str:
    """Return 812 MB, 4.1 GB; "-" for NaN."""
    if not math.isfinite(megabytes):
        return "-"
    return f"{megabytes:.0f} MB" if megabytes < 999.5 else f"{megabytes / 1000:.1f} GB"


def format_percent(fraction: float) -> str:
    return f"{100 * fraction:.0f}%" if math.isfinite(fraction) else "-"


def format_short(value: float) -> str:
    """Return `format_value` without trailing zeros, for running text."""
    text = format_value(value)
    return text.rstrip("0").rstrip(".") if "." in text and text[-1] == "0" else text
