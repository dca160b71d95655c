"""The tokenizer in a GGUF file: rebuilt from its metadata, and said in it."""

from transpect.text.gguf.reader import load_gguf_tokenizer, tokenizer_from
from transpect.text.gguf.writer import tokenizer_metadata

__all__ = ["load_gguf_tokenizer", "tokenizer_from", "tokenizer_metadata"]
