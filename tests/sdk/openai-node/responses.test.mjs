// The responses dialect: plain, streamed, tools, structured output, errors.

import assert from 'node:assert/strict';
import test from 'node:test';
import OpenAI from 'openai';
import { zodTextFormat } from 'openai/helpers/zod';
import { z } from 'zod';
import { KEY, URL, all, checkMetadata } from './harness.mjs';

const client = new OpenAI({ apiKey: KEY, baseURL: `${URL}/v1`, maxRetries: 0 });
const TOOLS = [['get_weather', { city: { type: 'string' } }], ['ping', {}]].map(([name, properties]) => ({
  type: 'function', name, strict: false, parameters: { type: 'object', properties, required: Object.keys(properties) },
}));

for (const model of ['small-chat', 'native', 'messy']) {
  test(`a response has its text, its usage and what it cost: ${model}`, async () => {
    const response = await client.responses.create({ model, input: 'Hello' });
    assert.match(response.output_text, /simulated/);
    assert.equal(response.status, 'completed');
    assert.ok(response.usage.input_tokens > 0 && response.usage.output_tokens > 0);
    checkMetadata(response);
  });

  test(`a stream has numbered events and ends with the response: ${model}`, async () => {
    const events = await all(await client.responses.create({ model, input: 'Hello', stream: true }));
    assert.deepEqual(events.map((event) => event.sequence_number), [...events.keys()]);
    const text = events.filter((event) => event.type === 'response.output_text.delta').map((event) => event.delta).join('');
    const last = events.at(-1);
    assert.equal(last.type, 'response.completed');
    assert.equal(last.response.output[0].content[0].text, text);
    checkMetadata(last.response);
  });

  test(`the helper puts calls together, and their outputs go back: ${model}`, async () => {
    const input = [{ role: 'user', content: 'Use the tools' }];
    const first = await client.responses.stream({ model, input, tools: TOOLS }).finalResponse();
    const calls = first.output.filter((item) => item.type === 'function_call');
    assert.deepEqual(calls.map((call) => call.name), ['get_weather', 'ping']);
    assert.deepEqual(Object.keys(JSON.parse(calls[0].arguments)), ['city']);
    const outputs = calls.map(({ call_id }) => ({ type: 'function_call_output', call_id, output: '21 degrees' }));
    const second = await client.responses.create({ model, input: [...input, ...first.output, ...outputs], tools: TOOLS });
    assert.match(second.output_text, /simulated/);
  });
}

test('parse gives an object', async () => {
  const Event = z.object({ name: z.string(), seats: z.number() });
  const response = await client.responses.parse({
    model: 'small-chat', input: 'An event', text: { format: zodTextFormat(Event, 'event') },
  });
  assert.equal(typeof response.output_parsed.name, 'string');
});

test('what needs a stored response is refused by name', async () => {
  await assert.rejects(
    client.responses.create({ model: 'small-chat', input: 'Hi', previous_response_id: 'resp_1' }),
    (error) => error instanceof OpenAI.BadRequestError && error.param === 'previous_response_id',
  );
});
