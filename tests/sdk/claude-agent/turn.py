"""The Claude Agent SDK and the coding agent that it bundles: one turn without tools."""

import asyncio
import os
import tempfile

from claude_agent_sdk import ClaudeAgentOptions, ResultMessage, query
from harness import KEY, URL


def test_one_turn_ends_well():
    async def turn():
        with tempfile.TemporaryDirectory() as folder:
            environment = {
                "ANTHROPIC_BASE_URL": URL,
                "ANTHROPIC_API_KEY": KEY,
                "ANTHROPIC_SMALL_FAST_MODEL": "small-chat",
                "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
                "CLAUDE_CONFIG_DIR": folder,
                "HOME": folder,
                "PATH": os.environ["PATH"],
            }
            options = ClaudeAgentOptions(model="small-chat", max_turns=1, cwd=folder, env=environment)
            return [message async for message in query(prompt="Hello", options=options)]

    messages = asyncio.run(turn())
    result = messages[-1]
    assert isinstance(result, ResultMessage), messages
    assert not result.is_error and "simulated" in (result.result or ""), result
