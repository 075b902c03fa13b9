// Whatever JSON arrives, the answer is 200, 400 or 404 with an OpenAI body: never 500, never silence.
import fc from 'fast-check';
import { afterAll, beforeAll, test } from 'vitest';
import { post, type ServerFixture, startServer } from '../unit/api/server-fixture.ts';

let fixture: ServerFixture;
beforeAll(async () => {
  fixture = await startServer();
});
afterAll(() => fixture.close());

const odd = fc.oneof(
  fc.jsonValue({ maxDepth: 3 }),
  fc.constantFrom<unknown>(null, '', 0, -1, 1e300, 2 ** 53, true, [], {}, [[]], [null], 'x'),
);

const part = fc.oneof(fc.record({ type: fc.constant('text'), text: fc.string() }), odd);
const message = fc.oneof(
  fc.record(
    {
      role: fc.oneof(fc.constantFrom('system', 'user', 'assistant', 'tool', 'developer'), odd),
      content: fc.oneof(fc.string({ unit: 'binary' }), fc.array(part, { maxLength: 3 }), odd),
      name: odd,
      tool_calls: odd,
    },
    { requiredKeys: [] },
  ),
  odd,
);

const options = {
  model: fc.oneof(fc.constant('cox-1'), odd),
  stream: fc.oneof(fc.boolean(), odd),
  stream_options: fc.oneof(fc.record({ include_usage: fc.boolean() }), odd),
  max_tokens: fc.oneof(fc.integer({ min: 1, max: 9 }), odd),
  temperature: fc.oneof(fc.double({ min: 0, max: 2, noNaN: true }), odd),
  stop: fc.oneof(fc.array(fc.string(), { maxLength: 3 }), odd),
  n: fc.oneof(fc.integer({ min: 1, max: 8 }), odd),
  logit_bias: fc.oneof(fc.dictionary(fc.string(), fc.integer()), odd),
  logprobs: fc.oneof(fc.boolean(), fc.integer({ min: 0, max: 5 }), odd),
  top_logprobs: odd,
  seed: odd,
  user: odd,
  tools: odd,
  response_format: odd,
  echo: fc.oneof(fc.boolean(), odd),
  suffix: odd,
  best_of: odd,
};

const chat = fc.record(
  { ...options, messages: fc.oneof(fc.array(message, { maxLength: 4 }), odd) },
  { requiredKeys: ['messages'] },
);

const prompt = fc.oneof(
  fc.string({ unit: 'binary' }),
  fc.array(fc.string(), { maxLength: 4 }),
  fc.array(fc.nat(), { maxLength: 4 }),
  fc.array(fc.array(fc.nat(), { maxLength: 3 }), { maxLength: 3 }),
  odd,
);
const completion = fc.record({ ...options, prompt }, { requiredKeys: ['prompt'] });

let answered = 0;

async function check(path: string, body: unknown): Promise<void> {
  const answer = await post(`${fixture.url}${path}`, body);
  if (![200, 400, 404].includes(answer.status)) throw new Error(`${answer.status} ${answer.text}`);
  if (answer.status === 200) {
    answered += 1;
    const ended = answer.text.endsWith('data: [DONE]\n\n') || answer.json?.choices !== undefined;
    if (!ended || answer.text.includes('"error":{')) throw new Error(answer.text);
    return;
  }
  const { message: sentence, type, param } = answer.json.error;
  if (type !== 'invalid_request_error' || typeof sentence !== 'string')
    throw new Error(answer.text);
  if (param !== null && !sentence.includes(param))
    throw new Error(`${param} is not in: ${sentence}`);
}

test('any chat body gets an answer or a 400 that names its field', async () => {
  await fc.assert(
    fc.asyncProperty(fc.oneof(chat, odd), (body) => check('/v1/chat/completions', body)),
    { numRuns: 1000 },
  );
});

test('any completions body gets an answer or a 400 that names its field', async () => {
  await fc.assert(
    fc.asyncProperty(fc.oneof(completion, odd), (body) => check('/v1/completions', body)),
    { numRuns: 1000 },
  );
});

test('the bodies above are not so odd that none is answered', () => {
  if (answered < 100) throw new Error(`only ${answered} of 2000 were answered`);
});

test('any bytes as a body get a 400', async () => {
  await fc.assert(
    fc.asyncProperty(fc.string({ unit: 'binary' }), (text) => check('/v1/completions', text)),
    { numRuns: 200 },
  );
});
