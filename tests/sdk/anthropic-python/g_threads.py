"""Threads: the client falls back to sending the whole history, which reaches the provider."""

import anthropic
from harness import KEY, URL, Calls, raises, sent

client = anthropic.Anthropic(api_key=KEY, base_url=URL)
THREADS = hasattr(client.beta.messages, "thread")
RUNNER = hasattr(client.beta.messages, "tool_runner")
HELLO = [{"role": "user", "content": "Hello"}]


def roles():
    return [turn["role"] for turn in sent()["messages"]]


def test_a_thread_goes_on_with_the_whole_history():
    if not THREADS:
        return
    calls = Calls(client)
    thread = client.beta.messages.thread(
        model="org/solo", max_tokens=100, system="Be brief.", unsupported_request_behavior="continue_unthreaded"
    )
    assert thread.send({"role": "user", "content": "Hello"}).content[0].text
    assert calls.number == 2, "once with the thread, once without"
    assert roles() == ["system", "user"]
    assert thread.send({"role": "user", "content": "Go on"}).content[0].text
    assert calls.number == 3 and roles() == ["system", "user", "assistant", "user"]


def test_a_thread_that_must_be_one_is_an_error_that_names_it():
    if not THREADS:
        return
    thread = client.beta.messages.thread(model="org/solo", max_tokens=100)
    error = raises(anthropic.BadRequestError, thread.send, {"role": "user", "content": "Hello"})
    details = error.body["error"]["details"]
    assert details["error_code"] == "thread_unsupported_request" and details["unsupported"] == ["thread"]
    assert details["code"] == "INFERENCE_3202"


def test_a_tool_runner_reaches_its_last_turn():
    if not RUNNER:
        return

    @anthropic.beta_tool
    def get_weather(city: str) -> str:
        """The weather of a city."""
        return f"Rain in {city}."

    runner = client.beta.messages.tool_runner(
        model="org/solo", max_tokens=500, system="Be brief.", tools=[get_weather],
        messages=[{"role": "user", "content": "Use the tool get_weather"}],
    )
    turns = list(runner)
    assert [turn.stop_reason for turn in turns] == ["tool_use", "end_turn"], [turn.stop_reason for turn in turns]
    asked = sent()
    assert roles() == ["system", "user", "assistant", "tool"] and asked["tools"], asked
