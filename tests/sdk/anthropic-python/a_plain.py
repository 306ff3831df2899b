"""Plain messages, on a provider that speaks the dialect and on one that does not."""

import anthropic
from harness import KEY, PIXEL, URL, Calls, sent, has_metadata

client = anthropic.Anthropic(api_key=KEY, base_url=URL)
HELLO = [{"role": "user", "content": "Hello"}]
MODELS = ["small-chat", "native"]


def ask(model="small-chat", messages=HELLO, max_tokens=200, **more):
    return client.messages.create(model=model, messages=messages, max_tokens=max_tokens, **more)


def test_an_answer_tells_its_text_its_usage_and_what_it_cost():
    for model in MODELS:
        answer = ask(model)
        assert answer.type == "message" and answer.role == "assistant" and answer.id.startswith("msg_")
        assert answer.model == model and answer.stop_reason == "end_turn" and answer.stop_sequence is None
        assert [block.type for block in answer.content] == ["text"] and "simulated" in answer.content[0].text
        assert answer.usage.input_tokens >= 0 and answer.usage.output_tokens > 0
        assert has_metadata(answer), model


def test_the_answer_carries_the_name_that_was_asked_for():
    for name in ["claude-haiku-4-5", "claude-sonnet-4-5", "org/solo"]:
        answer = ask(name)
        assert answer.model == name and has_metadata(answer)


def test_a_flavor_is_part_of_a_models_name():
    for flavor in ["balanced", "speed", "price", "eco"]:
        calls = Calls(client)
        assert ask(f"claude-haiku-4-5:{flavor}").model.startswith("claude-haiku-4-5")
        assert calls.head["x-penstock-flavor"] == flavor


def test_both_headers_carry_the_key():
    for one in [
        anthropic.Anthropic(api_key=KEY, base_url=URL),
        anthropic.Anthropic(auth_token=KEY, api_key=None, base_url=URL),
    ]:
        assert has_metadata(one.messages.create(model="small-chat", messages=HELLO, max_tokens=50))


def test_any_version_and_any_beta_is_taken():
    for version in ["2023-06-01", "2026-10-21", "1999-01-01"]:
        headers = {"anthropic-version": version, "anthropic-beta": "a-2020-01-01,b"}
        assert ask(extra_headers=headers, extra_query={"beta": "true"}).content


def test_the_beta_namespace_answers():
    answer = client.beta.messages.create(
        model="small-chat", messages=HELLO, max_tokens=50, betas=["whatever-2025-01-01"]
    )
    assert answer.content[0].text


def test_every_answer_has_a_request_id():
    raw = client.messages.with_raw_response.create(model="small-chat", messages=HELLO, max_tokens=50)
    assert raw.headers["request-id"] == raw.headers["x-request-id"]
    if hasattr(ask(), "_request_id"):
        assert ask()._request_id


def test_temperature_is_taken_however_it_is_sent():
    assert ask(extra_body={"temperature": 0.2, "top_p": 0.9, "top_k": 5}).content


def test_a_stop_sequence_is_told():
    for model in MODELS:
        answer = ask(model, stop_sequences=["answer"])
        assert answer.stop_reason in ("stop_sequence", "end_turn"), answer.stop_reason
        assert "answer" not in answer.content[0].text
        if model == "native":
            assert (answer.stop_reason, answer.stop_sequence) == ("stop_sequence", "answer")


def test_a_bound_of_tokens_ends_with_max_tokens():
    for model in MODELS:
        answer = ask(model, max_tokens=5)
        assert answer.stop_reason == "max_tokens" and answer.usage.output_tokens == 5


def test_system_blocks_and_cache_control_are_taken():
    cache = {"type": "ephemeral"}
    blocks = [{"type": "text", "text": "One."}, {"type": "text", "text": "Two.", "cache_control": cache}]
    turn = {"role": "user", "content": [{"type": "text", "text": "Hello", "cache_control": cache}]}
    answer = ask("org/solo", [turn], system=blocks)
    assert answer.content[0].text
    asked = sent()
    assert asked["messages"][0] == {"role": "system", "content": "One.\n\nTwo."}
    assert "cache_control" not in str(asked)


def test_system_in_the_middle_keeps_its_place():
    turns = [
        {"role": "user", "content": "Hello"},
        {"role": "assistant", "content": "Yes?"},
        {"role": "system", "content": "Be brief from now on."},
        {"role": "user", "content": "Why?"},
    ]
    assert ask("org/solo", turns, extra_body={}).content[0].text
    asked = sent()["messages"]
    words = str(asked)
    assert words.index("Yes?") < words.index("Be brief") < words.index("Why?"), asked


def test_an_answer_that_was_begun_goes_on():
    turns = [*HELLO, {"role": "assistant", "content": "This is"}]
    for model in ["org/solo", "native"]:
        text = ask(model, turns).content[0].text
        assert not text.startswith("This is a simulated"), (model, text)


def test_a_picture_reaches_the_provider():
    source = {"type": "base64", "media_type": "image/png", "data": PIXEL}
    turn = {"role": "user", "content": [{"type": "text", "text": "See?"}, {"type": "image", "source": source}]}
    assert ask("org/solo", [turn]).usage.input_tokens > 0
    assert sent()["messages"][-1]["content"][-1]["image_url"]["url"] == f"data:image/png;base64,{PIXEL}"
    assert ask("native", [turn]).content[0].text


def test_thinking_is_shown_when_it_is_asked_for():
    hidden = ask("thinker", max_tokens=2000)
    assert [block.type for block in hidden.content] == ["text"]
    shown = ask("thinker", max_tokens=2000, extra_body={"thinking": {"type": "enabled", "budget_tokens": 1024}})
    assert [block.type for block in shown.content] == ["thinking", "text"]
    thinking = shown.content[0]
    assert "reasoning" in thinking.thinking and isinstance(thinking.signature, str) and thinking.signature


def test_thinking_can_be_sent_back():
    more = {"extra_body": {"thinking": {"type": "enabled", "budget_tokens": 1024}}, "max_tokens": 2000}
    first = ask("thinker", **more)
    again = [*HELLO, {"role": "assistant", "content": first.content}, {"role": "user", "content": "Go on"}]
    assert ask("thinker", again, **more).content[-1].text


def test_an_agents_request_goes_through():
    tools = [{"name": f"tool_{n}", "description": "x", "input_schema": {"type": "object"}} for n in range(30)]
    body = {
        "output_config": {"effort": "high"},
        "metadata": {"user_id": '{"device":"x","session":"y"}'},
        "context_management": {"edits": []},
        "thinking": {"type": "adaptive"},
    }
    system = [{"type": "text", "text": "x-anthropic-billing-header: cc_version=1; cch=abc"}, {"type": "text", "text": "Be an agent."}]
    calls = Calls(client)
    with client.messages.stream(
        model="claude-haiku-4-5", messages=HELLO, max_tokens=64_000, tools=tools, system=system,
        extra_body=body, extra_query={"beta": "true"},
    ) as stream:
        final = stream.get_final_message()
    assert final.content[-1].text and calls.number == 1
