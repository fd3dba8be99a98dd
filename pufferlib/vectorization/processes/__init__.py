"""Worker processes: who starts, watches and ends them, and how they talk."""
