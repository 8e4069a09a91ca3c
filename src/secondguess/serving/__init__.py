"""An OpenAI-compatible server whose answers carry a bound, and its page. Needs FastAPI."""
