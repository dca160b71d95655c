"""ONNX: a model as graphs that other runtimes open, in the names that the field gives to their inputs and outputs."""

from transpect.interop.onnx.write import FILES, onnx_files, write_onnx

__all__ = ["FILES", "onnx_files", "write_onnx"]
