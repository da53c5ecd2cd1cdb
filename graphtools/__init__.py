"""The graph layer: ONNX in, recovered structure and golden tensors out.

It knows no GGUF and never imports ``converters``. Import what you need from its modules:
``graphtools.onnx_file.load``, ``graphtools.graph.build``, ``graphtools.recover.recover``.
"""

__all__: list[str] = []
