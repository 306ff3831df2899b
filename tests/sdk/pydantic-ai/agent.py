"""Pydantic AI over all dialects: text, tools, structured output, streams with usage."""

import asyncio

from harness import KEY, URL
from pydantic import BaseModel
from pydantic_ai import Agent
from pydantic_ai.models.anthropic import AnthropicModel
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.providers.anthropic import AnthropicProvider
from pydantic_ai.providers.openai import OpenAIProvider


class Event(BaseModel):
    """An event."""

    name: str
    seats: int


def models():
    yield OpenAIChatModel("small-chat", provider=OpenAIProvider(base_url=f"{URL}/v1", api_key=KEY))
    yield OpenAIResponsesModel("small-chat", provider=OpenAIProvider(base_url=f"{URL}/v1", api_key=KEY))
    yield AnthropicModel("small-chat", provider=AnthropicProvider(base_url=URL, api_key=KEY))


def test_an_answer_has_text_and_usage():
    for model in models():
        result = Agent(model).run_sync("Hello")
        usage = result.usage() if callable(result.usage) else result.usage
        assert "simulated" in result.output and usage.input_tokens > 0 and usage.output_tokens > 0, model


def test_a_tool_runs_and_its_result_goes_back():
    for model in models():
        asked = []
        agent = Agent(model)

        @agent.tool_plain
        def get_weather(city: str) -> str:
            """The weather of a city."""
            asked.append(city)
            return f"Rain in {city}."

        result = agent.run_sync("Use the tool get_weather")
        assert len(asked) == 1 and result.output, model


def test_structured_output_has_its_type():
    for model in models():
        result = Agent(model, output_type=Event).run_sync("An event")
        assert isinstance(result.output, Event), model


def test_a_stream_has_text_and_usage():
    async def streamed(model):
        async with Agent(model).run_stream("Hello") as result:
            text = [delta async for delta in result.stream_text(delta=True)]
            usage = result.usage() if callable(result.usage) else result.usage
            return "".join(text), usage

    for model in models():
        text, usage = asyncio.run(streamed(model))
        assert "simulated" in text and usage.input_tokens > 0 and usage.output_tokens > 0, model
