"""Address and keys of the gateway, and the checks that all Python suites share."""

import json
import os
import time
import urllib.request

URL = os.environ["PENSTOCK_URL"]
# May do everything; lists models only; has been revoked.
KEY = os.environ["PENSTOCK_KEY"]
# May store responses.
STORING = os.environ["PENSTOCK_STORING_KEY"]
READER = os.environ["PENSTOCK_READER_KEY"]
REVOKED = os.environ["PENSTOCK_REVOKED_KEY"]
# May ask 20 times a minute; has a budget that no request fits in.
LIMITED = os.environ["PENSTOCK_LIMITED_KEY"]
POOR = os.environ["PENSTOCK_POOR_KEY"]
EMPTY = os.environ["PENSTOCK_EMPTY_KEY"]
# The control endpoint of the one provider of `org/solo`.
LYON = os.environ["PENSTOCK_LYON"]
# The slow provider of the streams that break.
PORTO = os.environ["PENSTOCK_PORTO"]

# One red pixel.
PIXEL = (
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAIAAACQd1PeAAAADElEQVR4nGP4z8AAAAMBAQDJ/pLvAAAAAElFTkSuQmCC"
)
IMPACT = ["energy_kwh", "carbon_g_co2", "water_liters", "renewable_percent", "pue"]


def has_metadata(thing):
    """Checks that both objects of Penstock are there, complete and with numbers."""
    impact, cost = thing.environment_impact, thing.billing_cost
    for name in IMPACT:
        assert isinstance(impact[name], (int, float)) and impact[name] > 0, (name, impact)
    assert impact["provider_id"].startswith("sdk-"), impact
    assert ", " in impact["location"], impact
    for name in ["energy", "credits"]:
        assert isinstance(cost[name], (int, float)) and cost[name] >= 0, cost
    assert cost["credits"] > 0 and cost["paid_with"] == "credits", cost
    return True


def lacks_metadata(thing):
    """Checks that neither object is there."""
    return getattr(thing, "environment_impact", None) is None and getattr(thing, "billing_cost", None) is None


def control(provider):
    """Returns the counters and the last calls of a simulated provider."""
    with urllib.request.urlopen(f"{provider}/control", timeout=10) as answer:
        return json.load(answer)


def sent():
    """Returns the last request to the provider of `org/solo`, as JSON."""
    return json.loads(next(ask["body"] for ask in control(LYON)["last"] if ask["body"]))


def nulls(value, path=""):
    """Returns the paths of all nulls."""
    if value is None:
        return [path]
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else []
    return [found for name, one in inner for found in nulls(one, f"{path}/{name}")]


class Calls:
    """Counts the HTTP requests that a client sends, and keeps the last answer's head."""

    def __init__(self, client):
        self.number = 0
        self.head = None
        # The head of the last 429.
        self.refused = None
        client._client.event_hooks = {"request": [self._request], "response": [self._response]}

    def _request(self, _):
        self.number += 1

    def _response(self, response):
        self.head = response.headers
        if response.status_code == 429:
            self.refused = response.headers


def refused_and_waits(limited, once, patient, calls):
    """Checks that after a 429 the client waits for the time of `Retry-After`, tries again, and is answered.

    `once` asks with a client that does not retry, until it is refused; `patient` with one that does. If the limit admits
    a request between the two, `patient` is not refused, and the case is repeated.
    """
    for _ in range(5):
        refusal = refused(limited, once)
        began, before = time.monotonic(), calls.number
        answer = patient()
        waited = time.monotonic() - began
        if calls.number - before > 1:
            break
    after = int(calls.refused["retry-after"])
    assert calls.number - before == 2 and waited >= after * 0.95, (calls.number - before, waited, after)
    return refusal, answer


def refused(limited, once):
    """Asks until the limit refuses; returns the error."""
    for _ in range(40):
        try:
            once()
        except limited as error:
            assert error.status_code == 429 and 1 <= int(error.response.headers["retry-after"]) <= 3
            return error
    raise AssertionError("the limit of 20 a minute was not reached")


def raises(kind, call, *args, **kwargs):
    """The exception of this class that the call raises."""
    try:
        made = call(*args, **kwargs)
    except kind as error:
        return error
    raise AssertionError(f"{kind.__name__} was not raised: {made!r}")
