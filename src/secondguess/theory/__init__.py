"""What the paper proves, as functions of arrays. NumPy and SciPy only, float64, no torch."""
