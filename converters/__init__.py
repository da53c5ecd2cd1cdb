"""Bindings into manifests and GGUF files; proof, replay, goldens and comparison."""

__all__: list[str] = []
