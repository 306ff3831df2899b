"""GuideLLM benchmarks a model: it asks for the health of the server and for its models, then reads streams."""

import json
import os
import pathlib
import subprocess
import sys
import tempfile

import byte_tokenizer
from harness import KEY, URL

REQUESTS = 6


def benchmarks(backend="", output=",output_tokens=24", profile="kind=concurrent,streams=2"):
    """The benchmarks of one run, without a failed request."""
    with tempfile.TemporaryDirectory() as folder:
        report = pathlib.Path(folder, "report.json")
        tokenizer = byte_tokenizer.write(pathlib.Path(folder, "tokenizer"))
        command = [pathlib.Path(sys.executable).with_name("guidellm"), "run"]
        command += ["--backend", f"kind=openai_http,target={URL},api_key={KEY}{backend}"]
        command += ["--profile", profile, "--constraint", f"kind=max_requests,count={REQUESTS}"]
        command += ["--data", f"kind=synthetic_text,prompt_tokens=64{output}"]
        command += ["--tokenizer", f"kind=huggingface_auto,model={tokenizer}"]
        command += ["--output", f"kind=json,path={report}", "--disable-console"]
        environment = {"HOME": folder, "PATH": os.environ["PATH"], "HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1"}
        ran = subprocess.run(
            command, cwd=folder, env=environment, capture_output=True, text=True, timeout=300, check=False
        )
        assert ran.returncode == 0, ran.stdout + ran.stderr
        found = json.loads(report.read_text())["benchmarks"]
    for benchmark in found:
        totals = benchmark["metrics"]["request_totals"]
        errors = [request["info"]["error"] for request in benchmark["requests"]["errored"] or []]
        assert totals["errored"] == totals["incomplete"] == 0 and totals["successful"] == REQUESTS, (totals, errors)
    return found


def requests(found):
    return [request for benchmark in found for request in benchmark["requests"]["successful"]]


def test_the_default_profile_and_the_first_model_of_the_list():
    found = benchmarks(profile="kind=sweep,sweep_size=3")
    assert len(found) == 3
    for request in requests(found):
        assert request["output_tokens"] == 24 and request["time_to_first_token_ms"] > 0, request


def test_each_endpoint_of_texts():
    for path in ["/v1/completions", "/v1/chat/completions", "/v1/responses"]:
        for request in requests(benchmarks(f",model=base,request_format={path}")):
            assert request["output_tokens"] == 24 and request["output"], (path, request)


def test_answers_of_any_length():
    # Without a length of answers GuideLLM does not send `ignore_eos`.
    for model in ["small-chat", "native"]:
        for request in requests(benchmarks(f",model={model}", output="")):
            assert "simulated" in request["output"] and request["output_tokens"] > 5, request
