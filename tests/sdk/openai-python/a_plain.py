"""Plain chat completions: what a user reads first."""

import openai
from harness import KEY, PIXEL, URL, Calls, nulls, sent, has_metadata, lacks_metadata

client = openai.OpenAI(api_key=KEY, base_url=f"{URL}/v1")
HELLO = [{"role": "user", "content": "Hello"}]


def test_an_answer_tells_its_text_its_usage_and_what_it_cost():
    answer = client.chat.completions.create(model="small-chat", messages=HELLO)
    assert answer.id.startswith("chatcmpl-") and answer.object == "chat.completion"
    assert answer.model == "small-chat", answer.model
    choice = answer.choices[0]
    assert choice.index == 0 and choice.finish_reason == "stop"
    assert choice.message.role == "assistant" and "simulated" in choice.message.content
    usage = answer.usage
    assert usage.prompt_tokens > 0 and usage.completion_tokens > 0
    assert usage.total_tokens == usage.prompt_tokens + usage.completion_tokens
    assert has_metadata(answer)


def test_the_key_may_come_as_x_api_key_alone():
    headers = {"Authorization": openai._types.Omit(), "x-api-key": KEY}
    answer = client.chat.completions.create(model="small-chat", messages=HELLO, extra_headers=headers)
    assert has_metadata(answer)


def test_every_answer_has_a_request_id():
    answer = client.chat.completions.create(model="small-chat", messages=HELLO)
    assert answer._request_id


def test_a_flavor_and_an_alias_are_names_of_the_model():
    for name in ["small-chat:eco", "small-chat:speed", "gpt-4o-mini", "gpt-4o-mini:price"]:
        calls = Calls(client)
        answer = client.chat.completions.create(model=name, messages=HELLO)
        assert has_metadata(answer) and answer.model, name
        if ":" in name:
            assert calls.head["x-penstock-flavor"] == name.split(":")[1], name


def test_fields_of_newer_and_older_clients_are_taken():
    answer = client.chat.completions.create(
        model="small-chat",
        messages=[{"role": "developer", "content": "Be brief."}, *HELLO],
        max_completion_tokens=9,
        store=False,
        metadata={"a": "b"},
        user="someone",
        service_tier="auto",
        extra_body={"stream_options": None, "functions": None, "unheard_of": {"deep": [1]}},
    )
    assert answer.usage.completion_tokens <= 9


def test_n_answers_come_in_order():
    answer = client.chat.completions.create(model="small-chat", messages=HELLO, n=2)
    assert [choice.index for choice in answer.choices] == [0, 1]
    assert all(choice.message.content for choice in answer.choices)


def test_a_stop_string_ends_the_answer_and_is_not_in_it():
    answer = client.chat.completions.create(model="small-chat", messages=HELLO, stop=["answer"])
    assert answer.choices[0].finish_reason == "stop"
    assert "answer" not in answer.choices[0].message.content


def test_a_bound_of_tokens_ends_with_length():
    answer = client.chat.completions.create(model="small-chat", messages=HELLO, max_tokens=5)
    assert answer.choices[0].finish_reason == "length" and answer.usage.completion_tokens == 5


def test_reasoning_is_in_reasoning_content():
    answer = client.chat.completions.create(model="thinker", messages=HELLO, reasoning_effort="low")
    message = answer.choices[0].message
    assert "reasoning" in message.reasoning_content and "reasoning" not in (message.content or "")


def test_a_picture_reaches_the_provider():
    url = f"data:image/png;base64,{PIXEL}"
    parts = [{"type": "text", "text": "What is it?"}, {"type": "image_url", "image_url": {"url": url}}]
    answer = client.chat.completions.create(model="org/solo", messages=[{"role": "user", "content": parts}])
    assert answer.usage.prompt_tokens >= 256
    assert sent()["messages"][-1]["content"][-1]["image_url"]["url"] == url


def test_an_answer_can_be_sent_back_as_it_came():
    first = client.chat.completions.create(model="org/solo", messages=HELLO)
    again = [*HELLO, first.choices[0].message, {"role": "user", "content": "And now?"}]
    answer = client.chat.completions.create(model="org/solo", messages=again)
    assert answer.choices[0].message.content
    asked = sent()
    assert nulls(asked["messages"]) == [], asked["messages"]
    assert asked["messages"][1] == {"role": "assistant", "content": first.choices[0].message.content}


def test_the_raw_answer_names_provider_flavor_and_attempts():
    raw = client.chat.completions.with_raw_response.create(model="org/solo", messages=HELLO)
    assert raw.headers["x-penstock-provider"] == "sdk-lyon"
    assert raw.headers["x-penstock-flavor"] == "balanced"
    assert raw.headers["x-penstock-attempts"] == "1"
    assert raw.headers["x-request-id"] == raw.headers["request-id"]


def test_what_is_inside_message_is_only_the_message():
    answer = client.chat.completions.create(model="small-chat", messages=HELLO)
    assert lacks_metadata(answer.choices[0].message) and lacks_metadata(answer.usage)
