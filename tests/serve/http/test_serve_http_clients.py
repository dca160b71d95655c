"""Clients that others write work as they are; each where it is installed."""

from __future__ import annotations

from typing import Any

import pytest

pytestmark = pytest.mark.slow
MESSAGES = [{"role": "user", "content": "小猫"}]


def test_langchain(build: Any, listen: Any) -> None:
    langchain = pytest.importorskip("langchain_openai")
    with listen(build("writer", "vectors")) as server:
        common = {"base_url": f"{server.url}/v1", "api_key": "none-at-all"}
        model = langchain.ChatOpenAI(model="writer", max_tokens=8, temperature=0, **common)
        answer = model.invoke(MESSAGES)
        assert answer.usage_metadata["output_tokens"] == 8
        assert "".join(chunk.content for chunk in model.stream(MESSAGES)) == answer.content
        schema = {"title": "Yes", "type": "object", "properties": {"ok": {"type": "boolean"}}, "required": ["ok"]}
        longer = langchain.ChatOpenAI(model="writer", max_tokens=90, temperature=0, **common)
        assert set(longer.with_structured_output(schema, method="json_schema").invoke(MESSAGES)) >= {"ok"}
        vectors = langchain.OpenAIEmbeddings(model="vectors", check_embedding_ctx_length=False, **common)
        assert len(vectors.embed_query("a")) == 16


def test_litellm(build: Any, listen: Any) -> None:
    litellm = pytest.importorskip("litellm")
    with listen(build("writer")) as server:
        common = {"model": "openai/writer", "api_base": f"{server.url}/v1", "api_key": "none", "max_tokens": 6}
        answer = litellm.completion(messages=MESSAGES, temperature=0, **common)
        assert answer.usage.completion_tokens == 6
        chunks = litellm.completion(messages=MESSAGES, temperature=0, stream=True, **common)
        text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks)
        assert text == answer.choices[0].message.content
        with pytest.raises(litellm.BadRequestError):
            litellm.completion(messages=MESSAGES, n=100, num_retries=0, **common)
