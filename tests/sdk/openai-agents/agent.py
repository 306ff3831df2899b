"""The OpenAI Agents SDK over chat completions: a tool, a stream, and the usage that it counts."""

import asyncio

from agents import Agent, OpenAIChatCompletionsModel, Runner, function_tool, set_tracing_disabled
from house import KEY, URL
from openai import AsyncOpenAI

set_tracing_disabled(True)


@function_tool
def get_weather(city: str) -> str:
    """The weather of a city."""
    return f"Rain in {city}."


def agent(name="small-chat", tools=()):
    client = AsyncOpenAI(api_key=KEY, base_url=f"{URL}/v1")
    model = OpenAIChatCompletionsModel(model=name, openai_client=client)
    return Agent(name="Assistant", instructions="Be brief.", model=model, tools=list(tools))


def run(prompt, **more):
    return asyncio.run(Runner.run(agent(**more), prompt))


def test_an_answer_has_text_and_usage():
    result = run("Hello")
    usage = result.context_wrapper.usage
    assert "simulated" in result.final_output
    assert usage.requests == 1 and usage.input_tokens > 0 and usage.output_tokens > 0, usage


def test_a_tool_runs_and_its_result_reaches_the_last_turn():
    result = run("Use the tool get_weather", tools=[get_weather])
    kinds = [item.type for item in result.new_items]
    assert kinds == ["tool_call_item", "tool_call_output_item", "message_output_item"], kinds
    assert result.context_wrapper.usage.requests == 2


def test_a_stream_counts_its_usage_without_being_told_to_ask_for_it():
    async def streamed():
        result = Runner.run_streamed(agent(), "Hello")
        deltas = 0
        async for event in result.stream_events():
            deltas += event.type == "raw_response_event"
        return result, deltas

    result, deltas = asyncio.run(streamed())
    assert "simulated" in result.final_output and deltas > 2
    usage = result.context_wrapper.usage
    assert usage.input_tokens > 0 and usage.output_tokens > 0, usage
