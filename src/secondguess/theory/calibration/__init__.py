"""Everything that a calibration set guarantees: Algorithm 1, its families, bounds on means."""
