"""Inspect AI evaluates a model over both dialects."""

import os
import tempfile

from harness import KEY, URL

os.environ["INSPECT_LOG_DIR"] = tempfile.mkdtemp()
from inspect_ai import Task, eval as evaluate  # noqa: E402
from inspect_ai.dataset import Sample  # noqa: E402
from inspect_ai.model import get_model  # noqa: E402
from inspect_ai.scorer import includes  # noqa: E402


def test_a_task_is_scored_over_both_dialects():
    for model in [
        get_model("openai/small-chat", base_url=f"{URL}/v1", api_key=KEY, responses_api=False),
        get_model("anthropic/small-chat", base_url=URL, api_key=KEY),
    ]:
        task = Task(dataset=[Sample(input="Hello", target="simulated")], scorer=includes())
        (log,) = evaluate(task, model=model, display="none", log_dir=os.environ["INSPECT_LOG_DIR"])
        assert log.status == "success", log.error
        assert log.results.scores[0].metrics["accuracy"].value == 1.0, log.results
        usage = next(iter(log.stats.model_usage.values()))
        assert usage.input_tokens > 0 and usage.output_tokens > 0, usage
