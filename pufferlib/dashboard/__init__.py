"""The terminal dashboard: one panel that is redrawn in place, or plain lines in a pipe."""

from pufferlib.dashboard.dashboards import (
    Dashboard,
    LiveDashboard,
    Mode,
    PlainDashboard,
    make_dashboard,
)

__all__ = ["Dashboard", "LiveDashboard", "Mode", "PlainDashboard", "make_dashboard"]
