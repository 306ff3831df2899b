"""Errors: the class, the code and the field that a user can act on; how often a client tries."""

import time

import openai
from harness import EMPTY, KEY, LIMITED, LYON, POOR, READER, REVOKED, URL, Calls, raises, refused_and_waits

HELLO = [{"role": "user", "content": "Hello"}]


def client(key=KEY, **more):
    return openai.OpenAI(api_key=key, base_url=f"{URL}/v1", **more)


def refused(kind, key=KEY, model="small-chat", messages=HELLO, **more):
    made = client(key)
    calls = Calls(made)
    error = raises(kind, made.chat.completions.create, model=model, messages=messages, **more)
    assert calls.number == 1, calls.number
    assert error.request_id and isinstance(error.code, str), error.body
    assert error.body["code"] == error.code and error.body["message"] in str(error)
    return error


def test_no_wrong_and_revoked_keys_are_401_once():
    for key in ["nothing", "sk-svc-" + "a" * 62, KEY[:-1], REVOKED]:
        error = refused(openai.AuthenticationError, key)
        assert (error.status_code, error.code, error.type) == (401, "AUTH_1001", "invalid_api_key")
        assert key == "nothing" or key[10:] not in str(error.body)


def test_a_missing_scope_is_403_and_named():
    error = refused(openai.PermissionDeniedError, READER)
    assert error.type == "insufficient_scope"
    assert error.body["details"]["required_scope"] == "inference.chat"


def test_a_budget_that_is_used_up_is_402_once():
    error = refused(openai.APIStatusError, POOR)
    assert (error.status_code, error.code, error.type) == (402, "BILLING_4002", "budget_exceeded")


def test_an_account_without_credits_is_402_once_and_told_what_it_lacks():
    error = refused(openai.APIStatusError, EMPTY)
    assert (error.status_code, error.code, error.type) == (402, "BILLING_4001", "insufficient_credits")
    details = error.body["details"]
    assert details["wallet"] == "credits" and details["required"] > details["available"] == 0


def test_a_rate_limit_is_429_and_waited_off():
    made, hasty = client(LIMITED), client(LIMITED, max_retries=0)
    calls = Calls(made)
    ask = {"model": "small-chat", "messages": HELLO, "max_tokens": 5}
    refusal, answer = refused_and_waits(
        openai.RateLimitError,
        lambda: hasty.chat.completions.create(**ask),
        lambda: made.chat.completions.create(**ask),
        calls,
    )
    assert (refusal.code, refusal.type) == ("RATE_2001", "rate_limit_exceeded") and answer.choices
    assert calls.head["x-ratelimit-limit-requests"] == "20"
    assert calls.head["x-ratelimit-remaining-requests"].isdigit() and calls.head["x-ratelimit-reset-requests"]


def test_an_unknown_model_and_an_unknown_flavor_are_404():
    for model in ["nothing", "nothing:eco", "small-chat:fast"]:
        error = refused(openai.NotFoundError, model=model)
        assert error.code == "INFERENCE_3101" and error.type == "model_not_found", error.body


def test_a_wrong_field_is_400_and_named():
    cases = {
        "temperature": {"temperature": 9},
        "n": {"n": 11},
        "top_p": {"top_p": 2},
        "max_tokens": {"max_tokens": 0},
        "messages": {"messages": []},
        "messages[0].role": {"messages": [{"role": "nobody", "content": "x"}]},
        "tool_choice": {"extra_body": {"tool_choice": "perhaps"}},
    }
    for field, more in cases.items():
        error = refused(openai.BadRequestError, **more)
        assert error.code == "INFERENCE_3201" and error.type == "invalid_request_error", error.body
        assert error.param == field, (field, error.param)


def test_what_a_model_cannot_do_is_400_and_named():
    tools = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}]
    error = refused(openai.BadRequestError, model="narrow", tools=tools)
    assert error.code == "INFERENCE_3202" and error.param == "tools", error.body


def test_more_input_than_fits_tells_both_numbers_and_the_known_words():
    words = [{"role": "user", "content": "word " * 20_000}]
    error = refused(openai.BadRequestError, model="narrow", messages=words)
    assert error.code == "INFERENCE_3207" and error.type == "context_length_exceeded"
    details = error.body["details"]
    assert details["context_length"] == 2048 and details["input_tokens"] > 2048, details
    assert "context_length_exceeded" in str(error) and "maximum context length is 2048" in str(error)


def test_an_unknown_path_is_404():
    error = raises(openai.NotFoundError, client().post, "/generate", cast_to=object, body={"model": "small-chat"})
    assert error.code == "RESOURCE_5001" and "/v1/chat/completions" in str(error.body), error.body


def test_a_wrong_method_is_405_with_allow():
    error = raises(openai.APIStatusError, client().get, "/chat/completions", cast_to=object)
    assert error.status_code == 405 and error.code == "RESOURCE_5002"
    assert error.response.headers["allow"] == "POST"


def test_a_body_over_the_limit_is_413_once():
    error = refused(openai.APIStatusError, messages=[{"role": "user", "content": "x" * 1_200_000}])
    assert error.status_code == 413 and error.code == "RESOURCE_5004"


def test_when_all_providers_fail_the_client_tries_three_times_and_waits_as_told():
    made = client()
    calls = Calls(made)
    began = time.monotonic()
    error = raises(openai.InternalServerError, made.chat.completions.create, model="down", messages=HELLO)
    waited = time.monotonic() - began
    assert (error.status_code, error.code) == (503, "INFERENCE_3103") and calls.number == 3
    after = int(error.response.headers["retry-after"])
    assert 1 <= after <= 5 and waited >= 2 * min(after, 1) * 0.95, (after, waited)
    attempts = error.body["details"]["attempts"]
    assert {attempt["provider"] for attempt in attempts} == {"sdk-lyon", "sdk-turku"}, attempts
    assert all(set(attempt) == {"provider", "reason", "ms"} for attempt in attempts), attempts
    assert {attempt["reason"] for attempt in attempts} <= {"unavailable", "rate_limited", "timeout", "refused"}
    assert "127.0.0.1" not in str(error.body)


def test_the_same_for_a_stream_that_did_not_begin():
    made = client(max_retries=0)
    calls = Calls(made)
    error = raises(
        openai.InternalServerError, made.chat.completions.create, model="down", messages=HELLO, stream=True
    )
    assert error.code == "INFERENCE_3103" and calls.number == 1


def test_a_failing_provider_is_replaced_unseen():
    for stream in [False, True]:
        made = client()
        calls = Calls(made)
        got = made.chat.completions.create(model="second-wins:price", messages=HELLO, stream=stream)
        if stream:
            chunks = list(got)
            assert chunks[-1].choices[0].finish_reason == "stop"
            assert [c.choices[0].delta.role for c in chunks].count("assistant") == 1
        else:
            assert "turku" in got.choices[0].message.content
        assert calls.number == 1 and calls.head["x-penstock-provider"] == "sdk-turku"
        assert int(calls.head["x-penstock-attempts"]) >= 2


def test_a_stream_that_breaks_is_carried_on_by_another_provider():
    chunks = list(client().chat.completions.create(model="rescued:price", messages=HELLO, stream=True))
    assert chunks[-1].choices[0].finish_reason == "stop"
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks)
    assert text.startswith("This is a simulated answer from lyon") or text.count("This is a") == 1, text


def test_a_stream_that_cannot_be_carried_on_ends_in_an_error():
    for model in ["cut", "endless", "in-band"]:
        stream = client().chat.completions.create(model=model, messages=HELLO, stream=True)
        got = []

        def read():
            for chunk in stream:
                got.append(chunk)

        error = raises(openai.APIError, read)
        assert error.code == "INFERENCE_3103", (model, error.code, error.body)
        assert "".join(chunk.choices[0].delta.content or "" for chunk in got), model
        assert not any(chunk.choices[0].finish_reason for chunk in got), model


def test_no_error_tells_where_providers_are():
    error = raises(openai.InternalServerError, client(max_retries=0).chat.completions.create, model="down", messages=HELLO)
    assert LYON.rsplit(":", 1)[1] not in str(error.body)
