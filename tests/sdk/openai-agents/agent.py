"""The OpenAI Agents SDK over chat completions and over responses, its default: tools, handoffs, streams, usage."""

import asyncio

from agents import (
    Agent,
    OpenAIChatCompletionsModel,
    OpenAIResponsesModel,
    Runner,
    function_tool,
    handoff,
    set_tracing_disabled,
)
from harness import KEY, URL
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


def responder(name="small-chat", **more):
    client = AsyncOpenAI(api_key=KEY, base_url=f"{URL}/v1")
    return Agent(name="Assistant", instructions="Be brief.", model=OpenAIResponsesModel(model=name, openai_client=client), **more)


def test_the_default_model_class_answers_with_text_tools_and_usage():
    for name in ["small-chat", "native", "messy"]:
        result = asyncio.run(Runner.run(responder(name, tools=[get_weather]), "Use the tool get_weather"))
        kinds = [item.type for item in result.new_items]
        assert kinds == ["tool_call_item", "tool_call_output_item", "message_output_item"], (name, kinds)
        usage = result.context_wrapper.usage
        assert usage.requests == 2 and usage.input_tokens > 0 and usage.output_tokens > 0, usage


def test_the_default_model_class_streams_and_hands_over():
    other = responder("native")
    first = responder(handoffs=[handoff(other, tool_name_override="transfer_to_other")])

    async def streamed():
        result = Runner.run_streamed(first, "Use the tool transfer_to_other")
        deltas = 0
        async for event in result.stream_events():
            deltas += event.type == "raw_response_event"
        return result, deltas

    result, deltas = asyncio.run(streamed())
    assert result.last_agent is other and "simulated" in result.final_output and deltas > 5
