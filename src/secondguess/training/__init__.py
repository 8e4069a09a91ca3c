"""The one training loop and what it needs. It knows neither labels nor language. Needs torch."""
