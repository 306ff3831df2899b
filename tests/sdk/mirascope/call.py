"""Mirascope over responses, its default for OpenAI, over chat completions and over messages."""

from harness import KEY, URL, raises
from mirascope import llm
from pydantic import BaseModel

llm.register_provider("openai", api_key=KEY, base_url=f"{URL}/v1")
llm.register_provider("anthropic", api_key=KEY, base_url=URL)

# The prefix and the suffix of a name choose the dialect.
MODELS = [
    f"{start}{name}{end}"
    for start, end in [("openai/", ""), ("openai/", ":completions"), ("anthropic/", "")]
    for name in ["small-chat", "native"]
]


class Event(BaseModel):
    """An event."""

    name: str
    seats: int


@llm.tool
def get_weather(city: str) -> str:
    """The weather of a city."""
    return f"Rain in {city}."


def has_usage(response):
    return response.usage.input_tokens > 0 and response.usage.output_tokens > 0


def test_an_answer_has_text_and_usage():
    for name in MODELS:
        response = llm.Model(name, max_tokens=200).call("Hello")
        assert "simulated" in response.text() and has_usage(response), (name, response.usage)


def test_a_tool_runs_and_its_result_goes_back():
    for name in MODELS:

        @llm.call(name, tools=[get_weather])
        def ask():
            return "Use the tool get_weather"

        response = ask()
        assert [call.name for call in response.tool_calls] == ["get_weather"], (name, response.content)
        outputs = response.execute_tools()
        assert "Rain in" in outputs[0].result, (name, outputs)
        response = response.resume(outputs)
        assert "simulated" in response.text() and not response.tool_calls and has_usage(response), name


def test_structured_output_has_its_type():
    for name in MODELS:
        for wanted in [Event, llm.format(Event, mode="tool")]:
            response = llm.Model(name).call("An event", format=wanted)
            assert isinstance(response.parse(), Event), (name, wanted)


def test_a_stream_has_text_and_usage():
    for name in MODELS:
        stream = llm.Model(name).stream("Hello")
        parts = list(stream.text_stream())
        assert len(parts) > 2 and "simulated" in "".join(parts) and has_usage(stream), (name, stream.usage)


def test_a_streamed_tool_call_is_answered():
    for name in MODELS:
        stream = llm.Model(name).stream("Use the tool get_weather", tools=[get_weather])
        stream.finish()
        assert [call.name for call in stream.tool_calls] == ["get_weather"], (name, stream.content)
        rest = stream.resume(stream.execute_tools())
        assert "simulated" in "".join(rest.text_stream()), name


def test_a_streamed_object_has_its_type():
    for name in MODELS:
        stream = llm.Model(name).stream("An event", format=Event)
        stream.finish()
        assert isinstance(stream.parse(), Event), name


def test_an_unknown_model_is_not_found():
    for name in ["openai/nothing", "openai/nothing:completions", "anthropic/nothing"]:
        error = raises(llm.NotFoundError, llm.Model(name).call, "Hello")
        assert error.status_code == 404, (name, error)
