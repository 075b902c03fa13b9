// Recorded requests of real chat clients: each is answered, or refused with exactly the fields named
// that are not built yet; with those taken out, each is answered.
import { readdirSync, readFileSync } from 'node:fs';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { post, type ServerFixture, startServer } from './server-fixture.ts';

const FOLDER = new URL('../../vectors/captures/', import.meta.url);

interface Capture {
  readonly path: string;
  readonly headers: Record<string, string>;
  readonly body: { model: string; messages: Record<string, unknown>[]; [field: string]: unknown };
}

/** What each capture is refused for; null: it is answered. */
const REFUSED: Record<string, readonly string[] | null> = {
  'opencode_chat_title.json': null,
  'opencode_chat_turn2_toolresult.json': ['tools'],
  'opencode_chat_turn2_reasoning.json': ['tools'],
  'pi_chat_turn2_reasoning.json': ['tools', 'reasoning_effort'],
  'pi_chat_turn2_deepseek_format.json': ['tools', 'reasoning_effort', 'thinking'],
  'ccr_chat_turn2_from_claude.json': ['tools', 'reasoning'],
};

const captures = readdirSync(FOLDER).filter((name) => name.includes('chat'));
let fixture: ServerFixture;
beforeAll(async () => {
  fixture = await startServer();
});
afterAll(() => fixture.close());

function load(name: string): Capture {
  const capture = JSON.parse(readFileSync(new URL(name, FOLDER), 'utf8')) as Capture;
  return { ...capture, body: { ...capture.body, model: 'cox-1' } };
}

const send = ({ path, headers }: Capture, body: unknown) =>
  post(`${fixture.url}${path}`, body, headers);

test('every capture is listed here', () => {
  expect(new Set(captures)).toEqual(new Set(Object.keys(REFUSED)));
});

test.each(Object.entries(REFUSED))('%s', async (name, fields) => {
  const capture = load(name);
  const answer = await send(capture, capture.body);
  if (fields === null) {
    expect(answer.status).toBe(200);
    expect(answer.text.endsWith('data: [DONE]\n\n')).toBe(true);
    return;
  }
  expect(answer.status).toBe(400);
  expect(answer.json.error).toMatchObject({ param: fields[0], code: 'unsupported_parameter' });
  const named = answer.json.error.message.split(/ (?:is|are) not supported/)[0].split(', ');
  expect(named).toEqual(fields);
});

test.each(Object.entries(REFUSED))(
  '%s is answered without what it is refused for',
  async (name) => {
    const capture = load(name);
    const body = { ...capture.body };
    for (const field of REFUSED[name] ?? []) delete body[field];
    // Tool calls and reasoning of earlier turns are named once the top level is clean.
    const assistant = body.messages.findIndex((message) => message['tool_calls'] !== undefined);
    if (assistant >= 0) {
      const second = await send(capture, body);
      expect(second.status).toBe(400);
      expect(second.json.error.message).toContain(`messages[${assistant}].tool_calls`);
    }
    body.messages = body.messages.map(
      ({ tool_calls: _calls, reasoning_content: _reasoning, ...message }) => message,
    );
    const answer = await send(capture, body);
    expect(answer.status).toBe(200);
    expect(answer.text.endsWith('data: [DONE]\n\n')).toBe(true);
  },
);
