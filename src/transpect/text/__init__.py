"""Text to ids and back: tokenizers of every kind, trained, opened, streamed, with chat templates. No torch."""

from transpect.text.answers import Answers, encode_answers
from transpect.text.chat import chat_template, encode_chat, render_chat
from transpect.text.kinds import KINDS, Bpe, ByteBpe, Char, Kind, Unigram, WordPiece
from transpect.text.load import load_tokenizer
from transpect.text.stopping import StopMatcher
from transpect.text.streaming import StreamDecoder
from transpect.text.tokenizer import ROLES, Tokenizer
from transpect.text.train import train_tokenizer

__all__ = [
    "KINDS",
    "ROLES",
    "Answers",
    "Bpe",
    "ByteBpe",
    "Char",
    "Kind",
    "StopMatcher",
    "StreamDecoder",
    "Tokenizer",
    "Unigram",
    "WordPiece",
    "chat_template",
    "encode_answers",
    "encode_chat",
    "load_tokenizer",
    "render_chat",
    "train_tokenizer",
]
