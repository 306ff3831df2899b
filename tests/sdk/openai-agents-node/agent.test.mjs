// The OpenAI Agents SDK for JavaScript over responses, its default, and over chat completions.

import assert from 'node:assert/strict';
import test from 'node:test';
import { Agent, OpenAIProvider, Runner, handoff, setTracingDisabled, tool } from '@openai/agents';
import { z } from 'zod';
import { KEY, STORING, URL, all } from './harness.mjs';

setTracingDisabled(true);

const APIS = { 'the default model class': undefined, 'the model class of chat completions': false };
const runner = (useResponses, apiKey = KEY) =>
  new Runner({ modelProvider: new OpenAIProvider({ apiKey, baseURL: `${URL}/v1`, useResponses }) });
const agent = (more) => new Agent({ name: 'Assistant', instructions: 'Be brief.', model: 'small-chat', ...more });
const weather = tool({
  name: 'get_weather',
  description: 'The weather of a city.',
  parameters: z.object({ city: z.string() }),
  execute: ({ city }) => `Rain in ${city}.`,
});
const kinds = (result) => result.newItems.map((item) => item.type);

function checkUsage({ usage }, requests) {
  assert.equal(usage.requests, requests);
  assert.ok(usage.inputTokens > 0 && usage.outputTokens > 0, JSON.stringify(usage));
  assert.equal(usage.totalTokens, usage.inputTokens + usage.outputTokens);
}

for (const [name, useResponses] of Object.entries(APIS)) {
  test(`${name} answers with text and usage`, async () => {
    const result = await runner(useResponses).run(agent(), 'Hello');
    assert.match(result.finalOutput, /simulated/);
    checkUsage(result.state, 1);
  });

  for (const model of ['small-chat', 'native', 'messy']) {
    test(`${name} runs a tool, and its result reaches the last turn: ${model}`, async () => {
      const result = await runner(useResponses).run(agent({ model, tools: [weather] }), 'Use the tool get_weather');
      assert.deepEqual(kinds(result), ['tool_call_item', 'tool_call_output_item', 'message_output_item']);
      checkUsage(result.state, 2);
    });

    test(`${name} streams a tool call and the answer, with usage: ${model}`, async () => {
      const result = await runner(useResponses).run(agent({ model, tools: [weather] }), 'Use the tool get_weather', {
        stream: true,
      });
      const events = await all(result);
      const deltas = events.filter(
        (event) => event.type === 'raw_model_stream_event' && event.data.type === 'output_text_delta',
      );
      assert.ok(deltas.length > 2, `${deltas.length} deltas`);
      assert.equal(deltas.map((event) => event.data.delta).join(''), result.finalOutput);
      assert.deepEqual(kinds(result), ['tool_call_item', 'tool_call_output_item', 'message_output_item']);
      checkUsage(result.state, 2);
    });
  }

  test(`${name} hands over to another agent, plain and streamed`, async () => {
    const other = agent({ name: 'Other', model: 'native' });
    const first = agent({ handoffs: [handoff(other, { toolNameOverride: 'transfer_to_other' })] });
    for (const stream of [false, true]) {
      const result = await runner(useResponses).run(first, 'Use the tool transfer_to_other', { stream });
      if (stream) await all(result);
      assert.equal(result.lastAgent, other);
      assert.match(result.finalOutput, /simulated/);
      assert.deepEqual(kinds(result), ['handoff_call_item', 'handoff_output_item', 'message_output_item']);
      checkUsage(result.state, 2);
    }
  });

  test(`${name} returns output of a type`, async () => {
    const outputType = z.object({ name: z.string(), seats: z.number() });
    const result = await runner(useResponses).run(agent({ outputType }), 'An event');
    assert.equal(typeof result.finalOutput.name, 'string');
    assert.equal(typeof result.finalOutput.seats, 'number');
  });

  test(`${name} reports the error of an unknown model`, async () => {
    const failed = runner(useResponses).run(agent({ model: 'nothing' }), 'Hello');
    await assert.rejects(failed, ({ status }) => status === 404);
  });
}

test('the default model class continues a stored response', async () => {
  const [storing, asked] = [runner(undefined, STORING), agent({ modelSettings: { store: true } })];
  const first = await storing.run(asked, 'Hello');
  assert.match(first.lastResponseId, /^resp_/);
  const second = await storing.run(asked, 'And now?', { previousResponseId: first.lastResponseId });
  assert.match(second.finalOutput, /simulated/);
  assert.ok(second.state.usage.inputTokens > first.state.usage.inputTokens);
});
