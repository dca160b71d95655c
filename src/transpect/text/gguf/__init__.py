"""The tokenizer in a GGUF file: rebuilt from its metadata, and said in it."""

from transpect.text.gguf.reader import load_gguf_tokenizer, tokenizer_from

__all__ = ["load_gguf_tokenizer", "tokenizer_from"]
