"""LangChain over the messages dialect."""

import anthropic
from harness import EMPTY, KEY, LIMITED, PIXEL, POOR, READER, REVOKED, URL, Calls, raises, refused_and_waits
from langchain_anthropic import ChatAnthropic
from langchain_core.messages import HumanMessage, SystemMessage, ToolMessage
from langchain_core.tools import tool
from pydantic import BaseModel

MODELS = ["small-chat", "native"]


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
    return ChatAnthropic(model=model, api_key=key, base_url=URL, max_tokens=2000, **more)


def streamed(model, words):
    whole = None
    for chunk in model.stream(words):
        whole = chunk if whole is None else whole + chunk
    return whole


def text(message):
    content = message.content
    return content if isinstance(content, str) else "".join(block.get("text", "") for block in content)


def test_an_answer_has_text_and_usage():
    for model in MODELS:
        answer = chat(model).invoke([SystemMessage("Be brief."), HumanMessage("Hello")])
        assert "simulated" in text(answer) and answer.usage_metadata["total_tokens"] > 0, model


def test_a_stream_adds_up_and_counts_its_usage_once():
    for model in [*MODELS, "messy"]:
        whole = streamed(chat(model), "Hello")
        assert "simulated" in text(whole), model
        plain = chat(model).invoke("Hello").usage_metadata
        assert whole.usage_metadata["output_tokens"] > 0
        assert whole.usage_metadata["input_tokens"] == plain["input_tokens"], (model, whole.usage_metadata, plain)


def test_calls_of_tools_are_parsed_streamed_or_not():
    for model in [*MODELS, "messy"]:
        bound = chat(model).bind_tools([get_weather, get_time])
        for made in [streamed(bound, "Use the tools").tool_calls, bound.invoke("Use the tools").tool_calls]:
            assert [call["name"] for call in made] == ["get_weather", "get_time"], (model, made)
            assert set(made[0]["args"]) == {"city", "days"} and made[0]["id"] != made[1]["id"]


def test_a_tool_runs_and_its_result_goes_back():
    for model in ["org/solo", "native"]:
        bound = chat(model).bind_tools([get_weather])
        turns = [HumanMessage("Use the tool get_weather")]
        turns.append(bound.invoke(turns))
        for call in turns[-1].tool_calls:
            turns.append(ToolMessage(get_weather.invoke(call["args"]), tool_call_id=call["id"]))
        assert "simulated" in text(bound.invoke(turns)), model


def test_structured_output_by_tool():
    for model in MODELS:
        event = chat(model).with_structured_output(Event).invoke("An event")
        assert isinstance(event, Event), (model, event)


def test_thinking_comes_before_the_text():
    thinking = {"type": "enabled", "budget_tokens": 1024}
    for answer in [
        chat("thinker", thinking=thinking).invoke("Hello"),
        streamed(chat("thinker", thinking=thinking), "Hello"),
    ]:
        assert [block["type"] for block in answer.content] == ["thinking", "text"], answer.content
        assert answer.content[0]["signature"]


def test_a_picture_is_taken():
    source = {"type": "image", "source_type": "base64", "mime_type": "image/png", "data": PIXEL}
    turn = HumanMessage([{"type": "text", "text": "See?"}, source])
    for model in ["org/solo", "native"]:
        assert "simulated" in text(chat(model).invoke([turn])), model


def test_tokens_are_counted():
    assert chat().get_num_tokens_from_messages([HumanMessage("Hello")]) > 0


def test_an_overflow_is_known_as_one():
    error = raises(anthropic.BadRequestError, chat("narrow").invoke, "word " * 20_000)
    assert type(error).__name__ == "AnthropicContextOverflowError", type(error)


def test_what_no_retry_helps_is_asked_once():
    for key, status, kind in [
        (REVOKED, 401, anthropic.AuthenticationError),
        (POOR, 402, anthropic.APIStatusError),
        (EMPTY, 402, anthropic.APIStatusError),
        (READER, 403, anthropic.PermissionDeniedError),
    ]:
        model = chat(key=key)
        calls = Calls(model._client)
        assert raises(kind, model.invoke, "Hello").status_code == status and calls.number == 1


def test_a_rate_limit_is_waited_off():
    model, hasty = chat(key=LIMITED), chat(key=LIMITED, max_retries=0)
    calls = Calls(model._client)
    ask = lambda model: lambda: model.invoke("Hello")
    _, answer = refused_and_waits(anthropic.RateLimitError, ask(hasty), ask(model), calls)
    assert answer.content


def test_a_stream_that_breaks_raises():
    error = raises(anthropic.APIStatusError, lambda: list(chat("cut").stream("Hello")))
    assert "INFERENCE_3103" in str(error.body)
