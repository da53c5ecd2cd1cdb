"""Where models come from: a path, a folder, or a Hugging Face id."""

__all__: list[str] = []
