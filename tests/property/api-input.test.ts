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

/** Valid far more often than not: else one odd field hides what the others do. */
const mostly = (valid: fc.Arbitrary<unknown>) =>
  fc.oneof({ arbitrary: valid, weight: 24 }, { arbitrary: odd, weight: 1 });

const nothing = mostly(fc.constantFrom<unknown>(null, [], {}, ''));
const anyText = fc.string({ unit: 'binary' });

const part = mostly(fc.record({ type: fc.constant('text'), text: anyText }));
const message = mostly(
  fc.record(
    {
      role: mostly(fc.constantFrom('system', 'user', 'assistant', 'tool', 'developer')),
      content: mostly(fc.oneof(anyText, fc.array(part, { maxLength: 3 }), fc.constant(null))),
      name: mostly(fc.string()),
      tool_calls: nothing,
    },
    { requiredKeys: ['role'] },
  ),
);

const options = {
  model: mostly(fc.constant('cox-1')),
  stream: mostly(fc.boolean()),
  stream_options: mostly(fc.record({ include_usage: fc.boolean() })),
  max_tokens: mostly(fc.integer({ min: 1, max: 9 })),
  temperature: mostly(fc.double({ min: 0, max: 2, noNaN: true })),
  stop: mostly(fc.oneof(anyText, fc.array(fc.string({ minLength: 1 }), { maxLength: 3 }))),
  n: mostly(fc.integer({ min: 1, max: 8 })),
  logit_bias: mostly(fc.dictionary(fc.nat().map(String), fc.integer({ min: -100, max: 100 }))),
  seed: mostly(fc.maxSafeInteger()),
  user: mostly(anyText),
  tools: nothing,
};

const chat = fc.record(
  {
    ...options,
    messages: mostly(fc.array(message, { minLength: 1, maxLength: 4 })),
    logprobs: mostly(fc.boolean()),
    top_logprobs: mostly(fc.constantFrom(0, null)),
    response_format: mostly(fc.constant({ type: 'text' })),
  },
  { requiredKeys: ['messages'] },
);

const prompt = mostly(
  fc.oneof(
    anyText,
    fc.array(anyText, { minLength: 1, maxLength: 4 }),
    fc.array(fc.nat(), { minLength: 1, maxLength: 4 }),
    fc.array(fc.array(fc.nat(), { minLength: 1, maxLength: 3 }), { minLength: 1, maxLength: 3 }),
  ),
);
const completion = fc.record(
  {
    ...options,
    prompt,
    logprobs: mostly(fc.integer({ min: 0, max: 5 })),
    echo: mostly(fc.boolean()),
    suffix: nothing,
    best_of: mostly(fc.constant(null)),
  },
  { requiredKeys: ['prompt'] },
);

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
