"""LiteLLM as a client, with its Router: it sends members of its own and reads the errors of both dialects."""

import litellm
from harness import KEY, REVOKED, URL, raises

litellm.telemetry = False
HELLO = [{"role": "user", "content": "Hello"}]
DIALECTS = [("openai/small-chat", f"{URL}/v1"), ("anthropic/small-chat", URL)]


def ask(model, base, key=KEY, **more):
    return litellm.completion(model=model, api_base=base, api_key=key, messages=HELLO, max_tokens=200, **more)


def test_an_answer_has_text_and_usage():
    for model, base in DIALECTS:
        answer = ask(model, base)
        assert "simulated" in answer.choices[0].message.content, model
        assert answer.usage.prompt_tokens > 0 and answer.usage.completion_tokens > 0, model


def test_a_stream_has_text_and_usage():
    for model, base in DIALECTS:
        chunks = list(ask(model, base, stream=True, stream_options={"include_usage": True}))
        text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
        usages = [chunk.usage for chunk in chunks if getattr(chunk, "usage", None)]
        assert "simulated" in text and usages[-1].completion_tokens > 0, model


def test_a_wrong_key_is_an_authentication_error():
    for model, base in DIALECTS:
        raises(litellm.AuthenticationError, ask, model, base, key=REVOKED)


def test_the_router_falls_back_to_another_model():
    def deployment(name, model):
        params = {"model": f"openai/{model}", "api_base": f"{URL}/v1", "api_key": KEY, "max_retries": 0}
        return {"model_name": name, "litellm_params": params}

    router = litellm.Router(
        model_list=[deployment("first", "down"), deployment("second", "small-chat")],
        fallbacks=[{"first": ["second"]}],
        num_retries=0,
    )
    answer = router.completion(model="first", messages=HELLO)
    assert "simulated" in answer.choices[0].message.content


def test_responses_are_answered_and_streamed():
    base = {"model": "openai/small-chat", "api_base": f"{URL}/v1", "api_key": KEY, "input": "Hello"}
    answer = litellm.responses(**base)
    assert "simulated" in answer.output[0].content[0].text and answer.usage.output_tokens > 0
    kinds = [event.type for event in litellm.responses(stream=True, **base)]
    assert kinds[0] == "response.created" and kinds[-1] == "response.completed", kinds
