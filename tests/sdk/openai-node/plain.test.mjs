// Plain and streamed chat completions, tools, structured output.

import assert from 'node:assert/strict';
import test from 'node:test';
import OpenAI from 'openai';
import { zodResponseFormat } from 'openai/helpers/zod';
import { z } from 'zod';
import { HELLO, KEY, PIXEL, URL, all, counting, sent, checkMetadata } from './harness.mjs';

const client = new OpenAI({ apiKey: KEY, baseURL: `${URL}/v1`, maxRetries: 0 });
const helper = client.chat.completions.stream ? client.chat : client.beta.chat;
const TOOLS = [
  ['get_weather', { city: { type: 'string' }, days: { type: 'integer' } }],
  ['get_time', { zone: { type: 'string' } }],
  ['ping', {}],
].map(([name, properties]) => ({
  type: 'function',
  function: { name, parameters: { type: 'object', properties, required: Object.keys(properties) } },
}));
const USE = [{ role: 'user', content: 'Use the tools' }];
const ask = (more) => client.chat.completions.create({ model: 'small-chat', messages: HELLO, ...more });

test('an answer tells its text, its usage and what it cost', async () => {
  const answer = await ask();
  assert.match(answer.id, /^chatcmpl-/);
  assert.match(answer.choices[0].message.content, /simulated/);
  assert.equal(answer.choices[0].finish_reason, 'stop');
  assert.equal(answer.usage.total_tokens, answer.usage.prompt_tokens + answer.usage.completion_tokens);
  assert.ok(answer._request_id);
  checkMetadata(answer);
});

test('the key may come as x-api-key alone', async () => {
  const other = new OpenAI({
    apiKey: 'unused',
    baseURL: `${URL}/v1`,
    defaultHeaders: { Authorization: null, 'x-api-key': KEY },
  });
  checkMetadata(await other.chat.completions.create({ model: 'small-chat', messages: HELLO }));
});

test('n, stop, length, null fields', async () => {
  assert.deepEqual((await ask({ n: 2 })).choices.map((choice) => choice.index), [0, 1]);
  assert.doesNotMatch((await ask({ stop: 'answer' })).choices[0].message.content, /answer/);
  const short = await ask({ max_completion_tokens: 5, temperature: null, stream_options: null });
  assert.equal(short.choices[0].finish_reason, 'length');
  assert.equal(short.usage.completion_tokens, 5);
});

test('reasoning is in reasoning_content', async () => {
  const answer = await ask({ model: 'thinker', reasoning_effort: 'low' });
  assert.match(answer.choices[0].message.reasoning_content, /reasoning/);
});

test('a picture reaches the provider', async () => {
  const url = `data:image/png;base64,${PIXEL}`;
  const content = [{ type: 'text', text: 'What is it?' }, { type: 'image_url', image_url: { url } }];
  await ask({ model: 'org/solo', messages: [{ role: 'user', content }] });
  assert.equal((await sent()).messages[0].content[1].image_url.url, url);
});

test('a stream begins with the role and ends with the reason and the cost', async () => {
  const got = await all(await ask({ stream: true }));
  assert.ok(got.every((chunk) => chunk.choices.length === 1));
  assert.equal(got[0].choices[0].delta.role, 'assistant');
  assert.equal(got.at(-1).choices[0].finish_reason, 'stop');
  checkMetadata(got.at(-1));
});

test('usage comes last and alone when asked for', async () => {
  const got = await all(await ask({ stream: true, stream_options: { include_usage: true } }));
  assert.deepEqual(got.at(-1).choices, []);
  assert.ok(got.at(-1).usage.total_tokens > 0);
  checkMetadata(got.at(-1));
  assert.ok(got.slice(0, -1).every((chunk) => chunk.choices.length === 1));
});

test('the helper puts a stream together, cost included', async () => {
  const stream = helper.completions.stream({ model: 'small-chat', messages: HELLO, stream_options: { include_usage: true } });
  let text = '';
  stream.on('content', (delta) => (text += delta));
  const final = await stream.finalChatCompletion();
  assert.equal(final.choices[0].message.content, text);
  assert.ok(final.usage.total_tokens > 0);
  checkMetadata(final);
});

test('calls of tools have string arguments', async () => {
  const answer = await ask({ messages: USE, tools: TOOLS });
  assert.equal(answer.choices[0].finish_reason, 'tool_calls');
  const calls = answer.choices[0].message.tool_calls;
  assert.deepEqual(calls.map((call) => call.function.name), ['get_weather', 'get_time', 'ping']);
  assert.deepEqual(Object.keys(JSON.parse(calls[0].function.arguments)), ['city', 'days']);
});

for (const model of ['small-chat', 'messy']) {
  test(`the helper puts streamed calls together: ${model}`, async () => {
    const stream = helper.completions.stream({ model, messages: USE, tools: TOOLS });
    const final = await stream.finalChatCompletion();
    const calls = final.choices[0].message.tool_calls;
    assert.deepEqual(calls.map((call) => call.function.name), ['get_weather', 'get_time', 'ping']);
    assert.equal(new Set(calls.map((call) => call.id)).size, 3);
    assert.deepEqual(Object.keys(JSON.parse(calls[0].function.arguments)), ['city', 'days']);
  });
}

test('runTools takes the results back until there is an answer', async () => {
  const run = helper.completions.runTools({
    model: 'org/solo',
    messages: [{ role: 'user', content: 'Use the tool get_weather' }],
    tools: [
      {
        type: 'function',
        function: { ...TOOLS[0].function, parse: JSON.parse, function: ({ city }) => `21 degrees in ${city}` },
      },
    ],
  });
  assert.match(await run.finalContent(), /simulated/);
  assert.equal((await sent()).messages.at(-1).content, '21 degrees in simulated');
});

test('parse gives an object of the schema', async () => {
  const Event = z.object({ name: z.string(), guests: z.array(z.string()), seats: z.number().int() });
  const parse = (client.chat.completions.parse ? client.chat : client.beta.chat).completions;
  const answer = await parse.parse({
    model: 'small-chat',
    messages: HELLO,
    response_format: zodResponseFormat(Event, 'event'),
  });
  assert.deepEqual(Event.parse(answer.choices[0].message.parsed).guests, ['simulated']);
});

test('a failing provider is replaced unseen, a broken stream is carried on', async () => {
  const calls = counting();
  const other = new OpenAI({ apiKey: KEY, baseURL: `${URL}/v1`, fetch: calls });
  for (const model of ['second-wins:price', 'rescued:price']) {
    const got = await all(await other.chat.completions.create({ model, messages: HELLO, stream: true }));
    const text = got.map((chunk) => chunk.choices[0].delta.content ?? '').join('');
    assert.equal(text.split('This is a').length, 2, text);
    assert.equal(got.at(-1).choices[0].finish_reason, 'stop');
  }
  assert.equal(calls.number, 2);
});
