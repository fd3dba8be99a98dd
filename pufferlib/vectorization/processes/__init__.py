"""Worker processes: starting, watching and ending them, and the channels to them."""
