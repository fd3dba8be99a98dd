"""Ocean: the suite of native C environments."""
