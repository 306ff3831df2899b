// Embeddings: the client asks for base64 unless asked for another format, and decodes it.

import assert from 'node:assert/strict';
import test from 'node:test';
import OpenAI from 'openai';
import { KEY, URL, fails, checkMetadata } from './harness.mjs';

const client = new OpenAI({ apiKey: KEY, baseURL: `${URL}/v1`, maxRetries: 0 });
const TEXTS = ['The river bends.', 'A gate of steel', 'Grüße 🌊'];
const embed = (more) => client.embeddings.create({ model: 'vectors', input: TEXTS, ...more });

// The same request without any client, in plain numbers.
async function floats(input) {
  const answer = await fetch(`${URL}/v1/embeddings`, {
    method: 'POST',
    headers: { authorization: `Bearer ${KEY}`, 'content-type': 'application/json' },
    body: JSON.stringify({ model: 'vectors', input, encoding_format: 'float' }),
  });
  return (await answer.json()).data.map((item) => item.embedding);
}

function near(answer, others) {
  assert.equal(answer.data.length, others.length);
  answer.data.forEach(({ embedding, index }, at) => {
    assert.equal(index, at);
    assert.equal(embedding.length, others[at].length);
    assert.ok(embedding.every((value, place) => Math.abs(value - others[at][place]) < 1e-6));
  });
}

test('the default form gives the same numbers', async () => {
  const answer = await embed();
  assert.equal(answer.data[0].embedding.length, 1024);
  near(answer, await floats(TEXTS));
  assert.equal(answer.usage.prompt_tokens, answer.usage.total_tokens);
  checkMetadata(answer);
});

test('numbers are numbers, from any provider', async () => {
  for (const model of ['vectors', 'packed']) {
    near(await embed({ model, encoding_format: 'float' }), await floats(TEXTS));
    near(await embed({ model }), await floats(TEXTS));
  }
});

test('lists longer than a provider takes', async () => {
  const many = Array.from({ length: 40 }, (_, number) => `text number ${number}`);
  near(await embed({ input: many }), await floats(many));
});

test('token ids are the text they stand for', async () => {
  near(await embed({ input: [[9906, 1917]] }), await floats(['Hello world']));
});

test('wrong input names its field', async () => {
  for (const [input, param] of [[[], 'input'], [['a', ''], 'input[1]'], [[[200000]], 'input[0][0]']]) {
    const error = await fails(OpenAI.BadRequestError, embed({ input }));
    assert.deepEqual([error.code, error.param], ['INFERENCE_3201', param]);
  }
});
