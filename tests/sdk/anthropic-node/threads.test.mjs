// Threads and the tool runner: the client falls back to sending the whole history, which reaches the provider.

import Anthropic from '@anthropic-ai/sdk';
import assert from 'node:assert/strict';
import test from 'node:test';
import { KEY, URL, counting, sent } from './harness.mjs';

const calls = counting();
const client = new Anthropic({ apiKey: KEY, baseURL: URL, fetch: calls });
const roles = async () => (await sent()).messages.map(({ role }) => role);
// Older versions have neither.
const { thread: threads, toolRunner: runner } = client.beta.messages;

test('a thread goes on with the whole history', { skip: !threads }, async () => {
  const thread = client.beta.messages.thread({
    model: 'org/solo', max_tokens: 100, system: 'Be brief.', unsupportedRequestBehavior: 'continue_unthreaded',
  });
  await thread.send({ role: 'user', content: 'Hello' });
  assert.deepEqual(await roles(), ['system', 'user']);
  await thread.send({ role: 'user', content: 'Go on' });
  assert.deepEqual(await roles(), ['system', 'user', 'assistant', 'user']);
});

test('a tool runner reaches its last turn with the whole history', { skip: !runner }, async () => {
  const asked = [];
  const tool = {
    type: 'custom',
    name: 'get_weather',
    description: 'The weather of a city.',
    input_schema: { type: 'object', properties: { city: { type: 'string' } }, required: ['city'] },
    parse: (input) => input,
    run: async ({ city }) => {
      asked.push(city);
      return `Rain in ${city}.`;
    },
  };
  const stops = [];
  const turns = client.beta.messages.toolRunner({
    model: 'org/solo', max_tokens: 500, system: 'Be brief.', tools: [tool],
    messages: [{ role: 'user', content: 'Use the tool get_weather' }],
  });
  for await (const turn of turns) stops.push(turn.stop_reason);
  assert.deepEqual(stops, ['tool_use', 'end_turn']);
  assert.equal(asked.length, 1);
  assert.deepEqual(await roles(), ['system', 'user', 'assistant', 'tool']);
});
