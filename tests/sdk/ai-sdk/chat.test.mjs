// The Vercel AI SDK over all dialects: its providers check every field, and report what they do not know.

import { createAnthropic } from '@ai-sdk/anthropic';
import { createOpenAI } from '@ai-sdk/openai';
import { createOpenAICompatible } from '@ai-sdk/openai-compatible';
import {
  APICallError, Output, RetryError, defaultSettingsMiddleware, generateText, stepCountIs, streamText, tool, wrapLanguageModel,
} from 'ai';
import assert from 'node:assert/strict';
import test from 'node:test';
import { z } from 'zod';
import {
  KEY, LIMITED, PIXEL, EMPTY, POOR, READER, REVOKED, STORING, URL, all, counting, fails, refusedAndWaits,
} from './harness.mjs';

const made = (apiKey = KEY, fetch = globalThis.fetch) => ({
  chat: createOpenAICompatible({ name: 'penstock', baseURL: `${URL}/v1`, apiKey, fetch, includeUsage: true, supportsStructuredOutputs: true }),
  // This one keeps /v1 in its base address, unlike the dialect's own clients.
  messages: createAnthropic({ baseURL: `${URL}/v1`, apiKey, fetch }),
  // The default of this one is the responses dialect. Nothing is stored, so the items go back themselves.
  responses: (name) => wrapLanguageModel({
    model: createOpenAI({ baseURL: `${URL}/v1`, apiKey, fetch })(name),
    middleware: defaultSettingsMiddleware({ settings: { providerOptions: { openai: { store: false } } } }),
  }),
});
const providers = made();
const TOOLS = {
  get_weather: tool({
    description: 'The weather of some days.',
    inputSchema: z.object({ city: z.string(), days: z.number().int() }),
    execute: async ({ city }) => `21 degrees in ${city}`,
  }),
  ping: tool({ description: 'Nothing.', inputSchema: z.object({}), execute: async () => 'pong' }),
};

for (const dialect of ['chat', 'messages', 'responses']) {
  const model = (name, from = providers) => from[dialect](name);
  const good = dialect === 'chat' ? ['small-chat', 'messy'] : ['small-chat', 'messy', 'native'];

  for (const name of good) {
    test(`${dialect}: generateText gives text and usage: ${name}`, async () => {
      const answer = await generateText({ model: model(name), prompt: 'Hello' });
      assert.match(answer.text, /simulated/);
      assert.equal(answer.finishReason, 'stop');
      assert.ok(answer.usage.inputTokens > 0 && answer.usage.outputTokens > 0, JSON.stringify(answer.usage));
    });

    test(`${dialect}: streamText has no error in it: ${name}`, async () => {
      const parts = await all(streamText({ model: model(name), prompt: 'Hello' }).fullStream);
      assert.deepEqual(parts.filter((part) => part.type === 'error'), []);
      const text = parts.filter((part) => part.type === 'text-delta').map((part) => part.text).join('');
      assert.match(text, /simulated/);
      const finish = parts.find((part) => part.type === 'finish');
      assert.equal(finish.finishReason, 'stop');
      assert.ok(finish.totalUsage.inputTokens > 0 && finish.totalUsage.outputTokens > 0);
    });

    test(`${dialect}: tools run, and their results go back: ${name}`, async () => {
      const answer = await generateText({
        model: model(name), prompt: 'Use the tools', tools: TOOLS, stopWhen: stepCountIs(3),
      });
      assert.deepEqual(answer.steps[0].toolCalls.map((call) => call.toolName), ['get_weather', 'ping']);
      assert.deepEqual(answer.steps[0].toolResults.map((result) => result.output), ['21 degrees in simulated', 'pong']);
      assert.match(answer.text, /simulated/);
    });

    test(`${dialect}: streamed tools run as well: ${name}`, async () => {
      const result = streamText({ model: model(name), prompt: 'Use the tools', tools: TOOLS, stopWhen: stepCountIs(3) });
      const parts = await all(result.fullStream);
      assert.deepEqual(parts.filter((part) => part.type === 'error' || part.type === 'tool-error'), []);
      assert.deepEqual(
        parts.filter((part) => part.type === 'tool-call').map((part) => [part.toolName, Object.keys(part.input)]),
        [['get_weather', ['city', 'days']], ['ping', []]],
      );
      assert.match(await result.text, /simulated/);
    });
  }

  test(`${dialect}: structured output follows its schema`, async () => {
    const schema = z.object({ name: z.string(), seats: z.number().int() });
    const answer = await generateText({ model: model('small-chat'), prompt: 'An event', output: Output.object({ schema }) });
    assert.deepEqual(Object.keys(schema.parse(answer.output)), ['name', 'seats']);
  });

  test(`${dialect}: a picture is taken`, async () => {
    const content = [{ type: 'text', text: 'See?' }, { type: 'image', image: PIXEL, mediaType: 'image/png' }];
    const answer = await generateText({ model: model('org/solo'), messages: [{ role: 'user', content }] });
    assert.match(answer.text, /simulated/);
  });

  test(`${dialect}: reasoning is shown as reasoning`, async () => {
    const providerOptions = {
      chat: { penstock: { reasoningEffort: 'low' } },
      messages: { anthropic: { thinking: { type: 'enabled', budgetTokens: 1024 } } },
      responses: { openai: { forceReasoning: true, reasoningEffort: 'low', reasoningSummary: 'auto' } },
    }[dialect];
    const plain = await generateText({ model: model('thinker'), prompt: 'Hello', providerOptions });
    assert.match(plain.reasoningText, /reasoning/);
    const parts = await all(streamText({ model: model('thinker'), prompt: 'Hello', providerOptions }).fullStream);
    assert.deepEqual(parts.filter((part) => part.type === 'error'), []);
    assert.ok(parts.some((part) => part.type === 'reasoning-delta'));
  });

  test(`${dialect}: an error shows its sentence and is not tried again`, async () => {
    const fetch = counting();
    const one = model('nothing', made(KEY, fetch));
    const error = await fails(APICallError, generateText({ model: one, prompt: 'Hello' }));
    assert.equal(error.statusCode, 404);
    assert.match(error.message, /model/i);
    assert.equal(fetch.number, 1);
    const stranger = await fails(APICallError, generateText({ model: model('small-chat', made('nothing')), prompt: 'x' }));
    assert.equal(stranger.statusCode, 401);
    assert.notEqual(stranger.message, 'Unauthorized');
  });

  test(`${dialect}: what no retry helps is asked once`, async () => {
    for (const [key, status] of [[REVOKED, 401], [POOR, 402], [EMPTY, 402], [READER, 403]]) {
      const fetch = counting();
      const one = model('small-chat', made(key, fetch));
      const error = await fails(APICallError, generateText({ model: one, prompt: 'Hello' }));
      assert.deepEqual([error.statusCode, error.isRetryable, fetch.number], [status, false, 1]);
    }
  });

  test(`${dialect}: a rate limit is waited off`, async () => {
    const fetch = counting();
    const one = model('small-chat', made(LIMITED, fetch));
    const ask = (more) => generateText({ model: one, prompt: 'Hello', maxOutputTokens: 5, ...more });
    const { refusal, answer } = await refusedAndWaits(() => ask({ maxRetries: 0 }), () => ask({}), fetch);
    assert.ok(refusal instanceof APICallError && refusal.isRetryable && answer.text);
  });

  test(`${dialect}: when all providers fail it tries three times`, async () => {
    const fetch = counting();
    const error = await fails(RetryError, generateText({ model: model('down', made(KEY, fetch)), prompt: 'Hello' }));
    assert.equal(error.lastError.statusCode, 503);
    assert.equal(fetch.number, 3);
  });

  for (const name of ['cut', 'endless', 'in-band']) {
    test(`${dialect}: a stream that cannot be carried on has an error in it: ${name}`, async () => {
      const result = streamText({ model: model(name), prompt: 'Hello', onError: () => {} });
      const parts = await all(result.fullStream);
      assert.equal(parts.filter((part) => part.type === 'error').length, 1, JSON.stringify(parts.at(-1)));
    });
  }

  test(`${dialect}: a failing provider is replaced unseen`, async () => {
    const fetch = counting();
    const { text } = await generateText({ model: model('second-wins:price', made(KEY, fetch)), prompt: 'Hello' });
    assert.match(text, /turku/);
    assert.equal(fetch.number, 1);
  });
}

// Without `store` the client assumes that answers are stored, and refers to them.
test('responses: a conversation goes on with `store`, and is refused with a reason without it', async () => {
  const conversation = async (apiKey, openai) => {
    const model = createOpenAI({ baseURL: `${URL}/v1`, apiKey })('small-chat');
    const [question, providerOptions] = [{ role: 'user', content: 'Hello' }, { openai }];
    const first = await generateText({ model, messages: [question], providerOptions });
    const messages = [question, ...first.response.messages, { role: 'user', content: 'More' }];
    return generateText({ model, messages, providerOptions });
  };
  for (const [key, store] of [[STORING, true], [STORING, false], [KEY, false]]) {
    assert.match((await conversation(key, { store })).text, /simulated/);
  }
  for (const key of [STORING, KEY]) {
    const error = await fails(APICallError, conversation(key, {}));
    assert.equal(error.statusCode, 400);
    assert.match(error.message, /`store: false`/);
  }
});
