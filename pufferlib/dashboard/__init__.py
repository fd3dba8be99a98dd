"""The terminal dashboard: one panel that is redrawn in place, or plain lines in a pipe."""

from pufferlib.dashboard.dashboards import Dashboard, make_dashboard
from pufferlib.dashboard.record import Record, format_count

__all__ = ["Dashboard", "Record", "format_count", "make_dashboard"]
