"""Errors: the class, the type and the code that a user can act on; how often a client tries."""

import time

import anthropic
from harness import EMPTY, KEY, LIMITED, POOR, READER, REVOKED, URL, Calls, raises, refused_and_waits

HELLO = [{"role": "user", "content": "Hello"}]
NEW = hasattr(anthropic, "PaymentRequiredError")


def client(key=KEY, **more):
    return anthropic.Anthropic(api_key=key, base_url=URL, **more)


def refused(kind, key=KEY, model="small-chat", messages=HELLO, max_tokens=50, **more):
    made = client(key)
    calls = Calls(made)
    error = raises(
        kind, made.messages.create, model=model, messages=messages, max_tokens=max_tokens, **more
    )
    assert calls.number == 1, calls.number
    assert error.body["type"] == "error" and error.body["request_id"], error.body
    inner = error.body["error"]
    assert inner["details"]["error_code"] == inner["code"] and inner["message"], inner
    if NEW:
        assert error.error_code == inner["code"] and error.type == inner["type"]
    return inner


def test_wrong_and_revoked_keys_are_401_once():
    for key in ["nothing", KEY[:-1], REVOKED]:
        error = refused(anthropic.AuthenticationError, key)
        assert (error["type"], error["code"]) == ("authentication_error", "AUTH_1001")


def test_a_missing_scope_is_403_and_named():
    error = refused(anthropic.PermissionDeniedError, READER)
    assert error["type"] == "permission_error" and error["details"]["required_scope"] == "inference.chat"


def test_a_budget_that_is_used_up_is_402_once():
    error = refused(anthropic.PaymentRequiredError if NEW else anthropic.APIStatusError, POOR)
    assert (error["type"], error["code"]) == ("billing_error", "BILLING_4002")


def test_an_account_without_credits_is_402_once_and_told_what_it_lacks():
    error = refused(anthropic.PaymentRequiredError if NEW else anthropic.APIStatusError, EMPTY)
    assert (error["type"], error["code"]) == ("billing_error", "BILLING_4001")
    details = error["details"]
    assert details["wallet"] == "credits" and details["required"] > details["available"] == 0


def test_a_rate_limit_is_429_and_waited_off():
    made, hasty = client(LIMITED), client(LIMITED, max_retries=0)
    calls = Calls(made)
    ask = {"model": "small-chat", "messages": HELLO, "max_tokens": 5}
    refusal, answer = refused_and_waits(
        anthropic.RateLimitError,
        lambda: hasty.messages.create(**ask),
        lambda: made.messages.create(**ask),
        calls,
    )
    error = refusal.body["error"]
    assert (error["type"], error["code"]) == ("rate_limit_error", "RATE_2001") and answer.content
    assert calls.head["anthropic-ratelimit-requests-limit"] == "20"
    assert calls.head["anthropic-ratelimit-requests-reset"].endswith("Z")


def test_an_unknown_model_is_404():
    error = refused(anthropic.NotFoundError, model="claude-nothing")
    assert (error["type"], error["code"]) == ("not_found_error", "INFERENCE_3101")


def test_a_wrong_field_is_400_and_named():
    cases = {
        "max_tokens": {"max_tokens": -1},
        "temperature": {"extra_body": {"temperature": 1.5}},
        "messages": {"messages": []},
        "messages.0.content": {"messages": [{"role": "user", "content": ""}]},
        "tool_use_id": {
            "messages": [{"role": "user", "content": [{"type": "tool_result", "tool_use_id": "x", "content": "y"}]}]
        },
    }
    for field, more in cases.items():
        error = refused(anthropic.BadRequestError, **more)
        assert (error["type"], error["code"]) == ("invalid_request_error", "INFERENCE_3201"), error
        named = f"{error['message']} {error.get('param')} {error['details']}".replace("[", ".").replace("]", "")
        assert field in named, (field, error)


def test_more_input_than_fits_tells_both_numbers_and_the_known_words():
    error = refused(
        anthropic.BadRequestError, model="narrow", messages=[{"role": "user", "content": "word " * 20_000}]
    )
    assert error["code"] == "INFERENCE_3207" and "prompt is too long" in error["message"]
    assert error["details"]["context_length"] == 2048 and error["details"]["input_tokens"] > 2048


def test_more_output_than_fits_is_cut_to_what_is_left():
    answer = client().messages.create(model="narrow", messages=HELLO, max_tokens=20_000)
    assert answer.content[0].text


def test_a_body_over_the_limit_is_413_once():
    error = refused(anthropic.APIStatusError, messages=[{"role": "user", "content": "x" * 1_200_000}])
    assert (error["type"], error["code"]) == ("request_too_large", "RESOURCE_5004")


def test_a_wrong_method_is_405_in_this_dialect():
    error = raises(anthropic.APIStatusError, client().get, "/v1/messages", cast_to=object)
    assert error.status_code == 405 and error.body["error"]["code"] == "RESOURCE_5002"
    assert error.response.headers["allow"] == "POST"


def test_when_all_providers_fail_the_client_tries_three_times_and_waits_as_told():
    made = client()
    calls = Calls(made)
    began = time.monotonic()
    error = raises(
        anthropic.InternalServerError if not NEW else anthropic.ServiceUnavailableError,
        made.messages.create, model="down", messages=HELLO, max_tokens=50,
    )
    waited = time.monotonic() - began
    assert error.status_code == 503 and calls.number == 3 and waited >= 1.9, (calls.number, waited)
    assert error.body["error"]["type"] == "overloaded_error"
    assert error.body["error"]["code"] == "INFERENCE_3103"
    assert 1 <= int(error.response.headers["retry-after"]) <= 5


def test_a_failing_provider_is_replaced_unseen():
    made = client()
    calls = Calls(made)
    with made.messages.stream(model="second-wins:price", messages=HELLO, max_tokens=300) as stream:
        final = stream.get_final_message()
    assert final.stop_reason == "end_turn" and calls.number == 1
    assert calls.head["x-penstock-provider"] == "sdk-turku"


def test_a_stream_that_breaks_is_carried_on_by_another_provider():
    with client().messages.stream(model="rescued:price", messages=HELLO, max_tokens=300) as stream:
        final = stream.get_final_message()
    assert final.stop_reason == "end_turn" and final.content[0].text.count("This is a") == 1


def test_a_stream_that_cannot_be_carried_on_raises():
    for model in ["cut", "endless", "in-band"]:
        stream = client().messages.create(model=model, messages=HELLO, max_tokens=300, stream=True)
        kinds = []

        def read():
            for event in stream:
                kinds.append(event.type)

        error = raises(anthropic.APIStatusError, read)
        assert "INFERENCE_3103" in str(error.body), (model, error.body)
        assert "content_block_delta" in kinds and "message_stop" not in kinds, (model, kinds)


def test_a_provider_that_cannot_be_had_fails_a_stream_before_it_begins():
    error = raises(
        anthropic.InternalServerError if not NEW else anthropic.ServiceUnavailableError,
        client(max_retries=0).messages.create, model="down", messages=HELLO, max_tokens=50, stream=True,
    )
    assert error.status_code == 503
