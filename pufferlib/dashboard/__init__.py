"""The terminal dashboard: one panel that is redrawn in place, or plain lines in a pipe."""

from pufferlib.dashboard.base import Dashboard
from pufferlib.dashboard.kinds import Mode, make_dashboard
from pufferlib.dashboard.live import LiveDashboard
from pufferlib.dashboard.plain import PlainDashboard

__all__ = ["Dashboard", "LiveDashboard", "Mode", "PlainDashboard", "make_dashboard"]
