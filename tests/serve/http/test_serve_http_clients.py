"""Clients that others write work as they are; each where it is installed."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import openai
import pytest

from transpect.serve.http.limits import Limits

pytestmark = pytest.mark.slow
MESSAGES: Any = [{"role": "user", "content": "小猫"}]
TOOL: Any = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "Of a place.",
        "parameters": {
            "type": "object",
            "properties": {"place": {"enum": ["Rome", "Oslo"]}},
            "required": ["place"],
            "additionalProperties": False,
        },
    },
}
SCHEMA: Any = {"type": "object", "properties": {"ok": {"type": "boolean"}}, "required": ["ok"]}


def test_openai(build: Any, listen: Any) -> None:
    with listen(build("writer", "vectors", limits=Limits(default_max_tokens=12, body_bytes=4000))) as server:
        client = openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0)
        chat = client.chat.completions
        common: Any = {"model": "writer", "messages": MESSAGES, "temperature": 1, "seed": 5}

        answer = chat.create(max_completion_tokens=6, n=2, logprobs=True, top_logprobs=3, **common)
        assert [own.index for own in answer.choices] == [0, 1]
        for own in answer.choices:
            assert own.logprobs is not None and own.logprobs.content is not None
            assert all(len(token.top_logprobs) >= 3 for token in own.logprobs.content)
        streamed: dict[int, str] = {0: "", 1: ""}
        for chunk in chat.create(max_completion_tokens=6, n=2, stream=True, **common):
            for piece in chunk.choices:
                streamed[piece.index] += piece.delta.content or ""
        assert [streamed[own.index] for own in answer.choices] == [own.message.content for own in answer.choices]

        called = chat.create(max_tokens=200, tools=[TOOL], tool_choice="required", **common).choices[0]
        assert called.finish_reason == "tool_calls" and called.message.tool_calls
        call = called.message.tool_calls[0]
        assert call.function.name == "weather" and json.loads(call.function.arguments)["place"] in ("Rome", "Oslo")
        told = [*MESSAGES, called.message, {"role": "tool", "tool_call_id": call.id, "content": "sunny"}]
        assert chat.create(**{**common, "messages": told}, max_tokens=3, tools=[TOOL]).usage

        form: Any = {"type": "json_schema", "json_schema": {"name": "yes", "schema": SCHEMA}}
        held = chat.create(max_tokens=150, response_format=form, **common).choices[0]
        assert held.finish_reason == "length" or isinstance(json.loads(held.message.content or "")["ok"], bool)

        raw = client.embeddings.create(model="vectors", input=["a", "小猫"], encoding_format="float")
        packed = client.embeddings.create(model="vectors", input=["a", "小猫"])  # base64 underneath
        for one, other in zip(raw.data, packed.data, strict=True):
            assert one.embedding == pytest.approx(other.embedding)

        for broken, kind in (
            ({"messages": []}, openai.BadRequestError),
            ({"model": "nobody"}, openai.NotFoundError),
            ({"temperature": 7}, openai.BadRequestError),
        ):
            with pytest.raises(kind):
                chat.create(**{**common, **broken})
        with pytest.raises(openai.APIStatusError) as long:
            chat.create(**{**common, "messages": [{"role": "user", "content": "a" * 5000}]})
        assert long.value.status_code == 413
        with pytest.raises(openai.APITimeoutError):
            client.with_options(timeout=0.001).completions.create(model="writer", prompt="The", max_tokens=400)
        assert server.service.active in (0, 1)

        async def several() -> list[str]:
            own = openai.AsyncOpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0)
            many = [own.chat.completions.create(max_tokens=6, **common) for _ in range(8)]
            return [str(found.choices[0].message.content) for found in await asyncio.gather(*many)]

        assert len(set(asyncio.run(several()))) == 1


def test_openai_with_keys(build: Any, listen: Any) -> None:
    from transpect.serve.http.keys import Key

    with listen(build("writer", keys=(Key("0123456789abcdef", "me", requests_per_minute=1),))) as server:
        with pytest.raises(openai.AuthenticationError):
            openai.OpenAI(base_url=f"{server.url}/v1", api_key="wrong", max_retries=0).models.list()
        client = openai.OpenAI(base_url=f"{server.url}/v1", api_key="0123456789abcdef", max_retries=0)
        client.completions.create(model="writer", prompt="The", max_tokens=1)
        with pytest.raises(openai.RateLimitError) as many:
            client.completions.create(model="writer", prompt="The", max_tokens=1)
        assert int(many.value.response.headers["retry-after"]) >= 1


def test_langchain(build: Any, listen: Any) -> None:
    langchain = pytest.importorskip("langchain_openai")
    with listen(build("writer", "vectors")) as server:
        common = {"base_url": f"{server.url}/v1", "api_key": "none-at-all", "model": "writer", "temperature": 0}
        model = langchain.ChatOpenAI(max_tokens=8, **common)
        answer = model.invoke(MESSAGES)
        assert answer.usage_metadata["output_tokens"] == 8
        assert "".join(chunk.content for chunk in model.stream(MESSAGES)) == answer.content
        longer = langchain.ChatOpenAI(max_tokens=200, **{**common, "temperature": 1, "seed": 5})
        schema = {"title": "Yes", **SCHEMA}
        assert set(longer.with_structured_output(schema, method="json_schema").invoke(MESSAGES)) >= {"ok"}
        called = longer.bind_tools([TOOL], tool_choice="weather").invoke(MESSAGES)
        assert called.tool_calls[0]["name"] == "weather"
        vectors = langchain.OpenAIEmbeddings(
            base_url=common["base_url"], api_key="none", model="vectors", check_embedding_ctx_length=False
        )
        assert len(vectors.embed_query("a")) == 16


def test_litellm(build: Any, listen: Any) -> None:
    litellm = pytest.importorskip("litellm")
    with listen(build("writer", "vectors")) as server:
        common = {"model": "openai/writer", "api_base": f"{server.url}/v1", "api_key": "none"}
        answer = litellm.completion(messages=MESSAGES, temperature=0, max_tokens=6, **common)
        assert answer.usage.completion_tokens == 6
        chunks = litellm.completion(messages=MESSAGES, temperature=0, max_tokens=6, stream=True, **common)
        text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks)
        assert text == answer.choices[0].message.content
        called = litellm.completion(messages=MESSAGES, max_tokens=200, tools=[TOOL], tool_choice="required", **common)
        assert called.choices[0].message.tool_calls[0].function.name == "weather"
        found = litellm.embedding(input=["a"], **{**common, "model": "openai/vectors"})
        assert len(found.data[0]["embedding"]) == 16
        with pytest.raises(litellm.BadRequestError):
            litellm.completion(messages=MESSAGES, n=100, num_retries=0, **common)
