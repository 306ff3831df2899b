// Images in both forms, transcripts in all of theirs.

import assert from 'node:assert/strict';
import test from 'node:test';
import OpenAI, { toFile } from 'openai';
import { KEY, URL, fails, checkMetadata } from './harness.mjs';

const client = new OpenAI({ apiKey: KEY, baseURL: `${URL}/v1`, maxRetries: 0 });
const PNG = Buffer.from('89504e470d0a1a0a', 'hex');
const draw = (more) => client.images.generate({ model: 'painter', prompt: 'A cat', ...more });

// So many seconds of 8 kHz, 16 bits, mono.
function sound(seconds) {
  const data = Buffer.alloc(seconds * 16000, 3);
  const head = Buffer.alloc(44);
  head.write('RIFF');
  head.writeUInt32LE(36 + data.length, 4);
  head.write('WAVEfmt ', 8);
  head.writeUInt32LE(16, 16);
  head.writeUInt16LE(1, 20);
  head.writeUInt16LE(1, 22);
  head.writeUInt32LE(8000, 24);
  head.writeUInt32LE(16000, 28);
  head.writeUInt16LE(2, 32);
  head.writeUInt16LE(16, 34);
  head.write('data', 36);
  head.writeUInt32LE(data.length, 40);
  return Buffer.concat([head, data]);
}

// The cheaper provider closes before its head, so that each upload goes out twice. The file comes first here.
async function writeDown(more, seconds = 6) {
  const file = await toFile(sound(seconds), 'speech.webm');
  return client.audio.transcriptions.create({ file, model: 'listener:price', ...more });
}

test('an image is at an address of the gateway, without a key', async () => {
  for (const model of ['painter:price', 'painter:eco']) {
    const answer = await draw({ model, n: 2, size: '64x32' });
    checkMetadata(answer);
    assert.equal(answer.data.length, 2);
    for (const image of answer.data) {
      assert.equal(image.b64_json, null);
      const got = await fetch(image.url);
      assert.equal(got.headers.get('content-type'), 'image/png');
      assert.deepEqual(Buffer.from(await got.arrayBuffer()).subarray(0, 8), PNG);
    }
  }
});

test('an image is in the answer', async () => {
  for (const model of ['painter:price', 'painter:eco']) {
    const answer = await draw({ model, response_format: 'b64_json' });
    checkMetadata(answer);
    assert.equal(answer.data[0].url, null);
    assert.deepEqual(Buffer.from(answer.data[0].b64_json, 'base64').subarray(0, 8), PNG);
  }
});

test('what is wrong with an image is named', async () => {
  const error = await fails(OpenAI.BadRequestError, draw({ size: '640x480' }));
  assert.equal(error.param, 'size');
});

test('a transcript is JSON with both objects', async () => {
  const answer = await writeDown({ language: 'en', prompt: 'Names', temperature: 0 });
  assert.match(answer.text, /simulated/);
  assert.equal(answer.usage.seconds, 6);
  checkMetadata(answer);
});

test('text and subtitles are strings', async () => {
  for (const [form, like] of [['text', /simulated/], ['srt', /^1\n00:00:00,000 --> /], ['vtt', /^WEBVTT\n\n00:/]]) {
    const answer = await writeDown({ response_format: form });
    assert.equal(typeof answer, 'string', form);
    assert.match(answer, like);
  }
});

test('verbose has segments and words', async () => {
  const more = { response_format: 'verbose_json', timestamp_granularities: ['word', 'segment'] };
  const answer = await writeDown(more);
  assert.equal(answer.segments.length, 2);
  assert.ok(answer.words.length > 5);
  checkMetadata(answer);
});

test('what is wrong with a transcript is named', async () => {
  const error = await fails(OpenAI.BadRequestError, writeDown({ language: 'english' }));
  assert.equal(error.param, 'language');
  const file = await toFile(Buffer.from('not a sound'), 'a.wav');
  const none = client.audio.transcriptions.create({ file, model: 'listener' });
  assert.equal((await fails(OpenAI.BadRequestError, none)).param, 'file');
});
