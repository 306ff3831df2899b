"""LangChain over the chat completions dialect."""

import openai
from harness import EMPTY, KEY, LIMITED, POOR, READER, REVOKED, URL, Calls, raises, refused_and_waits
from langchain_core.messages import HumanMessage, ToolMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from pydantic import BaseModel


class Event(BaseModel):
    """An event."""

    name: str
    seats: int


@tool
def get_weather(city: str, days: int) -> str:
    """The weather of some days."""
    return f"21 degrees in {city} for {days} days"


@tool
def get_time(zone: str) -> str:
    """The time of a zone."""
    return f"noon in {zone}"


def chat(model="small-chat", key=KEY, **more):
    return ChatOpenAI(model=model, api_key=key, base_url=f"{URL}/v1", **more)


def test_an_answer_has_text_and_usage():
    answer = chat().invoke("Hello")
    assert "simulated" in answer.content and answer.usage_metadata["total_tokens"] > 0
    assert answer.response_metadata["finish_reason"] == "stop"


def test_a_stream_adds_up_and_counts_its_usage_once():
    whole = None
    for chunk in chat(stream_usage=True).stream("Hello"):
        whole = chunk if whole is None else whole + chunk
    plain = chat().invoke("Hello")
    assert "simulated" in whole.content
    assert whole.usage_metadata["input_tokens"] == plain.usage_metadata["input_tokens"]


def test_calls_of_tools_are_parsed_streamed_or_not():
    for model in ["small-chat", "messy"]:
        bound = chat(model).bind_tools([get_weather, get_time])
        whole = None
        for chunk in bound.stream("Use the tools"):
            whole = chunk if whole is None else whole + chunk
        for made in [whole.tool_calls, bound.invoke("Use the tools").tool_calls]:
            assert [call["name"] for call in made] == ["get_weather", "get_time"], (model, made)
            assert set(made[0]["args"]) == {"city", "days"} and made[0]["id"] != made[1]["id"]


def test_a_tool_runs_and_its_result_goes_back():
    bound = chat("org/solo").bind_tools([get_weather])
    turns = [HumanMessage("Use the tool get_weather")]
    turns.append(bound.invoke(turns))
    for call in turns[-1].tool_calls:
        turns.append(ToolMessage(get_weather.invoke(call["args"]), tool_call_id=call["id"]))
    assert "simulated" in bound.invoke(turns).content


def test_structured_output_by_schema_and_by_tool():
    for method in ["json_schema", "function_calling"]:
        event = chat().with_structured_output(Event, method=method).invoke("An event")
        assert isinstance(event, Event), (method, event)


def test_an_overflow_is_known_as_one():
    error = raises(openai.BadRequestError, chat("narrow").invoke, "word " * 20_000)
    assert type(error).__name__ == "OpenAIContextOverflowError", type(error)


def test_what_no_retry_helps_is_asked_once():
    for key, status, kind in [
        (REVOKED, 401, openai.AuthenticationError),
        (POOR, 402, openai.APIStatusError),
        (EMPTY, 402, openai.APIStatusError),
        (READER, 403, openai.PermissionDeniedError),
    ]:
        model = chat(key=key)
        calls = Calls(model.root_client)
        assert raises(kind, model.invoke, "Hello").status_code == status and calls.number == 1


def test_a_rate_limit_is_waited_off():
    model, hasty = chat(key=LIMITED, max_tokens=5), chat(key=LIMITED, max_tokens=5, max_retries=0)
    calls = Calls(model.root_client)
    ask = lambda model: lambda: model.invoke("Hello")
    _, answer = refused_and_waits(openai.RateLimitError, ask(hasty), ask(model), calls)
    assert answer.content


def test_a_stream_that_breaks_raises():
    assert raises(openai.APIError, lambda: list(chat("cut").stream("Hello"))).code == "INFERENCE_3103"


def test_the_responses_dialect_answers_streams_and_calls_tools():
    model = chat(use_responses_api=True)
    answer = model.invoke("Hello")
    assert "simulated" in answer.text and answer.usage_metadata["total_tokens"] > 0
    chunks = list(model.stream("Hello"))
    whole = chunks[0]
    for chunk in chunks[1:]:
        whole = whole + chunk
    assert "simulated" in whole.text and whole.usage_metadata["output_tokens"] > 0
    bound = model.bind_tools([get_weather, get_time])
    called = bound.invoke("Use the tools")
    assert [call["name"] for call in called.tool_calls] == ["get_weather", "get_time"]
    results = [ToolMessage("21 degrees", tool_call_id=call["id"]) for call in called.tool_calls]
    again = bound.invoke([HumanMessage("Use the tools"), called, *results])
    assert "simulated" in again.text
    assert isinstance(model.with_structured_output(Event).invoke("An event"), Event)
